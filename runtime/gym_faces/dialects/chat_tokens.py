"""An engine's completion with its token ids and log-probabilities, for training or to be shown.

vLLM gives ``prompt_token_ids``, ``token_ids`` and ``logprobs``; llama.cpp has the generated ids within
``logprobs``; others write ``token_id:17`` in place of a token's text. A missing field stays empty.

An answer with thousands of tokens is mostly their log-probabilities, so they are read only once, and the
fields beside each of them are read only if the ids are found nowhere else. A long conversation's is mostly
the ids of its prompt, which begin with those of the turn before: where their JSON begins with the same bytes,
only the rest is read.
"""

from __future__ import annotations

import struct
from typing import Annotated

import msgspec
from gym_runtime.adapters import ConversationNotes, Tokens
from gym_runtime.messages import pack_ids, pack_json_ids, pack_logprobs
from msgspec import Meta, Raw

from gym_faces.dialects.chat_answer import Choice, Completion, checked
from gym_faces.dialects.dialect import ForeignAnswer
from gym_faces.dialects.pieces import encode, is_null

_PREFIX = "token_id:"
_PROMPT = b'"prompt_token_ids":'
_MOST = 3e38
"""As much as 32 bits hold."""


# `gc=False`: one for each token, never part of a cycle.
class Logprob(msgspec.Struct, gc=False):
    logprob: Annotated[float, Meta(ge=-_MOST, le=_MOST)]


class Logprobs(msgspec.Struct):
    """The log-probabilities of a choice, one per token."""

    content: list[Logprob] | None = None


class _Choice(Choice):
    logprobs: Logprobs | None = None
    token_ids: Raw = Raw()
    prompt_token_ids: Raw = Raw()


class _Completion(Completion[_Choice]):
    prompt_token_ids: Raw = Raw()


class _Name(msgspec.Struct, gc=False):
    token: str = ""
    id: int | None = None


class _Names(msgspec.Struct):
    content: list[_Name] = []


class _NamedChoice(msgspec.Struct):
    logprobs: _Names


class _Named(msgspec.Struct):
    choices: list[_NamedChoice]


class _Past(msgspec.Struct, frozen=True):
    """The ids of the turns so far: packed, and as the engine wrote them, from the opening bracket on."""

    ids: bytes
    pieces: list[bytes]

    def end_in(self, body: bytes, start: int) -> int:
        """Where these ids end in a body that has them at ``start`` and more after them; 0 if it has not."""
        for piece in self.pieces:
            if not body.startswith(piece, start):
                return 0
            start += len(piece)
        return start if body.startswith(b",", start) else 0


class _Prompt(msgspec.Struct, frozen=True):
    """The ids of a prompt as a JSON array, without those of the turns so far, if there are any."""

    text: bytes
    past: _Past | None = None

    @property
    def pieces(self) -> list[bytes]:
        """All ids, as in `_Past`."""
        if self.past is None:
            return [self.text[:-1]]
        return [*self.past.pieces, b",%b" % self.text[1:-1]]


_decode = msgspec.json.Decoder(_Completion).decode
_decode_named = msgspec.json.Decoder(_Named).decode


def read_answer(body: bytes, notes: ConversationNotes | None = None) -> tuple[Completion[Choice], Tokens]:
    """The completion, and the token ids and log-probabilities of its first choice.

    ``notes`` are those of the conversation.

    Raises:
        ForeignAnswer: the body holds no completion, or its tokens have an unknown form.
    """
    past: _Past | None = None if notes is None else notes.get("tokens")
    body, cut = _without_prompt(body, past)
    completion = checked(_decode, body)
    choice = completion.choices[0]
    generated = choice.token_ids
    logprobs = (choice.logprobs and choice.logprobs.content) or []
    at_top = completion.prompt_token_ids
    named = choice.prompt_token_ids if is_null(at_top) else at_top
    prompt = _Prompt(bytes(named)) if cut is None or is_null(named) else cut
    try:
        sampled = _packed(bytes(generated))
        if is_null(generated) and logprobs:
            sampled = pack_ids(_named_ids(body))
        prompt_ids = _packed(prompt.text)
    except (struct.error, ValueError) as error:  # the latter of a name such as token_id:x
        raise ForeignAnswer(f"a token id is not of 32 bits: {error}") from error
    # The highest byte of a negative number has its first bit set.
    if not (sampled[3::4].isascii() and prompt_ids[3::4].isascii()):
        raise ForeignAnswer("a token id is negative")
    if sampled and logprobs and len(sampled) != 4 * len(logprobs):
        raise ForeignAnswer(f"{len(sampled) // 4} tokens and {len(logprobs)} log-probabilities")
    if prompt.past is not None:
        prompt_ids = prompt.past.ids + prompt_ids
    if notes is not None and prompt_ids and not is_null(generated):
        pieces = [*prompt.pieces, b",%b" % bytes(generated)[1:-1]]
        notes["tokens"] = _Past(prompt_ids + sampled, pieces)
        notes.size_bytes = len(prompt_ids) + len(sampled) + sum(map(len, pieces))
    return completion, Tokens(
        prompt_ids=prompt_ids,
        generation_ids=sampled,
        log_probs=pack_logprobs([entry.logprob for entry in logprobs]),
    )


def _without_prompt(body: bytes, past: _Past | None) -> tuple[bytes, _Prompt | None]:
    """A body without the ids of its prompt, and these ids, if the body has them once: JSON is read faster so.

    No text can contain the name, because its quotes would be escaped.
    """
    at = body.find(_PROMPT)
    start = at + len(_PROMPT)
    if at < 0 or not body.startswith(b"[", start):
        return body, None
    end = past.end_in(body, start) if past else 0
    close = body.find(b"]", end or start)
    if close < 0 or body.find(_PROMPT, close) >= 0:
        return body, None
    text = b"[%b" % body[end + 1 : close + 1] if end else body[start : close + 1]
    return b"%b[%b" % (body[:start], body[close:]), _Prompt(text, past if end else None)


def _packed(ids: bytes) -> bytes:
    return b"" if is_null(ids) else pack_json_ids(ids)


def _named_ids(body: bytes) -> list[int]:
    """The ids beside the log-probabilities; an empty list if one is missing."""
    names = _decode_named(body).choices[0].logprobs.content
    ids = [one for name in names if (one := _id(name)) is not None]
    # Ids with a gap would be matched with the wrong log-probabilities.
    return ids if len(ids) == len(names) else []


def _id(name: _Name) -> int | None:
    if name.id is None and name.token.startswith(_PREFIX):
        return int(name.token.removeprefix(_PREFIX))
    return name.id


# -- log-probabilities that a call asks for -------------------------------------------------------------


# `gc=False`: an answer may have tens of thousands, which are never part of a cycle.
class _Candidate(msgspec.Struct, gc=False):
    token: str
    logprob: float
    bytes: list[int] | None = None


class _Entry(_Candidate):
    top_logprobs: list[_Candidate] = []


class _Shown(msgspec.Struct):
    content: list[_Entry] | None = None


class _ShownChoice(msgspec.Struct):
    logprobs: _Shown | None = None


class _ShownCompletion(msgspec.Struct):
    choices: list[_ShownChoice]


_decode_shown = msgspec.json.Decoder(_ShownCompletion).decode


def shown_logprobs(body: bytes) -> bytes:
    """The ``logprobs`` of an ``output_text`` part, as JSON: one entry per token, or ``null`` without any.

    Chat Completions has them beside the message, the Responses API in the message's text part.

    Raises:
        msgspec.DecodeError: the engine writes them in another form.
    """
    logprobs = _decode_shown(body).choices[0].logprobs
    if logprobs is None or not logprobs.content:
        return b"null"
    for entry in logprobs.content:
        for one in (entry, *entry.top_logprobs):
            if one.bytes is None:  # a client may rely on them
                one.bytes = list(one.token.encode())
    return encode(logprobs.content)

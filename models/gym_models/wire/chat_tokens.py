"""A completion and its token ids and log-probabilities, where the engine gives them.

vLLM gives ``prompt_token_ids``, ``token_ids`` and ``logprobs``; llama.cpp has the generated ids within
``logprobs``; others write ``token_id:17`` in place of a token's text. A missing field stays empty.

An answer with thousands of tokens is mostly their log-probabilities, so they are read only once, and the
fields beside each of them are read only if the ids are found nowhere else.
"""

from __future__ import annotations

import msgspec
from gym_runtime import Tokens, pack_ids, pack_logprobs

from gym_models.wire.chat_answer import Choice, Completion, checked

_PREFIX = "token_id:"


class Logprob(msgspec.Struct, gc=False):
    logprob: float


class Logprobs(msgspec.Struct):
    """The log-probabilities of a choice, one per token."""

    content: list[Logprob] | None = None


class _Choice(Choice):
    logprobs: Logprobs | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None


class _Completion(Completion[_Choice]):
    prompt_token_ids: list[int] | None = None


class _Name(msgspec.Struct, gc=False):
    token: str = ""
    id: int | None = None


class _Names(msgspec.Struct):
    content: list[_Name] = []


class _NamedChoice(msgspec.Struct):
    logprobs: _Names


class _Named(msgspec.Struct):
    choices: list[_NamedChoice]


_decode = msgspec.json.Decoder(_Completion).decode
_decode_named = msgspec.json.Decoder(_Named).decode


def decode(body: bytes) -> tuple[Completion[Choice], Tokens]:
    """The completion, and the token ids and log-probabilities of its first choice.

    Raises:
        ForeignAnswer: the body holds no completion, or its tokens have an unknown form.
    """
    completion = checked(_decode, body)
    choice = completion.choices[0]
    generated = choice.token_ids
    logprobs = (choice.logprobs and choice.logprobs.content) or []
    if generated is None and logprobs:
        generated = _named_ids(body)
    prompt = choice.prompt_token_ids if completion.prompt_token_ids is None else completion.prompt_token_ids
    return completion, Tokens(
        prompt_ids=pack_ids(prompt or ()),
        generation_ids=pack_ids(generated or ()),
        log_probs=pack_logprobs([entry.logprob for entry in logprobs]),
    )


def _named_ids(body: bytes) -> list[int]:
    """The ids that stand beside the log-probabilities; none if one is missing."""
    names = _decode_named(body).choices[0].logprobs.content
    ids = [one for name in names if (one := _id(name)) is not None]
    return ids if len(ids) == len(names) else []


def _id(name: _Name) -> int | None:
    if name.id is None and name.token.startswith(_PREFIX):
        return int(name.token.removeprefix(_PREFIX))
    return name.id

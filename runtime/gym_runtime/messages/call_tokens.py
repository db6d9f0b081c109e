"""The tokens of model calls, packed, and how calls that follow each other leave out what the one before had.

A conversation's next prompt mostly repeats all tokens before it. Between a model worker and its agent, in the
journal and in a result's record a prompt is therefore short: how many of its first ids are those before it
(``same``), and the others (``rest``). Only who has the ids before it can read it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gym_runtime.errors import ModelUnavailable
from gym_runtime.messages.packing import ID_BYTES

Ids = tuple[bytes, ...]
"""Packed ids in pieces. A conversation's ids share the pieces of those before, which may take megabytes."""

PIECES_AT_MOST = 64  # then they are joined, because each turn looks at all of them


class Prefix(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of a conversation so far.

    Attributes:
        ids: int32, little-endian, shape (tokens,): the last call's prompt and completion.
        items: how many of the conversation's items they cover.
    """

    ids: bytes
    items: int


class WeightSpan(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens ``[start, end)`` of a completion were sampled from this version of the weights."""

    version: str
    start: int
    end: int


class Tokens(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Exactly what the engine saw and produced in one call.

    Attributes:
        prompt_ids: int32, little-endian, shape (prompt tokens,); empty where the prompt is short.
        generation_ids: int32, little-endian, shape (generated tokens,).
        log_probs: float32, little-endian, shape (generated tokens,): natural logarithms.
        weights: which version of the weights sampled which tokens; empty if the engine does not say.
        same: of a short prompt, how many of its ids, from the first one on, are those before it; else 0.
        rest: of a short prompt, the other ids, as ``prompt_ids``.
    """

    prompt_ids: bytes = b""
    generation_ids: bytes = b""
    log_probs: bytes = b""
    weights: list[WeightSpan] = []
    same: int = 0
    rest: bytes = b""


class CallTokens(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The tokens of one model call of a rollout, short on those of the call before.

    Attributes:
        item: the index of the call's last item in the response's output.
        segment: the number of the token sequence to which the call belongs, from 0.
    """

    item: int
    tokens: Tokens
    segment: int = 0


def shortened(tokens: Tokens, before: bytes | bytearray) -> Tokens:
    """Whole tokens with a short prompt, if the prompt shares ids with ``before``."""
    same = _shared(tokens.prompt_ids, before)
    if not same:
        return tokens
    return msgspec.structs.replace(
        tokens, prompt_ids=b"", same=same, rest=tokens.prompt_ids[same * ID_BYTES :]
    )


def lengthened(tokens: Tokens, before: Ids) -> Tokens:
    """The tokens with their whole prompt.

    Raises:
        ModelUnavailable: the prompt is short on more ids than ``before`` has.
    """
    if not tokens.same:
        return tokens
    prompt = b"".join(_prompt(tokens, before))
    return msgspec.structs.replace(tokens, prompt_ids=prompt, same=0, rest=b"")


def _prompt(tokens: Tokens, before: Ids) -> Ids:
    if not tokens.same:
        return (tokens.prompt_ids,)
    kept: list[bytes] = []
    missing = tokens.same * ID_BYTES
    for piece in before:
        if not missing:
            break
        kept.append(piece[:missing])
        missing -= len(kept[-1])
    if missing:
        raise ModelUnavailable("the model's answer leaves out token ids that are not known", stage="model")
    return (*kept, tokens.rest)


def ids_after(tokens: Tokens | None, before: Ids) -> Ids:
    """The ids of a conversation, including its last answer; nothing if they are not reported.

    Raises:
        ModelUnavailable: as `lengthened`.
    """
    if tokens is None or not (tokens.prompt_ids or tokens.same):
        return ()
    ids = (*_prompt(tokens, before), tokens.generation_ids)
    return ids if len(ids) <= PIECES_AT_MOST else (b"".join(ids),)


def prefix_after(tokens: Tokens | None, items: int) -> Prefix | None:
    """The tokens of a conversation of ``items`` items, including its last answer, whose prompt is whole.

    None if they are not reported.
    """
    if tokens is None or not tokens.prompt_ids:
        return None
    return Prefix(ids=tokens.prompt_ids + tokens.generation_ids, items=items)


def chained(calls: Mapping[int, Tokens]) -> list[CallTokens]:
    """The calls of a transcript, each short on the one before it in the mapping, if it is not already.

    Within a segment every prompt starts with exactly the tokens of the call before, prompt and completion; so
    a segment is one sequence to train on. Where the engine rewrote the history (it dropped thinking, or
    tokenized a tool call differently), the next segment starts.
    """
    chain: list[CallTokens] = []
    past, segment = Past(), 0
    for item, one in calls.items():
        tokens = one if one.same else shortened(one, past.ids)
        segment += bool(chain) and not past.continued_by(tokens)
        past.extend(tokens)
        chain.append(CallTokens(item=item, tokens=tokens, segment=segment))
    return chain


class Past:
    """The ids of a chain up to a call.

    Attributes:
        ids: packed.
    """

    def __init__(self) -> None:
        self.ids = bytearray()

    def continued_by(self, tokens: Tokens) -> bool:
        """Whether a short prompt begins with all ids so far."""
        return tokens.same * ID_BYTES == len(self.ids)

    def extend(self, tokens: Tokens) -> None:
        """Go on behind a call whose prompt is short, or whole."""
        del self.ids[tokens.same * ID_BYTES :]
        self.ids += (tokens.rest if tokens.same else tokens.prompt_ids) + tokens.generation_ids


def _shared(ids: bytes, before: bytes | bytearray) -> int:
    """How many ids both begin with."""
    size = min(len(ids), len(before))
    if ids.startswith(memoryview(before)[:size]):
        return size // ID_BYTES
    low, high = 0, size // ID_BYTES
    while low < high:  # the first `low` ids are the same, the first `high + 1` are not
        middle = (low + high + 1) // 2
        # Views compare number by number, bytes all at once.
        if ids.startswith(memoryview(before)[low * ID_BYTES : middle * ID_BYTES], low * ID_BYTES):
            low = middle
        else:
            high = middle - 1
    return low

"""Token sequences to train on, from a result row: what the engine saw and sampled, as numpy arrays.

The last output item of each model call carries the call's token ids. Calls follow each other in one sequence
as long as each prompt begins with all ids before it. Where one does not (the engine's chat template dropped
thinking, or wrote a tool call in another way), the next sequence starts: a segment. Segments are found from
the ids themselves, so rows of NeMo Gym give the same sequences as rows of this runtime.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from gym_runtime.errors import UNREADABLE, TaskError, UsageError
from gym_runtime.messages.call_tokens import ID_BYTES, CallTokens, Past, WeightSpan, pack_ids, pack_logprobs

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class _Item(msgspec.Struct, frozen=True):
    prompt_token_ids: list[int] | None = None
    generation_token_ids: list[int] | None = None
    generation_log_probs: list[float | None] | None = None
    weight_versions: list[WeightSpan] = []


class _Fork(msgspec.Struct, frozen=True):
    items: int = 0
    changed: list[str] = []


class _Own(msgspec.Struct, frozen=True):
    fork: _Fork | None = None


class _Forked(msgspec.Struct, frozen=True):
    own: _Own = msgspec.field(name="_gym", default=_Own())


class _Response(msgspec.Struct, frozen=True):
    output: list[_Item] = []


class _Row(msgspec.Struct, frozen=True):
    response: _Response | None = None


_decode = msgspec.json.Decoder(_Row).decode
_decode_forked = msgspec.json.Decoder(_Forked).decode
NAN = pack_logprobs([math.nan])
NO_TOKENS = "the row has no token ids: make its rollout with return_token_ids=True"


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class TokenSequence:
    """One sequence of token ids to train on: a first prompt, and everything that followed it.

    What followed are the policy's tokens, and between them those of tools' outputs and of the chat template.

    Attributes:
        prompt_ids: int64, shape (prompt tokens,).
        completion_ids: int64, shape (completion tokens,).
        log_probs: float32, shape (completion tokens,): natural logarithms, as the engine reported them; 0.0
            where ``mask`` is False, NaN where the engine reported none.
        mask: bool, shape (completion tokens,): True where the policy sampled the token, except in turns that
            are left out because other rollouts share them.
        turns: ``(start, end)`` of each turn's sampled tokens in ``completion_ids``.
        weights: which version of the weights sampled which part of ``completion_ids``; empty if the engine
            does not say.
        segment: the number of this sequence in its rollout, from 0.
        segments: how many sequences the rollout has; above 1 the engine rewrote the conversation.
        truncated: a limit ended the rollout, and so this sequence, which is its last.
    """

    prompt_ids: NDArray[np.int64]
    completion_ids: NDArray[np.int64]
    log_probs: NDArray[np.float32]
    mask: NDArray[np.bool_]
    turns: tuple[tuple[int, int], ...]
    weights: tuple[WeightSpan, ...]
    segment: int
    segments: int
    truncated: bool

    @property
    def versions(self) -> list[str]:
        """The versions of the weights that sampled it, each once, in the order of their first tokens."""
        return list(dict.fromkeys(span.version for span in self.weights))


class _Call(msgspec.Struct, frozen=True):
    """One model call, packed; its prompt is whole."""

    prompt: bytes
    ids: bytes
    log_probs: bytes
    weights: list[WeightSpan]
    trained: bool = True


class _Segment:
    """A sequence that is being put together."""

    def __init__(self, prompt: bytes) -> None:
        self.prompt = prompt
        self.whole = bytearray(prompt)
        self.log_probs: list[bytes] = []
        self.turns: list[tuple[int, int]] = []
        self.trained: list[bool] = []
        self.weights: list[WeightSpan] = []

    def add(self, call: _Call) -> None:
        """Add a call whose prompt begins with all ids so far."""
        self.whole += memoryview(call.prompt)[len(self.whole) :]
        start = self._length()
        self.whole += call.ids
        self.log_probs.append(call.log_probs)
        self.turns.append((start, self._length()))
        self.trained.append(call.trained)
        for span in call.weights:
            moved = WeightSpan(version=span.version, start=start + span.start, end=start + span.end)
            self.weights.append(moved)

    def _length(self) -> int:
        return (len(self.whole) - len(self.prompt)) // ID_BYTES


def token_sequences(row: Raw | bytes, *, truncated: bool = False, shared: bool = True) -> list[TokenSequence]:
    """The token sequences of a result row, in order; without a model call, none.

    Args:
        truncated: a limit ended the rollout.
        shared: whether the turns that a fork shares are trained, too. They are masked in any case where the
            fork changed what the model was told.

    Raises:
        UsageError: the row's model calls carry no token ids; or numpy is not installed.
        TaskError: the row is not one, or an item's ids and log-probabilities do not belong together.
    """
    try:
        response = _decode(row).response
    except UNREADABLE as error:
        raise TaskError(f"not a result row: {error}") from error
    items = response.output if response is not None else []
    masked = masked_items(row, shared=shared)
    calls = [
        _read(number, item, ids, trained=number >= masked)
        for number, item in enumerate(items)
        if (ids := item.generation_token_ids)
    ]
    if items and not calls:
        raise UsageError(NO_TOKENS)
    return _sequences(calls, truncated=truncated)


def masked_items(row: Raw | bytes, *, shared: bool) -> int:
    """How many of a transcript's items, from the first one on, are not trained.

    Args:
        shared: as for `token_sequences`.

    Raises:
        TaskError: the row is damaged.
    """
    try:
        fork = _decode_forked(row).own.fork
    except UNREADABLE as error:
        raise TaskError(f"not a result row: {error}") from error
    return fork.items if fork is not None and (fork.changed or not shared) else 0


def packed_sequences(
    chain: Iterable[CallTokens], *, truncated: bool = False, masked: int = 0
) -> list[TokenSequence]:
    """As `token_sequences`, of the packed tokens that a record has.

    Args:
        masked: how many of the transcript's items, from the first one on, are not trained.

    Raises:
        UsageError: they hold no token; or numpy is not installed.
        TaskError: a call's ids and log-probabilities do not belong together.
    """
    found = _sequences(_read_packed(chain, masked), truncated=truncated)
    if not found:
        raise UsageError(NO_TOKENS)
    return found


def _read_packed(chain: Iterable[CallTokens], masked: int) -> Iterator[_Call]:
    past = Past()
    for one in chain:
        tokens = one.tokens
        past.extend(tokens)
        ids = tokens.generation_ids
        log_probs = tokens.log_probs or NAN * (len(ids) // ID_BYTES)
        _check(one.item, ids, log_probs)
        if ids:
            prompt = bytes(memoryview(past.ids)[: len(past.ids) - len(ids)])
            yield _Call(prompt, ids, log_probs, tokens.weights, one.item >= masked)


def _sequences(calls: Iterable[_Call], *, truncated: bool) -> list[TokenSequence]:
    try:
        import numpy as np
    except ModuleNotFoundError as error:
        what = "token sequences need the package numpy: pip install 'gym-runtime[numpy]'"
        raise UsageError(what) from error
    segments: list[_Segment] = []
    for call in calls:
        if not segments or not call.prompt.startswith(segments[-1].whole):
            segments.append(_Segment(call.prompt))
        segments[-1].add(call)
    found: list[TokenSequence] = []
    for number, one in enumerate(segments):
        ids = np.frombuffer(one.whole, "<i4")[len(one.prompt) // ID_BYTES :]
        log_probs, mask = np.zeros(len(ids), np.float32), np.zeros(len(ids), np.bool_)
        for (start, end), sampled, trained in zip(one.turns, one.log_probs, one.trained, strict=True):
            if trained:
                log_probs[start:end] = np.frombuffer(sampled, "<f4")
                mask[start:end] = True
        found.append(
            TokenSequence(
                prompt_ids=np.frombuffer(one.prompt, "<i4").astype(np.int64),
                completion_ids=ids.astype(np.int64),
                log_probs=log_probs,
                mask=mask,
                turns=tuple(one.turns),
                weights=tuple(one.weights),
                segment=number,
                segments=len(segments),
                truncated=truncated and number == len(segments) - 1,
            )
        )
    return found


def _read(number: int, item: _Item, ids: list[int], *, trained: bool) -> _Call:
    """An item's call.

    Raises:
        TaskError: there is no prompt, or not one log-probability per token.
    """
    if item.prompt_token_ids is None:
        raise TaskError(f"output item {number} has generation_token_ids and no prompt_token_ids")
    said: list[Any] = item.generation_log_probs or [None] * len(ids)
    log_probs = pack_logprobs([math.nan if one is None else one for one in said])
    try:
        sampled, prompt = pack_ids(ids), pack_ids(item.prompt_token_ids)
    except struct.error as error:
        raise TaskError(f"output item {number}: a token id is not of 32 bits: {error}") from error
    _check(number, sampled, log_probs)
    return _Call(prompt, sampled, log_probs, item.weight_versions, trained)


def _check(number: int, ids: bytes, log_probs: bytes) -> None:
    if len(ids) != len(log_probs):
        raise TaskError(
            f"output item {number} has {len(ids) // ID_BYTES} generated tokens and "
            f"{len(log_probs) // ID_BYTES} log-probabilities"
        )

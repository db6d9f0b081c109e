"""Token sequences to train on, from a result row: what the engine saw and sampled, as numpy arrays.

The last output item of each model call carries the call's token ids. Calls follow each other in one sequence
as long as each prompt begins with all ids before it. Where one does not (the engine's chat template dropped
thinking, or wrote a tool call in another way), the next sequence starts: a segment. Segments are found from
the ids themselves, so rows of NeMo Gym give the same sequences as rows of this runtime.

A row whose rollout has branches names them (`gym_runtime.messages.branches`). A call then continues its
parent's sequence if it is the first of the parent's kind to do so, and its prompt begins with all ids so far;
else the next sequence starts. So each sampled token is in the completion of one sequence, whose kind is its
own; in every other sequence it is a part of the prompt.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from gym_runtime.errors import UNREADABLE, TaskError, UsageError
from gym_runtime.messages.branches import BranchCall, Credit, weights
from gym_runtime.messages.call_tokens import (
    ID_BYTES,
    CallTokens,
    Past,
    Tokens,
    WeightSpan,
    pack_logprobs,
    shared_ids,
)
from gym_runtime.messages.fork import item_tokens, recorded_calls
from gym_runtime.messages.responses import NULL
from gym_runtime.messages.routed_experts import ROUTED_BYTES, Experts, Rows
from gym_runtime.messages.transcripts import decode_output

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class _Fork(msgspec.Struct, frozen=True):
    items: int = 0
    changed: list[str] = []


class _Gym(msgspec.Struct, frozen=True):
    calls: list[BranchCall] = []
    fork: _Fork | None = None

    def masked(self, *, shared: bool) -> int:
        """How many of the transcript's items, from the first one on, are not trained.

        Args:
            shared: as for `token_sequences`.
        """
        return self.fork.items if self.fork is not None and (self.fork.changed or not shared) else 0


class _Row(msgspec.Struct, frozen=True):
    response: Raw = NULL
    gym: _Gym = msgspec.field(name="_gym", default=_Gym())


_decode = msgspec.json.Decoder(_Row).decode
NAN = pack_logprobs([math.nan])
PROMPT_BYTES = 2**28
"""Of all sequences of a rollout. A few bytes of a row can say that a call repeats a megabyte of ids."""
NO_TOKENS = (
    "the row has no token ids: make its rollout with return_token_ids=True, on an engine that gives them, "
    "such as vLLM"
)


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class TokenSequence:
    """One sequence of token ids to train on: a first prompt, and everything that followed it.

    What followed are the policy's tokens, and between them those of tools' outputs and of the chat template.

    Attributes:
        prompt_ids: int64, shape (prompt tokens,).
        completion_ids: int64, shape (completion tokens,).
        log_probs: float32, shape (completion tokens,): natural logarithms, as the engine reported them; 0.0
            where ``sampled`` is False, NaN where the engine reported none.
        mask: bool, shape (completion tokens,): True where the token is trained on: the policy sampled it, the
            sequence has a weight, and no other rollout that shares the turn trains on it.
        sampled: bool, shape (completion tokens,): True where the policy sampled the token.
        turns: ``(start, end)`` of each turn's sampled tokens in ``completion_ids``.
        weights: which version of the weights sampled which part of ``completion_ids``; empty if the engine
            does not say.
        segment: the number of this sequence in its rollout, from 0.
        segments: how many sequences the rollout has; above 1 the engine rewrote the conversation, or it has
            branches.
        truncated: a limit ended the rollout, and so this sequence, which has the transcript's last call.
        kind: what its calls are to the rollout, such as ``main`` or ``subagent``: `Kind`.
        parent: the number of the sequence that it leaves; -1 if it leaves none.
        leaves_at: how many ids, from the first one on, it has in common with the parent.
        weight: of its advantage, by the rule that was asked for; 0.0 if it is not trained on.
        seat: who sampled it, of a rollout with several trained seats: see `RolloutRecord.reward_of`.
        experts: uint8, or uint16 of more than 256 experts, shape (prompt and completion tokens - 1, layers,
            top_k): the experts that the engine chose for each token but the last; None unless all are known.
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
    sampled: NDArray[np.bool_]
    kind: str = "main"
    parent: int = -1
    leaves_at: int = 0
    weight: float = 1.0
    seat: str = ""
    experts: NDArray[np.uint8 | np.uint16] | None = None

    @property
    def versions(self) -> list[str]:
        """The versions of the weights that sampled it, each once, in the order of their first tokens."""
        return list(dict.fromkeys(span.version for span in self.weights))


class _Call(msgspec.Struct, frozen=True):
    """One model call, packed; its prompt is whole."""

    item: int
    prompt: bytes
    ids: bytes
    log_probs: bytes
    weights: list[WeightSpan]
    trained: bool = True
    experts: Experts | None = None


class _Segment:
    """A sequence that is being put together."""

    def __init__(
        self, prompt: bytes, kind: str, seat: str, parent: int, leaves_at: int, experts: Rows
    ) -> None:
        self.prompt = prompt
        self.experts = experts
        self.seat = seat
        self.kind = kind
        self.parent = parent
        self.leaves_at = leaves_at
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
        self.experts.add(call.experts)
        self.log_probs.append(call.log_probs)
        self.turns.append((start, self._length()))
        self.trained.append(call.trained)
        for span in call.weights:
            moved = WeightSpan(version=span.version, start=start + span.start, end=start + span.end)
            self.weights.append(moved)

    def _length(self) -> int:
        return (len(self.whole) - len(self.prompt)) // ID_BYTES


class _Tree:
    """A rollout's sequences. After each call, `ends` says where it ended: in which sequence, after how many
    bytes of ids."""

    def __init__(self) -> None:
        self.segments: list[_Segment] = []
        self.ends: list[tuple[int, int]] = []
        self.last = 0
        self._room = PROMPT_BYTES
        self._experts_room = ROUTED_BYTES

    def head(self, number: int, count: int) -> bytes:
        """The first ids of a call, prompt and completion; fewer if it has fewer."""
        if number < 0:
            return b""
        segment, end = self.ends[number]
        return bytes(memoryview(self.segments[segment].whole)[: min(end, count * ID_BYTES)])

    def add(self, call: _Call, kind: str, parent: int, seat: str = "") -> None:
        """Add a call, behind the one that it continues; -1 if it continues none."""
        place, end = self.ends[parent] if parent >= 0 else (-1, 0)
        old = self.segments[place] if place >= 0 else None
        if (
            old is not None
            and (old.kind, old.seat) == (kind, seat)
            and end == len(old.whole)
            and call.prompt.startswith(old.whole)
        ):
            old.add(call)
            self.ends.append((place, len(old.whole)))
            return
        leaves_at = 0 if old is None else min(shared_ids(call.prompt, old.whole), end // ID_BYTES)
        experts = Rows() if old is None or call.experts is None else self._shared(old, leaves_at)
        segment = _Segment(call.prompt, kind, seat, place, leaves_at, experts)
        self._room -= len(call.prompt)
        if self._room < 0:
            most = PROMPT_BYTES // ID_BYTES
            raise TaskError(f"the rollout's sequences have more than {most:,} ids in their prompts")
        segment.add(call)
        self.ends.append((len(self.segments), len(segment.whole)))
        self.segments.append(segment)

    def _shared(self, old: _Segment, tokens: int) -> Rows:
        rows = Rows(old.experts, tokens)
        self._experts_room -= len(rows.data)
        if self._experts_room < 0:
            raise TaskError(
                f"the rollout's branches repeat more than {ROUTED_BYTES:,} bytes of routed experts"
            )
        return rows


def token_sequences(
    row: Raw | bytes, *, truncated: bool = False, credit: Credit = "accepted", shared: bool = True
) -> list[TokenSequence]:
    """The token sequences of a result row, in order; none if no model call sampled a token.

    Args:
        truncated: a limit ended the rollout.
        credit: which of them are trained on: see `Credit`. Every sequence is returned.
        shared: whether the turns that a fork shares are trained, too. They are masked in any case where the
            fork changed what the model was told.

    Raises:
        UsageError: the row's model calls carry no token ids; there is no such credit; or numpy is not
            installed.
        TaskError: the row is not one, or an item's ids and log-probabilities do not belong together.
    """
    try:
        found = _decode(row)
        output = decode_output(found.response)
        items: Sequence[Raw] = output.output if output is not None else ()
        read = [item_tokens(item) for item in items]
    except UNREADABLE as error:
        raise TaskError(f"not a result row: {error}") from error
    except struct.error as error:
        raise TaskError(f"a token id is not of 32 bits: {error}") from error
    masked = found.gym.masked(shared=shared)
    calls = [
        call
        for number, tokens in enumerate(read)
        if (call := _packed(number, tokens, tokens.prompt_ids, trained=number >= masked))
    ]
    told = calls or found.gym.calls or any(tokens.prompt_ids for tokens in read)
    if not told and recorded_calls(items):
        raise UsageError(NO_TOKENS)
    return _sequences(calls, found.gym.calls, truncated=truncated, credit=credit)


def packed_sequences(
    chain: Sequence[CallTokens],
    row: Raw | bytes = b"{}",
    *,
    truncated: bool = False,
    credit: Credit = "accepted",
    shared: bool = True,
) -> list[TokenSequence]:
    """As `token_sequences`, of the packed tokens that a record has beside its row.

    Raises:
        UsageError: they hold no prompt; there is no such credit; or numpy is not installed.
        TaskError: a call's ids and log-probabilities do not belong together; or the row is not one.
    """
    try:
        gym = _decode(row).gym
    except UNREADABLE as error:
        raise TaskError(f"not a result row: {error}") from error
    calls = _read_packed(chain, gym.masked(shared=shared))
    found = _sequences(calls, gym.calls, truncated=truncated, credit=credit)
    if not found and not any(one.tokens.prompt_ids for one in chain):
        raise UsageError(NO_TOKENS)
    return found


def _read_packed(chain: Iterable[CallTokens], masked: int) -> Iterator[_Call]:
    past = Past()
    for one in chain:
        past.extend(one.tokens)
        size = len(one.tokens.generation_ids)
        prompt = bytes(memoryview(past.ids)[: len(past.ids) - size])
        if call := _packed(one.item, one.tokens, prompt, trained=one.item >= masked):
            yield call


def _packed(item: int, tokens: Tokens, prompt: bytes, *, trained: bool = True) -> _Call | None:
    """A packed call with its whole prompt; None if nothing was sampled."""
    ids = tokens.generation_ids
    log_probs = tokens.log_probs or NAN * (len(ids) // ID_BYTES)
    where = f"output item {item}" if item >= 0 else "a call of _gym.calls"
    if (len(prompt) | len(ids)) % ID_BYTES:
        raise TaskError(f"{where} has token ids that are not of 32 bits")
    _check(where, prompt, ids, log_probs)
    experts = tokens.experts and tokens.experts.checked((len(prompt) + len(ids)) // ID_BYTES)
    return _Call(item, prompt, ids, log_probs, tokens.weights, trained, experts) if ids else None


def _tree(calls: Iterable[_Call], branches: Sequence[BranchCall]) -> _Tree:
    """
    Args:
        calls: those of the transcript, in order.
        branches: all calls, in the order of their answers; empty if those of the transcript are one line.

    Raises:
        TaskError: a call has a parent that does not come before it, or that is shorter than it says.
    """
    tree, transcript = _Tree(), iter(calls)
    following = next(transcript, None)
    for number, branch in enumerate(branches):
        if not -1 <= branch.parent < number:
            raise TaskError(f"_gym.calls: call {number} cannot continue call {branch.parent}")
        call = None
        if (tokens := branch.tokens) is not None:
            prompt = tree.head(branch.parent, tokens.same) + (
                tokens.rest if tokens.same else tokens.prompt_ids
            )
            if tokens.same and len(prompt) != tokens.same * ID_BYTES + len(tokens.rest):
                raise TaskError(f"_gym.calls: call {number} repeats more ids than its parent has")
            call = _packed(-1, tokens, prompt)
        elif following is not None and following.item <= branch.item:
            call, following = following, next(transcript, None)
        if call is None:  # it sampled nothing: what continues it continues its parent
            tree.ends.append(tree.ends[branch.parent] if branch.parent >= 0 else (-1, 0))
            continue
        tree.add(call, branch.kind, branch.parent, branch.seat)
        if call.item >= 0:
            tree.last = tree.ends[-1][0]
    while following is not None:
        tree.add(following, "main", len(tree.ends) - 1)
        tree.last = tree.ends[-1][0]
        following = next(transcript, None)
    return tree


def _sequences(
    calls: Iterable[_Call], branches: Sequence[BranchCall], *, truncated: bool, credit: Credit
) -> list[TokenSequence]:
    try:
        import numpy as np
    except ModuleNotFoundError as error:
        what = "token sequences need the package numpy: pip install 'gym-runtime[numpy]'"
        raise UsageError(what) from error
    tree = _tree(calls, branches)
    segments = tree.segments
    found: list[TokenSequence] = []
    for number, (one, weight) in enumerate(
        zip(segments, weights(credit, [one.kind for one in segments]), strict=True)
    ):
        ids = np.frombuffer(one.whole, "<i4")[len(one.prompt) // ID_BYTES :]
        log_probs, sampled = np.zeros(len(ids), np.float32), np.zeros(len(ids), np.bool_)
        trained = np.zeros(len(ids), np.bool_)
        for (start, end), said, is_trained in zip(one.turns, one.log_probs, one.trained, strict=True):
            log_probs[start:end] = np.frombuffer(said, "<f4")
            sampled[start:end] = True
            trained[start:end] = is_trained
        found.append(
            TokenSequence(
                prompt_ids=np.frombuffer(one.prompt, "<i4").astype(np.int64),
                completion_ids=ids.astype(np.int64),
                log_probs=log_probs,
                mask=trained if weight else np.zeros_like(sampled),
                sampled=sampled,
                turns=tuple(one.turns),
                weights=tuple(one.weights),
                segment=number,
                segments=len(segments),
                truncated=truncated and number == tree.last,
                kind=one.kind,
                parent=one.parent,
                leaves_at=one.leaves_at,
                weight=weight,
                seat=one.seat,
                experts=_experts(one.experts),
            )
        )
    return found


def _experts(rows: Rows) -> Any:
    """As `TokenSequence.experts`."""
    import numpy as np

    if (last := rows.last) is None or not rows.whole:
        return None
    return np.frombuffer(rows.data, "<u2" if last.wide else "u1").reshape(-1, last.layers, last.top_k)


def _check(where: str, prompt: bytes, ids: bytes, log_probs: bytes) -> None:
    if ids and not prompt:
        raise TaskError(
            f"{where} has generation_token_ids and no prompt_token_ids, without which it would be trained on "
            "as the answer to nothing: its engine does not give them; vLLM does"
        )
    if len(ids) != len(log_probs):
        raise TaskError(
            f"{where} has {len(ids) // ID_BYTES} generated tokens and "
            f"{len(log_probs) // ID_BYTES} log-probabilities"
        )

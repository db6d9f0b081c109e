"""Token sequences to train on, made of a result row: what the engine saw and sampled, as numpy arrays.

The last output item of each model call carries the call's token ids. Calls follow each other in one sequence
as long as each prompt begins with all ids before it. Where one does not (the engine's chat template dropped
thinking, or wrote a tool call in another way), the next sequence starts: a segment. Segments are found from
the ids themselves, so rows of NeMo Gym give the same sequences as rows of this runtime.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from gym_runtime.errors import TaskError, UsageError
from gym_runtime.messages.calls import WeightSpan

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class _Item(msgspec.Struct, frozen=True):
    prompt_token_ids: list[int] | None = None
    generation_token_ids: list[int] | None = None
    generation_log_probs: list[float | None] | None = None
    weight_versions: list[WeightSpan] = []


class _Response(msgspec.Struct, frozen=True):
    output: list[_Item] = []


class _Row(msgspec.Struct, frozen=True):
    response: _Response | None = None


_decode = msgspec.json.Decoder(_Row).decode


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class TokenSequence:
    """One sequence of token ids to train on: a first prompt, and everything that followed it.

    What followed are the policy's tokens, and between them those of tools' outputs and of the chat template.

    Attributes:
        prompt_ids: int64, shape (prompt tokens,).
        completion_ids: int64, shape (completion tokens,).
        log_probs: float32, shape (completion tokens,): natural logarithms, as the engine reported them; 0.0
            where ``mask`` is False, NaN where the engine reported none.
        mask: bool, shape (completion tokens,): True where the policy sampled the token.
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


class _Segment:
    """A sequence that is being put together."""

    def __init__(self, prompt: list[int]) -> None:
        self.prompt = prompt
        self.ids: list[int] = []
        self.log_probs: list[float] = []
        self.mask: list[bool] = []
        self.turns: list[tuple[int, int]] = []
        self.weights: list[WeightSpan] = []

    def continues(self, prompt: list[int]) -> bool:
        """Whether a prompt begins with all ids so far."""
        first, rest = len(self.prompt), len(self.prompt) + len(self.ids)
        return prompt[:first] == self.prompt and prompt[first:rest] == self.ids

    def add(self, prompt: list[int], ids: list[int], log_probs: list[float], item: _Item) -> None:
        between = prompt[len(self.prompt) + len(self.ids) :]
        start = len(self.ids) + len(between)
        self.ids += between + ids
        self.log_probs += [0.0] * len(between) + log_probs
        self.mask += [False] * len(between) + [True] * len(ids)
        self.turns.append((start, len(self.ids)))
        for span in item.weight_versions:
            moved = WeightSpan(version=span.version, start=start + span.start, end=start + span.end)
            self.weights.append(moved)


def token_sequences(row: Raw | bytes, *, truncated: bool = False) -> list[TokenSequence]:
    """The token sequences of a result row, in order; without a model call, none.

    Args:
        truncated: a limit ended the rollout.

    Raises:
        UsageError: the row's model calls carry no token ids; or numpy is not installed.
        TaskError: the row is not one, or an item's ids and log-probabilities do not belong together.
    """
    try:
        import numpy as np
    except ModuleNotFoundError as error:
        what = "token sequences need the package numpy: pip install 'gym-runtime[numpy]'"
        raise UsageError(what) from error
    try:
        response = _decode(row).response
    except msgspec.DecodeError as error:
        raise TaskError(f"not a result row: {error}") from error
    segments: list[_Segment] = []
    items = response.output if response is not None else []
    for number, item in enumerate(items):
        ids = item.generation_token_ids
        if not ids:
            continue
        prompt, log_probs = _checked(number, item, ids)
        if not segments or not segments[-1].continues(prompt):
            segments.append(_Segment(prompt))
        segments[-1].add(prompt, ids, log_probs, item)
    if items and not segments:
        raise UsageError("the row has no token ids: make its rollout with return_tokens=True")
    return [
        TokenSequence(
            prompt_ids=np.array(one.prompt, np.int64),
            completion_ids=np.array(one.ids, np.int64),
            log_probs=np.array(one.log_probs, np.float32),
            mask=np.array(one.mask, np.bool_),
            turns=tuple(one.turns),
            weights=tuple(one.weights),
            segment=number,
            segments=len(segments),
            truncated=truncated and number == len(segments) - 1,
        )
        for number, one in enumerate(segments)
    ]


def _checked(number: int, item: _Item, ids: list[int]) -> tuple[list[int], list[float]]:
    """An item's prompt and log-probabilities.

    Raises:
        TaskError: there is no prompt, or not one log-probability per token.
    """
    if item.prompt_token_ids is None:
        raise TaskError(f"output item {number} has generation_token_ids and no prompt_token_ids")
    said: list[Any] = item.generation_log_probs or [None] * len(ids)
    if len(said) != len(ids):
        raise TaskError(
            f"output item {number} has {len(ids)} generated tokens and {len(said)} log-probabilities"
        )
    return item.prompt_token_ids, [math.nan if one is None else one for one in said]

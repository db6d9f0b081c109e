"""Rollouts as the columns that TRL takes of a ``rollout_func``."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Sequence
from typing import Any

from gym_runtime import Failed, RolloutRecord, Truncated
from gym_runtime.errors import NoWorker, UsageError
from gym_runtime.logs import logger
from gym_runtime.training import Credit, TokenSequence

from gym_trainers.training_rollouts import (
    NO_LOG_PROBS,
    main_one,
    only_seat,
    require_no_experts,
    why_failed,
)

Columns = dict[str, list[Any]]
_NAMES = (
    "prompt_ids", "completion_ids", "logprobs", "env_mask",
    "gym_reward", "gym_outcome", "gym_fields", "gym_versions",
)  # fmt: skip


class Batch:
    """The rollouts of a batch. Groups are converted as they arrive, while the trainer waits for others.

    Args:
        end: the token that replaces a rollout without tokens; TRL takes no empty completion.
        credit: which sequences are trained on; TRL takes one of them.
        seat: whose, of a rollout with several trained seats.
        apart: roles that another model has.
        log_probs: the trainer reads those of the engine.
    """

    def __init__(
        self,
        *,
        end: int,
        credit: Credit = "accepted",
        seat: str = "",
        apart: Container[str] = (),
        log_probs: bool = True,
    ) -> None:
        self._end, self._log_probs = end, log_probs
        self._credit: Credit = credit
        self._seat, self._apart = seat, apart
        self._groups: dict[int, list[tuple[Any, ...]]] = {}
        self._failures: Counter[str] = Counter()
        self._rewritten = self._readable = 0

    def __contains__(self, key: int) -> bool:
        return key in self._groups

    def add(self, key: int, records: Sequence[RolloutRecord]) -> None:
        """Take the rollouts of the group at a place in the batch."""
        self._groups[key] = [self._line(record) for record in records]

    def columns(self) -> Columns:
        """All rollouts, in the order of the groups' places; the log says which cannot be trained on.

        Raises:
            UsageError: the trainer reads log-probabilities, and the engine gave none.
        """
        if self._failures[NO_LOG_PROBS] and not self._readable:
            raise UsageError("the engine gives no log-probabilities, and GRPOTrainer needs them")
        lines = [line for key in sorted(self._groups) for line in self._groups[key]]
        for why, count in self._failures.items():
            logger().warning("rollouts without a reward", count=count, of=len(lines), why=why)
        if self._rewritten:
            logger().warning(
                "rollouts with several sequences: only one of each is trained on",
                count=self._rewritten,
                of=len(lines),
            )
        return {name: [line[place] for line in lines] for place, name in enumerate(_NAMES)}

    def _line(self, record: RolloutRecord) -> tuple[Any, ...]:
        seat = only_seat(record, self._seat, self._apart, "GRPOTrainer")
        reward = record.reward_of(seat)
        sequences, why = (
            _trained(record, self._credit, seat) if reward is not None else [],
            why_failed(record),
        )
        last = main_one(sequences) if sequences else None
        if last and self._log_probs and not all(map(math.isfinite, last.log_probs.tolist())):
            reward, last, why = None, None, NO_LOG_PROBS
        if last:
            self._readable += 1
            self._rewritten += len(sequences) > 1
            tokens = (last.prompt_ids, last.completion_ids, last.log_probs, last.mask.astype(int))
            values, versions = [array.tolist() for array in tokens], last.versions
        else:
            values, versions = [[self._end], [self._end], [0.0], [0]], []
        if reward is None:
            self._failures[why] += 1
        return (*values, reward, _outcome(record, reward), record.numbers, versions)


def _trained(record: RolloutRecord, credit: Credit, seat: str) -> list[TokenSequence]:
    found = [one for one in record.sequences(credit) if one.weight and one.seat == seat]
    require_no_experts(found, "TRL")
    return found


def found_no_engine(record: RolloutRecord) -> bool:
    """Whether a rollout failed because no worker served the model: one that died takes time to come back."""
    return (
        isinstance(record.outcome, Failed)
        and record.outcome.fault.name == NoWorker.__name__
        and record.outcome.fault.stage == "model"
    )


def _outcome(record: RolloutRecord, reward: float | None) -> str:
    if reward is None:
        return "failed"
    return "truncated" if isinstance(record.outcome, Truncated) else "completed"

"""Rewards that exist only for a whole group: what ``verify`` says of one rollout, and what compares them.

A verifier returns `Pending` instead of a verdict. When all rollouts of the task are there, or have failed for
good, the environment's ``compare`` gets them together, as `Candidates`, and returns their verdicts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw

from gym_runtime.environment.shapes import Task
from gym_runtime.environment.verdict import Verdict
from gym_runtime.errors import UNREADABLE, GymError, ResourceError
from gym_runtime.messages.calls import ComparedVerdict
from gym_runtime.messages.rollout_spec import Candidate

_encode = msgspec.json.Encoder().encode

T = TypeVar("T", bound=Task)
F = TypeVar("F")


class Candidates(Generic[T]):
    """The rollouts of one task that are compared, in the order of their ``rollout_index``; at least two.

    Attributes:
        task: the row, which they share.
        rollout_indices: which rollouts they are; those that failed are not among them.
    """

    def __init__(self, task: T, candidates: Sequence[Candidate]) -> None:
        self.task = task
        self.rollout_indices = [one.rollout_index for one in candidates]
        self._candidates = candidates

    def __len__(self) -> int:
        return len(self._candidates)

    def features(self, kind: type[F]) -> list[F]:
        """What ``verify`` returned for each of them, in their order.

        Args:
            kind: the type of the features.

        Raises:
            ResourceError: they are not of this type.
        """
        try:
            return [msgspec.json.decode(one.features, type=kind) for one in self._candidates]
        except UNREADABLE as error:
            raise ResourceError(f"the features are no {kind.__name__}: {error}", stage="compare") from error


CompareFunction = Callable[..., Awaitable[Sequence[Verdict | GymError]] | Sequence[Verdict | GymError]]
"""``compare(candidates, *roles)``: a verdict for each candidate, or why this one has none."""


def no_verdicts(problem: str) -> ResourceError:
    """The error of a ``compare`` that broke its contract."""
    return ResourceError(f"compare returned {problem}", stage="compare")


def as_features(features: Any) -> msgspec.Raw:
    """Features as JSON.

    Raises:
        ResourceError: they are not JSON.
    """
    try:
        return msgspec.Raw(msgspec.json.encode(features))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ResourceError(f"the features of Pending are not JSON: {error}", stage="verify") from error


def compared(verdict: object, rollout_index: int) -> ComparedVerdict:
    """What an environment's ``compare`` returned for one candidate, as it travels.

    Raises:
        ResourceError: it is not a verdict that may be given.
    """
    if isinstance(verdict, GymError):
        verdict.stage = verdict.stage or "compare"
        return ComparedVerdict(rollout_index=rollout_index, fault=verdict.fault())
    if not isinstance(verdict, Verdict):
        raise no_verdicts(f"{verdict!r} for a candidate; it must be a Verdict")
    try:
        verdict.checked()
        fields = {name: Raw(_encode(value)) for name, value in verdict.fields.items()}
    except ResourceError as error:
        raise ResourceError(error.message, stage="compare") from error
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise no_verdicts(f"fields that are not JSON: {error}") from error
    return ComparedVerdict(
        rollout_index=rollout_index, reward=verdict.reward, components=verdict.components, fields=fields
    )

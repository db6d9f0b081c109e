"""The comparison of a group: the rollouts of one task that get their rewards together."""

from __future__ import annotations

import msgspec
from msgspec import Raw

from gym_runtime.errors import Fault
from gym_runtime.messages.role_use import RoleAnswer, RoleUse


class GroupSpan(msgspec.Struct, frozen=True):
    """The rollouts of one task that are compared with each other, by their ``rollout_index``.

    Attributes:
        first: the lowest index.
        size: how many there are; their indices follow each other.
    """

    first: int
    size: int


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A rollout that takes part in a comparison; its ``features`` are what its verification returned."""

    rollout_index: int
    features: Raw


class ComparedVerdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a comparison says of one candidate: a reward with its reasons, or a fault.

    Attributes:
        reward: None exactly if there is a ``fault``.
        fields: values as JSON.
    """

    rollout_index: int
    reward: float | None = None
    components: dict[str, float] = {}
    fields: dict[str, Raw] = {}
    fault: Fault | None = None


class Comparison(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A comparison's result, with what models in roles answered for it."""

    verdicts: list[ComparedVerdict]
    role_use: dict[str, RoleUse] = {}
    role_answers: list[RoleAnswer] = []


def comparison_index(first: int) -> int:
    """The ``rollout_index`` of a comparison: negative, and its own among those of a task.

    Args:
        first: the lowest ``rollout_index`` of its candidates.
    """
    return -1 - first


def is_comparison(rollout_index: int | str) -> bool:
    """Whether an index, or the last token of a rollout's subject, is that of a comparison."""
    return int(rollout_index) < 0

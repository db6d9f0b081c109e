"""What models in roles answered for a rollout, and what that cost, as it travels and stands in the row."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Raw

from gym_runtime.statistics import bounded


class RoleUse(msgspec.Struct, frozen=True, kw_only=True):
    """What one role cost.

    Attributes:
        seconds: from the question to the answer, waiting for a free place included, over all calls.
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0

    def __add__(self, other: RoleUse) -> RoleUse:
        return RoleUse(
            calls=self.calls + other.calls,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            seconds=round(bounded(self.seconds + other.seconds), 6),
        )


def role_numbers(use: Mapping[str, RoleUse]) -> dict[str, float]:
    """What roles cost as numbers for metrics: ``judge_calls``, ``judge_input_tokens`` and so on."""
    return {
        f"{role}_{name}": float(value)
        for role, one in use.items()
        for name, value in msgspec.structs.asdict(one).items()
    }


def add_use(use: dict[str, RoleUse], more: Mapping[str, RoleUse]) -> None:
    """Add what roles cost to what they had cost before."""
    for role, one in more.items():
        before = use.get(role)
        use[role] = one if before is None else before + one


class RoleAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer.

    Attributes:
        digest: of the role, the parameters and the input; who asks the same again finds the answer by it.
        response: a Responses API response object.
    """

    role: str
    digest: str
    response: Raw

"""A small system with a judge."""

from __future__ import annotations

from typing import Any

import msgspec
from gym_runtime import (
    Environment,
    Model,
    Reply,
    Role,
    Task,
    Verdict,
)
from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.messages.outcomes import RolloutRecord
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_testing.small_system import (
    answer,
    environment,
    rollout_spec,
    row,
)

YES, NO = answer("[[A=B]]"), answer("[[A!=B]]")


async def compare(task: Task, reply: Reply, judge: Model) -> Verdict:
    said = await judge.ask(f"Is {reply.text} right?", system="You judge.", temperature=0.0)
    return Verdict(float("[[A=B]]" in said.text), fields={"cut": said.incomplete})


def judged(verify: Any = compare, *roles: Role | str, **more: Any) -> LoadedEnvironment:
    roles = roles or ("judge",)
    return environment(Environment(resource=verify, description="d", roles=roles, **more))


JUDGE = {"judge": "judge"}


def made(roles: dict[str, str] = JUDGE, **more: Any) -> RolloutSpec:
    return rollout_spec(row(), roles=roles, **more)


def about(record: RolloutRecord) -> dict[str, Any]:
    return msgspec.json.decode(record.row)["_gym"]

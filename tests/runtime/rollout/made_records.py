"""A record as a small system makes it."""

from __future__ import annotations

from typing import Any

import msgspec
from gym_runtime import Environment, Reply, Session, Task, Verdict, tool
from gym_runtime.messages.outcomes import RolloutRecord
from gym_testing.small_system import (
    Engine,
    answer,
    environment,
    rollout_spec,
    small_system,
)


class BenchTask(Task):
    goal: int = 0


class Bench(Session[BenchTask]):
    verdict = Verdict(1.0)

    @tool
    def work(self) -> int:
        return 1

    async def verify(self, reply: Reply) -> Verdict:
        return self.verdict


async def make(
    *turns: Any, fields: dict[str, Any] | None = None, verdict: Verdict | None = None, **more: Any
) -> RolloutRecord:
    bench = type("JudgedBench", (Bench,), {"verdict": verdict or Verdict(1.0)})
    row = msgspec.json.encode({"responses_create_params": {"input": "go"}, **(fields or {})})
    async with small_system() as system:
        await system.add_resource(environment(Environment(resource=bench, description=""), "sample"))
        await system.add_model(Engine(*(turns or [answer("done")])))
        await system.add_agent()
        (record,) = await system.make(rollout_spec(row, **more))
    return record


def row_of(record: RolloutRecord) -> dict[str, Any]:
    return msgspec.json.decode(record.row)

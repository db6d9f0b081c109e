"""A desk with tools, and what the engine was sent."""

from __future__ import annotations

from array import array
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from gym_runtime import Environment, Reply, Session, Task, Verdict, tool
from gym_runtime.messages import calls
from gym_runtime.messages.outcomes import RolloutRecord
from gym_testing.small_system import (
    SmallSystem,
    answer,
    environment,
    function_call,
    small_system,
)

LONG = "x" * 2000


class DeskTask(Task):
    pass


class Desk(Session[DeskTask]):
    @tool
    def work(self) -> str:
        return LONG

    async def verify(self, reply: Reply) -> Verdict:
        return Verdict(1.0)


def int32(*ids: int) -> bytes:
    return array("i", ids).tobytes()


def with_tokens(turn: calls.ModelAnswer, prompt: bytes, made: bytes, **more: Any) -> calls.ModelAnswer:
    tokens = calls.Tokens(prompt_ids=prompt, generation_ids=made, log_probs=bytes(len(made)), **more)
    return msgspec.structs.replace(turn, tokens=tokens)


def working(turns: int) -> list[calls.ModelAnswer]:
    return [answer(function_call("work", call_id=f"c{turn}")) for turn in range(turns)] + [answer("done")]


@asynccontextmanager
async def desk() -> AsyncGenerator[SmallSystem]:
    async with small_system() as system:
        await system.add_resource(environment(Environment(resource=Desk, description=""), "sample"))
        await system.add_agent()
        yield system


def about(record: RolloutRecord) -> dict[str, Any]:
    return msgspec.json.decode(record.row)["_gym"]

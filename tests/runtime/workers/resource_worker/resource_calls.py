"""A resource worker and calls to it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
from gym_runtime import Episode, Reply, Session, Step, Task, Verdict, tool
from gym_runtime.bus.interface import Bus
from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.environment.verdict import make_response
from gym_runtime.messages import calls
from gym_runtime.messages.responses import NULL
from gym_runtime.workers.resource_worker import ResourceWorker
from gym_testing.background import Mailbox
from gym_testing.memory import MemoryBroker
from gym_testing.small_system import row
from msgspec import Raw
from runtime.workers.hosting import at_work, call, request

ROW = Raw(row(start=3))


class CounterTask(Task):
    start: int


class Counter(Session[CounterTask]):
    """Counts; notes its openings and closings in a ledger that a test puts there."""

    ledger: Mailbox[str]

    async def open(self) -> None:
        self.count = self.task.start
        self.ledger.put("open")

    @tool
    def add(self, amount: int) -> dict[str, int]:
        self.count += amount
        return {"count": self.count}

    @tool
    async def hang(self) -> str:
        self.ledger.put("hang")
        await anyio.sleep(3600)
        return "woken"

    async def verify(self, reply: Reply) -> Verdict:
        if reply.text == "crash":
            raise ZeroDivisionError("in the verifier")
        if reply.text == "nan":
            return Verdict(float("nan"))
        if reply.text == "object":
            return Verdict(1.0, fields={"extracted": object()})
        return Verdict(float(reply.text == str(self.count)), fields={"count": self.count})

    async def close(self) -> None:
        self.ledger.put("close")


class Dice(Episode[Task]):
    async def reset(self) -> str:
        return "roll"

    async def step(self, reply: Reply) -> Step:
        reward = float("nan") if reply.text == "nan" else 0.5
        return Step(observation="again", reward=reward, terminated=reply.text == "stop")


async def judge(task: CounterTask, reply: Reply) -> Verdict:
    return Verdict(float(reply.text == str(task.start)))


class RunningWorker:
    """A resource worker called ``one``, and calls to it."""

    def __init__(self, bus: Bus, worker: ResourceWorker) -> None:
        self.bus = bus
        self.worker = worker
        self._keys = 0

    async def reply(
        self, body: calls.ResourceCall, *, pool: str = "counter", key: str | None = None, within_s: float = 60
    ) -> calls.RpcReply:
        self._keys += 1
        asked = request(body, key=str(self._keys) if key is None else key, within_s=within_s)
        return await call(self.bus, f"resource.{pool}.one", asked)

    async def tool(self, name: str, arguments: str = "{}", *, task: Raw = NULL, **more: Any) -> str:
        body = calls.CallTool(session="s", task=task, name=name, arguments=arguments)
        reply = await self.reply(body, **more)
        assert reply.fault is None, reply.fault
        return calls.decode_tool_answer(reply.body).output

    async def judged(self, text: str, *, task: Raw = NULL, session: str = "s", **more: Any) -> dict[str, Any]:
        body = calls.Verify(session=session, task=task, response=Raw(make_response(text)))
        reply = await self.reply(body, **more)
        assert reply.fault is None, reply.fault
        return msgspec.json.decode(reply.body)


@asynccontextmanager
async def working(
    environments: dict[str, LoadedEnvironment], capacity: int = 100
) -> AsyncGenerator[RunningWorker]:
    async with MemoryBroker().connect() as bus:
        worker = ResourceWorker(bus, worker="one", environments=environments, capacity=capacity)
        async with at_work(worker):
            yield RunningWorker(bus, worker)

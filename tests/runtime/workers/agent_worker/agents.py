"""Agents and systems for the tests of agent workers."""

from __future__ import annotations

from typing import Any

import anyio
import msgspec
from gym_runtime import Reply, Session, Task, Verdict, tool
from gym_runtime.bus.interface import QueueDepth
from gym_runtime.messages.outcomes import Failed, RolloutRecord
from gym_testing.background import Mailbox
from gym_testing.small_system import (
    Engine,
    SmallSystem,
    Turn,
    rollout_spec,
    row,
)

NOTHING = QueueDepth(waiting=0, in_flight=0)


class DeskTask(Task):
    wanted: str = "done"


class Desk(Session[DeskTask]):
    """Notes what happens to it where the test sees it."""

    ledger: Mailbox[str]

    async def open(self) -> None:
        self.ledger.put("open")

    @tool
    def work(self) -> str:
        self.ledger.put("work")
        return "worked"

    @tool
    async def hang(self) -> None:
        self.ledger.put("hang")
        await anyio.sleep_forever()

    async def verify(self, reply: Reply) -> Verdict:
        if reply.text == "crash":
            raise ZeroDivisionError("in the verifier")
        if reply.text == "nan":
            return Verdict(float("nan"))
        if reply.text == "wait":
            await anyio.sleep_forever()
        return Verdict(float(reply.text == self.task.wanted), fields={"text": reply.text})

    async def close(self) -> None:
        self.ledger.put("close")


async def make(system: SmallSystem, *turns: Turn, **more: Any) -> RolloutRecord:
    """One rollout with one worker of each kind."""
    await system.add_model(Engine(*turns))
    await system.add_agent()
    (record,) = await system.make(rollout_spec(row(), **more))
    await settled_depth(system)
    return record


async def settled_depth(system: SmallSystem, expected: QueueDepth = NOTHING) -> None:
    with anyio.fail_after(15):
        while await system.bus.depth("agent-tool_loop") != expected:
            await anyio.sleep(0.01)


def row_of(record: RolloutRecord) -> dict[str, Any]:
    return msgspec.json.decode(record.row)


def fault_of(record: RolloutRecord) -> tuple[str, str, bool]:
    assert isinstance(record.outcome, Failed)
    return record.outcome.fault.kind, record.outcome.fault.stage, record.outcome.fault.retryable


def message_of(record: RolloutRecord) -> str:
    assert isinstance(record.outcome, Failed)
    return record.outcome.fault.message

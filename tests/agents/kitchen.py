"""A kitchen with tools, and rollouts in it."""

from __future__ import annotations

from typing import Any

import anyio
import msgspec
from gym_runtime import Environment, Reply, Session, Task, Text, ToolError, Verdict, tool
from gym_runtime.messages.outcomes import RolloutRecord
from gym_testing.background import Mailbox
from gym_testing.small_system import (
    Engine,
    Item,
    environment,
    function_call,
    rollout_spec,
    small_system,
)


class Kitchen(Session[Task]):
    """Tools that do well, badly, and slowly."""

    ledger: Mailbox[str]

    async def open(self) -> None:
        self.ledger.put("open")

    @tool
    def add(self, amount: int) -> dict[str, int]:
        self.ledger.put("add")
        return {"amount": amount}

    @tool
    def say(self, text: str) -> str:
        return text

    @tool
    def write(self) -> Text:
        return Text("as it is")

    @tool
    def nothing(self) -> None:
        return None

    @tool
    def refuse(self) -> str:
        raise ToolError("ask politely")

    @tool
    def crash(self) -> str:
        raise ZeroDivisionError("in the tool")

    @tool
    async def cook(self, minutes: float) -> float:
        await anyio.sleep(60 * minutes)
        self.ledger.put("cooked")
        return minutes

    async def verify(self, reply: Reply) -> Verdict:
        return Verdict(1.0, fields={"seen": len(reply.items)})


class Played:
    """A rollout that was played to its end."""

    def __init__(self, record: RolloutRecord, engine: Engine, ledger: Mailbox[str]) -> None:
        self.record = record
        self.row: dict[str, Any] = msgspec.json.decode(record.row)
        self.engine = engine
        self.ledger = ledger.items

    @property
    def output(self) -> list[Any]:
        """The transcript, shortened: texts of messages, names of calls, outputs of tools."""
        return [short(item) for item in self.row["response"]["output"]]

    def inputs(self) -> list[list[Any]]:
        """What the model was shown at each call."""
        return [
            [short(msgspec.json.decode(item)) for item in call.input] for call, _ in self.engine.calls.items
        ]


def short(item: Item) -> Any:
    match item.get("type", "message"):
        case "message":
            content = item["content"]
            return content if isinstance(content, str) else content[0]["text"]
        case "reasoning":
            return "…"
        case "function_call":
            return f"{item['name']}()"
        case _:
            return (item["call_id"], item["output"])


async def play(*turns: Any, parallel_tools: bool = False, row: bytes = b"", **more: Any) -> Played:
    ledger: Mailbox[str] = Mailbox()
    kitchen = type("NotedKitchen", (Kitchen,), {"ledger": ledger})
    engine = Engine(*turns)
    row = row or b'{"responses_create_params": {"input": "cook"}}'
    async with small_system() as system:
        await system.add_resource(environment(Environment(resource=kitchen, description=""), "sample"))
        await system.add_model(engine)
        await system.add_agent()
        (record,) = await system.make(rollout_spec(row, parallel_tools=parallel_tools, **more))
    return Played(record, engine, ledger)


ADD_1 = function_call("add", '{"amount": 1}', "c1")

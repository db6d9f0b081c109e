"""What the tests of tau2-bench's bank share: its example rows, and calls of its tools."""

from __future__ import annotations

import json
from typing import Any

from gym_resources.tau2.banking import Bank, BankingTask
from gym_runtime.environment import catalogue

NAME = "tau2_banking"
Fields = dict[str, Any]


def example(number: int, **criteria: Any) -> Fields:
    row = json.loads(catalogue.environment(NAME).examples.read_text("utf-8").splitlines()[number - 1])
    row["task"]["evaluation_criteria"] |= criteria
    return row


def task(row: Fields) -> BankingTask:
    found = catalogue.environment(NAME).resource.task(json.dumps(row).encode())
    assert isinstance(found, BankingTask)
    return found


def bank(row: Fields | None = None) -> Bank:
    found = task(row or example(1, actions=[]))
    return Bank(found, found.library())


async def use(on: Bank, name: str, arguments: Fields) -> str:
    """The answer of a tool that is unlocked and called."""
    await on.call("assistant", "unlock_discoverable_agent_tool", json.dumps({"agent_tool_name": name}))
    through = {"agent_tool_name": name, "arguments": json.dumps(arguments)}
    return await on.call("assistant", "call_discoverable_agent_tool", json.dumps(through))


def stored(on: Bank, table: str) -> list[Fields]:
    """What is new or changed in a table."""
    return [record for (where, _), record in on.state.items() if where == table]

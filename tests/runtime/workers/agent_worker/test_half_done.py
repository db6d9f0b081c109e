"""A tool call that an agent worker's end cancels in its middle."""

from __future__ import annotations

import anyio
import pytest
from gym_runtime import Environment, Reply, Session, Task, Verdict, tool
from gym_testing.background import Mailbox
from gym_testing.small_system import (
    Engine,
    SmallSystem,
    answer,
    environment,
    function_call,
    rollout_spec,
    row,
)

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("replayable", [True, False])
@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_the_first_half_of_a_call_is_not_done_twice(
    system: SmallSystem, replayable: bool, how: str
) -> None:
    """Another attempt would go on with the session, make the call again, and judge what never was.

    The end of an agent worker is no failure of the rollout, so that one attempt is enough.
    """
    begun: Mailbox[str] = Mailbox()
    go_on = anyio.Event()

    class Bank(Session[Task]):
        async def open(self) -> None:
            self.source, self.target = 10, 0

        @tool
        async def move(self) -> str:
            """Move one, in two steps; the second call waits between them."""
            self.source -= 1
            begun.put("")
            if len(begun.items) == 2:
                await go_on.wait()
            self.target += 1
            return f"{self.source} {self.target}"

        async def verify(self, reply: Reply) -> Verdict:
            return Verdict(float(self.source + self.target))

    bank = environment(Environment(resource=Bank, description="A bank.", replayable=replayable), "bank")
    await system.add_resource(bank, name="bank")
    await system.add_model(
        Engine(answer(function_call("move", "{}")), answer(function_call("move", "{}")), answer("done"))
    )
    await system.add_agent(name="first")
    await system.enqueue(rollout_spec(row(), environment="bank", replayable=replayable, max_attempts=1))
    await begun.until(2)
    getattr(system, how)("first")
    await system.add_agent(name="second")
    go_on.set()
    (record,) = await system.records(1)
    assert record.reward == 10.0


@pytest.mark.parametrize("order", [("slow", "quick"), ("quick", "slow")])
async def test_calls_of_one_turn_are_all_made_in_the_session_that_follows(
    system: SmallSystem, order: tuple[str, str]
) -> None:
    """One of them is half done. The other session is on the same worker, and the old one still answers."""
    begun: Mailbox[str] = Mailbox()
    go_on = anyio.Event()

    class Both(Session[Task]):
        async def open(self) -> None:
            self.done: list[str] = []

        @tool
        async def look(self) -> str:
            """Change nothing."""
            return "there"

        @tool
        async def slow(self) -> str:
            """Wait, then note it."""
            begun.put("slow")
            await go_on.wait()
            self.done.append("slow")
            return "slow"

        @tool
        async def quick(self) -> str:
            """Note it."""
            self.done.append("quick")
            begun.put("quick")
            return "quick"

        async def verify(self, reply: Reply) -> Verdict:
            return Verdict(float(sorted(self.done) == ["quick", "slow"]))

    both = environment(Environment(resource=Both, description="Two tools.", parallel_tools=True), "both")
    await system.add_resource(both, name="both")
    turns = answer(function_call("look")), answer(*map(function_call, order))
    await system.add_model(Engine(*turns, by_attempt={2: [answer("done")]}))
    await system.add_agent(name="first")
    await system.enqueue(rollout_spec(row(), environment="both", parallel_tools=True))
    await begun.until(2)
    system.stop("first")
    await system.add_agent(name="second")
    go_on.set()
    (record,) = await system.records(1)
    assert record.reward == 1.0

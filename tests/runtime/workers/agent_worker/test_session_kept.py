"""A rollout keeps its session: through a drain, a client's absence, a long wait, and a failed rebuilding."""

from __future__ import annotations

from typing import Any, ClassVar

import anyio
import pytest
from gym_runtime import Environment, Reply, Session, Task, Verdict, tool
from gym_runtime.adapters import CallContext, ModelAnswer, ModelCall
from gym_runtime.client import Client
from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.errors import ServiceUnavailable
from gym_runtime.messages.outcomes import Completed, RolloutRecord
from gym_runtime.timing import SESSIONS_SWEPT_S
from gym_runtime.workers.resource_worker import SESSION_KEPT_S
from gym_testing.background import hosting
from gym_testing.small_system import (
    Engine,
    SmallSystem,
    answer,
    environment,
    function_call,
    rollout_spec,
    row,
    small_system,
)
from runtime.workers.agent_worker.agents import row_of

pytestmark = pytest.mark.anyio

CALLS = 4


class Tally(Session[Task]):
    """Counts its calls; its reward is how many this session had."""

    opened: ClassVar[list[int]]
    outage: ClassVar[list[int]]

    async def open(self) -> None:
        self.count = 0
        self.opened.append(1)

    @tool
    async def increment(self) -> str:
        if self.count == 1 and self.outage:
            self.outage.pop()
            raise ServiceUnavailable("down for a moment", retryable=True)
        self.count += 1
        return str(self.count)

    async def verify(self, reply: Reply) -> Verdict:
        return Verdict(float(self.count))


class Slow(Engine):
    """Calls the tool `CALLS` times, and takes two seconds for each turn."""

    held = ""

    async def respond(self, call: ModelCall, context: CallContext) -> ModelAnswer:
        called = sum(b"function_call_output" in bytes(item) for item in call.input)
        self.calls.put((call, context))
        await anyio.sleep(2)
        return answer(function_call("increment", call_id=f"c{called}") if called < CALLS else "done")


def tally(*, replayable: bool = False) -> LoadedEnvironment:
    kind = type("ThisTally", (Tally,), {"opened": [], "outage": []})
    return environment(Environment(resource=kind, description="counts", replayable=replayable))


def of(known: LoadedEnvironment, name: str) -> list[int]:
    return known.resource.session_type.__dict__[name]


def assert_one_session(record: RolloutRecord, known: LoadedEnvironment) -> None:
    assert (record.outcome, record.reward) == (Completed(), float(CALLS))
    assert len(of(known, "opened")) == 1
    assert "started_anew" not in row_of(record)["_gym"]


async def test_a_session_that_was_not_rebuilt_to_the_end_is_not_used() -> None:
    known = tally(replayable=True)

    class Killing(Slow):
        killed = False

        async def respond(self, call: ModelCall, context: CallContext) -> ModelAnswer:
            if len(self.calls.items) == 2 and not self.killed:
                self.killed = True
                await system.add_resource(known, name="resource-2")
                system.kill("resource-1")
                of(known, "outage").append(1)
            return await super().respond(call, context)

    async with small_system() as system:
        await system.add_resource(known)
        await system.add_model(Killing())
        await system.add_agent()
        (record,) = await system.make(rollout_spec(row()))
    assert (record.outcome, record.reward) == (Completed(), float(CALLS))
    assert not of(known, "outage")


async def test_a_drain_leaves_a_session_that_cannot_be_repeated() -> None:
    known, engine = tally(), Slow()
    async with small_system() as system:
        await system.add_resource(known)
        await system.add_model(engine)
        await system.add_agent(name="agent-0")
        await system.enqueue(rollout_spec(row(), replayable=False))
        for number in range(2):
            await engine.calls.until(2 * number + 2)
            await system.add_agent(name=f"agent-{number + 1}")
            system.stop(f"agent-{number}")
        (record,) = await system.records(1)
    assert_one_session(record, known)


async def made(system: SmallSystem, disturb: Any, **more: Any) -> RolloutRecord:
    """A rollout of a client with its own connection, and what happens meanwhile."""
    found: list[RolloutRecord] = []
    async with system.broker.connect("trainer") as bus, hosting() as tasks:
        gym = Client(bus, tasks)
        async with gym.standing_run(environment="sample", **more) as run, anyio.create_task_group() as group:

            async def one() -> None:
                found.append(await run.rollout(row()))

            group.start_soon(one)
            await disturb(gym, run.run)
    return found[0]


async def test_a_client_that_reconnects_leaves_a_session_that_cannot_be_repeated() -> None:
    known, engine = tally(), Slow()
    async with small_system() as system:
        await system.add_resource(known)
        await system.add_model(engine)
        await system.add_agent()

        async def away(gym: Client, run: str) -> None:
            await engine.calls.until(2)
            system.broker["trainer"].cut()
            await anyio.sleep(3)
            system.broker["trainer"].mend()

        record = await made(system, away)
    assert_one_session(record, known)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["paused", "held"])
async def test_a_session_outlives_a_wait_that_is_longer_than_the_time_limit(how: str) -> None:
    known, engine = tally(), Slow()
    limit_s = 60.0
    async with small_system() as system:
        resource = await system.add_resource(known)
        await system.add_model(engine)
        await system.add_agent()

        async def wait(gym: Client, run: str) -> None:
            await engine.calls.until(2)
            engine.held = "full" if how == "held" else ""
            if how == "paused":
                await gym.pause(run)
            await anyio.sleep(limit_s + SESSION_KEPT_S + 2 * SESSIONS_SWEPT_S)
            assert len(resource.sessions) == 1
            engine.held = ""
            await gym.resume(run)

        record = await made(system, wait, timeout_s=limit_s)
        assert_one_session(record, known)
        # Once it is over, the session goes.
        await anyio.sleep(limit_s + SESSION_KEPT_S + 2 * SESSIONS_SWEPT_S)
        assert not len(resource.sessions)

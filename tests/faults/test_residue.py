"""What the broker still holds when a run is over, however it ended: the summaries of runs, and nothing else.

Real workers on a real broker, with payloads that travel by reference in tasks, requests, journal and results.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Any, cast

import anyio
import msgspec
import pytest
from gym_runtime.bus import nats
from gym_runtime.bus.blobs import SMALL_INLINE_BYTES
from gym_runtime.bus.nats import NatsBus
from gym_runtime.bus.streams import LIFE_S
from gym_runtime.client import Client, RunInfo, runs
from gym_runtime.environment import catalogue
from gym_runtime.files.rows import expand
from gym_runtime.messages.outcomes import Cancelled, Completed, RolloutRecord
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.rollout.journal import BLOCK
from gym_runtime.system.private_broker import Broker
from gym_runtime.workers import run_controls
from gym_testing.background import Mailbox, hosting
from gym_testing.small_system import Engine, Hang, SmallSystem, answer, function_call
from time_limits import busy

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(120)]

NAME = "example_session_state_mgmt"
LARGE = "x" * (SMALL_INLINE_BYTES + 1000)
CALL = function_call("increment_counter", '{"count": 1}')
DONE = (answer(CALL, LARGE), answer("done", LARGE))
HANG = (answer(CALL, LARGE), Hang())
STREAMS = ("TASKS", "ROLLOUTS", "JOURNAL", "BLOBS", "RUNS")
PREFIX = "gym"


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(autouse=True)
def little_inline(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is larger than `SMALL_INLINE_BYTES` travels by reference, as at a broker with small buffers."""
    monkeypatch.setattr("gym_runtime.bus.blobs.ROOMY_PAYLOAD_BYTES", 1 << 40)


class Buses:
    """Connections to a NATS broker, by the names of their workers."""

    def __init__(self, url: str) -> None:
        self.url = url

    def connect(self, name: str) -> AbstractAsyncContextManager[NatsBus]:
        return nats.connect(self.url, name=name)


class Scene:
    def __init__(self, url: str, bus: NatsBus, gym: Client, engine: Engine) -> None:
        self.url = url
        self.bus = bus
        self.gym = gym
        self.engine = engine

    async def publish(self, run: str, count: int = 2) -> RunInfo:
        info = RunInfo(run=run, total=count, environments=[NAME], agents=["tool_loop"])
        await self.gym.driver.open_run(info)
        await self.gym.driver.publish(tasks(run, count))
        return info

    async def stored(self) -> dict[str, tuple[int, dict[str, int]]]:
        """The bytes and the subjects of each stream that holds something."""
        found: dict[str, tuple[int, dict[str, int]]] = {}
        for stream in STREAMS:
            body = json.dumps({"subjects_filter": ">"}).encode()
            said = await self.bus._link.ask(f"$JS.API.STREAM.INFO.{PREFIX}_{stream}", body, within_s=5)
            state = json.loads(said.payload)["state"]
            if state["bytes"] or state["messages"]:
                found[stream] = (state["bytes"], state.get("subjects", {}))
        return found

    async def queues(self) -> list[str]:
        """The names of the consumers of tasks."""
        said = await self.bus._link.ask(f"$JS.API.CONSUMER.NAMES.{PREFIX}_TASKS", b"", within_s=5)
        return sorted(json.loads(said.payload)["consumers"] or [])

    async def only_summaries_of(self, *names: str) -> None:
        """Return when the broker holds the summaries of these runs and nothing else.

        Workers hear of the end when it has come, so what they free may follow in a moment.
        """
        want = {f"{PREFIX}.runs.{name}": 1 for name in names}
        left: dict[str, tuple[int, dict[str, int]]] = {}
        with anyio.move_on_after(10 * busy()):
            while True:
                left = await self.stored()
                if list(left) == ["RUNS"] and left["RUNS"][1] == want:
                    break
                await anyio.sleep(0.02)
        assert list(left) == ["RUNS"], left
        assert left["RUNS"][1] == want
        assert left["RUNS"][0] < 1_200 * len(names)
        assert "active" not in [info.state for info in await self.gym.runs()]
        # Nothing comes after it.
        await anyio.sleep(0.5)
        assert await self.stored() == left


def tasks(run: str, count: int) -> list[RolloutSpec]:
    return list(expand([msgspec.json.encode(row) for row in rows(count)], run=run, environment=NAME))


def rows(count: int) -> list[dict[str, Any]]:
    prompt = {"input": f"go {LARGE}"}
    return [
        {"responses_create_params": prompt, "initial_count": 3, "expected_count": 4, "n": n}
        for n in range(count)
    ]


@asynccontextmanager
async def scene(broker: Broker, *turns: Any) -> AsyncGenerator[Scene]:
    engine, buses = Engine(*turns), Buses(broker.url)
    async with buses.connect("client") as bus, hosting() as hosted:
        system = SmallSystem(cast(Any, buses), cast(Any, bus), hosted)
        await system.add_resource(catalogue.environment(NAME))
        await system.add_model(engine)
        await system.add_agent()
        yield Scene(broker.url, bus, Client(bus, hosted), engine)


async def test_nothing_is_left_of_a_finished_run(broker: Broker) -> None:
    async with scene(broker, *DONE) as here:
        records = [record async for record in here.gym.rollouts(rows(3), environment=NAME, repeats=2)]
        assert [type(record.outcome) for record in records] == [Completed] * 6
        await here.only_summaries_of(records[0].run)


async def test_no_queue_is_left_of_a_run_with_a_share(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_controls, "LOOK_S", 0.4)
    async with scene(broker, *DONE) as here:
        async with aclosing(here.gym.rollouts(rows(3), environment=NAME, share=2)) as made:
            records = [await anext(made)]
            assert len(await here.queues()) == 2  # the agent's and the run's
            records += [record async for record in made]
        await here.only_summaries_of(records[0].run)
        with anyio.fail_after(15 * busy()):
            while await here.queues() != ["agent-tool_loop"]:
                await anyio.sleep(0.1)
        # The next run with a share has its queue.
        again = [record async for record in here.gym.rollouts(rows(3), environment=NAME, share=2)]
        assert [type(record.outcome) for record in again] == [Completed] * 3


async def test_nothing_is_left_of_a_run_that_its_client_left(broker: Broker) -> None:
    async with scene(broker, *HANG) as here:
        async with anyio.create_task_group() as group:

            async def follow() -> None:
                async for _ in here.gym.rollouts(rows(3), environment=NAME):
                    pass

            group.start_soon(follow)
            await here.engine.calls.until(6)
            held = await here.stored()
            assert {"ROLLOUTS"} == set(STREAMS) - set(held)
            group.cancel_scope.cancel()
        (info,) = await here.gym.runs()
        await here.only_summaries_of(info.run)


async def test_nothing_is_left_of_a_cancelled_run_that_no_client_follows(broker: Broker) -> None:
    async with scene(broker, *HANG) as here:
        await here.publish("one", 12)
        await here.engine.calls.until(16)
        await here.gym.cancel("one")
        await here.only_summaries_of("one")
        assert (await here.gym.run("one")).state == "cancelled"


async def test_who_follows_a_cancelled_run_has_its_rows_and_then_nothing_is_left(broker: Broker) -> None:
    found: list[RolloutRecord] = []
    async with scene(broker, *HANG) as here, nats.connect(broker.url) as bus, hosting() as hosted:
        await here.publish("one", 3)

        async def collect() -> None:
            found.extend([record async for record in Client(bus, hosted).collect("one")])

        async with anyio.create_task_group() as group:
            group.start_soon(collect)
            await here.engine.calls.until(6)
            await here.gym.cancel("one")
        assert [record.outcome for record in found] == [Cancelled()] * 3
        await here.only_summaries_of("one")


async def test_nothing_is_left_of_a_published_run_that_was_collected(broker: Broker) -> None:
    async with scene(broker, *DONE) as here, nats.connect(broker.url) as bus, hosting() as hosted:
        info = await here.publish("one", 4)
        slow, fast = Client(bus, hosted), here.gym
        taken = slow.collect("one")
        first = await anext(taken)
        assert len([record async for record in fast.collect("one")]) == 4
        # Another client still reads, or has read all.
        await fast.driver.finish_run(info)
        others = [record async for record in taken]
        assert {first.task_index, *(record.task_index for record in others)} == {0, 1, 2, 3}
        await here.only_summaries_of("one")


CLIENT = f"""
import sys, anyio
from gym_runtime import connect
from gym_runtime.bus import blobs as inline

inline.ROOMY_PAYLOAD_BYTES = 1 << 40

async def main(url):
    prompt = {{"input": "x" * {SMALL_INLINE_BYTES + 1}}}
    row = {{"responses_create_params": prompt, "initial_count": 3, "expected_count": 4}}
    async with connect(url) as gym:
        async for record in gym.rollouts([row] * 3, environment="{NAME}"):
            pass

anyio.run(main, sys.argv[1])
"""


def start_client(url: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(CLIENT), url])


async def test_nothing_is_left_of_a_run_whose_client_died_once_it_is_given_up(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "CLIENT_DROPPED_S", 0.2)
    async with scene(broker, *HANG) as here:
        alive, dead = start_client(broker.url), start_client(broker.url)
        try:
            with anyio.fail_after(40 * busy()):
                while len(here.engine.calls.items) < 12:
                    await anyio.sleep(0.05)
            dead.send_signal(signal.SIGKILL)
            dead.wait()
            # Not yet: it could be resumed.
            await here.gym.driver.close_abandoned()
            assert [info.state for info in await here.gym.runs()] == ["active"] * 2
            await here.gym.driver.close_abandoned(older_than_s=0)
            assert sorted(info.state for info in await here.gym.runs()) == ["active", "cancelled"]
        finally:
            for process in (alive, dead):
                process.kill()
                process.wait()
        await here.gym.driver.close_abandoned(older_than_s=0)
        await here.only_summaries_of(*(info.run for info in await here.gym.runs()))


async def test_a_published_run_is_closed_when_all_that_was_stored_of_it_has_expired(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "CLIENT_DROPPED_S", 0.2)
    began_s = time.time() - LIFE_S["rollout"] - 60
    async with scene(broker, *DONE) as here:
        for name in ("expired", "waits", "made"):
            old = RunInfo(run=name, total=2, environments=[NAME], agents=["tool_loop"], created_s=began_s)
            await here.gym.driver.open_run(old)
        await here.gym.driver.publish([msgspec.structs.replace(tasks("waits", 1)[0], agent="not_served")])
        assert await here.bus.commit("rollout.made.0.0", b"{}")
        await here.gym.driver.open_run(RunInfo(run="young", total=2, created_s=time.time()))
        await here.gym.driver.open_run(RunInfo(run="unknown", total=2))
        await here.gym.driver.close_abandoned()
        closed = {info.run for info in await here.gym.runs() if info.state != "active"}
        assert closed == {"expired"}, "the others may still be collected"


async def test_what_comes_after_the_end_of_a_run_is_freed_when_the_next_one_begins(broker: Broker) -> None:
    async with scene(broker, *DONE) as here:
        await here.publish("cut-off")
        await here.gym.cancel("cut-off")
        await here.only_summaries_of("cut-off")
        # A worker that was cut off has not heard of it.
        assert await here.bus.commit("rollout.cut-off.0.0", b"{}")
        (record,) = [record async for record in here.gym.rollouts(rows(1), environment=NAME)]
        await here.only_summaries_of("cut-off", record.run)


async def test_nothing_is_left_after_many_runs_some_cancelled(broker: Broker) -> None:
    ended: Mailbox[str] = Mailbox()
    async with scene(broker, *DONE) as here:
        for number in range(12):
            if number % 3:
                records = [record async for record in here.gym.rollouts(rows(2), environment=NAME)]
                ended.put(records[0].run)
            else:
                await here.publish(f"run-{number}", 6)
                await here.gym.cancel(f"run-{number}")
                ended.put(f"run-{number}")
        await here.only_summaries_of(*ended.items)


async def test_a_standing_run_that_is_asked_for_one_rollout_at_a_time_keeps_few_journals(
    broker: Broker,
) -> None:
    async with scene(broker, *DONE) as here, here.gym.standing_run(environment=NAME) as run:
        for row in rows(2 * BLOCK + 2):
            await run.rollout(row)
        with anyio.fail_after(10 * busy()):
            while len(await here.bus.counts("journal.>")) > BLOCK:
                await anyio.sleep(0.02)


async def test_the_summaries_of_the_last_runs_stay_and_older_ones_go(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "KEPT_RUNS", 3)
    async with scene(broker, *DONE) as here:
        driver = here.gym.driver
        await driver.open_run(RunInfo(run="waits", total=1))
        for number in range(8):
            await driver.close_run(RunInfo(run=f"run-{number}", total=1))
        await driver.close_abandoned()
        assert [info.run for info in await here.gym.runs()] == ["waits", "run-5", "run-6", "run-7"]


async def test_collecting_one_run_after_another_deletes_old_summaries(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "KEPT_RUNS", 1)
    async with scene(broker, *DONE) as here:
        for number in range(3):
            await here.gym.driver.close_run(RunInfo(run=f"run-{number}", total=1))
        await here.publish("last")
        assert len([record async for record in here.gym.collect("last")]) == 2
        with anyio.fail_after(10 * busy()):
            while "run-1" in [info.run for info in await here.gym.runs()]:
                await anyio.sleep(0.02)

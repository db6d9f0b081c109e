"""Who stops when: a client that is gone, a cancellation heard of late, a hop that stalls."""

from __future__ import annotations

from typing import Any

import anyio
import msgspec
import pytest
from gym_runtime import clock
from gym_runtime.client import Client
from gym_runtime.client.run import Run
from gym_runtime.files.rows import expand
from gym_runtime.messages import calls
from gym_runtime.messages.outcomes import Cancelled, Completed, Failed, RolloutRecord
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.messages.stored_records import RunInfo
from gym_runtime.rpc.lost import STALL_LOOK_S, STALL_S, InFlightRequest, Pace, Stalls
from gym_runtime.timing import CLIENT_DROPPED_S, SESSIONS_SWEPT_S
from gym_runtime.workers.adapter import CallContext
from gym_runtime.workers.resource_worker import SESSION_IDLE_S, SESSION_KEPT_S
from gym_testing.background import Mailbox, background, hosting, settled
from gym_testing.memory import MemoryBus
from gym_testing.small_system import Engine, Hang, answer
from msgspec import Raw
from runtime.client.running_client import CALL, NAME, NOTHING, RunningClient, rows, running_client
from tables import table

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]

WITHIN_S = 2.0


def tasks(count: int, **more: Any) -> list[RolloutSpec]:
    lines = [msgspec.json.encode(row) for row in rows(count)]
    return list(expand(lines, run="one", environment=NAME, **more))


class BreakableClient:
    """A client of an attached run, on a connection that a test can break."""

    def __init__(self, here: RunningClient, count: int) -> None:
        self.records: Mailbox[RolloutRecord] = Mailbox()
        self.line: MemoryBus | None = None
        self._here = here
        self._count = count

    async def run(self) -> None:
        async with self._here.system.broker.connect("leaving") as bus, hosting() as group:
            self.line = bus
            gym = Client(bus, group)
            info = RunInfo(run="one", total=self._count)
            run = Run(gym.driver, info, self.records.put, total=self._count)
            async with run.attached():
                await gym.driver.publish(tasks(self._count, attached=True))
                run.finished = await run.follow()


# -- a client that is gone ------------------------------------------------------------------------------


async def test_when_a_client_is_gone_its_rollouts_stop_within_two_seconds_and_leave_nothing() -> None:
    async with running_client(answer(CALL), Hang()) as here:
        client = BreakableClient(here, 4)
        async with background(client.run):
            await here.engine.calls.until(8)
            assert len(here.resource.sessions) == 4
            here.system.broker["leaving"].cut()
            gone_s = clock.monotonic()
            await here.engine.cancelled.until(4)
            await settled(lambda: not len(here.resource.sessions), within_s=WITHIN_S)
            assert clock.monotonic() - gone_s <= WITHIN_S
            await anyio.sleep(CLIENT_DROPPED_S + 10)
            assert await here.gym.driver.bus.depth("agent-tool_loop") == NOTHING
            assert len(here.engine.calls.items) == 8
            assert await here.gym.driver.bus.counts("rollout.one.>") == {}


async def test_a_client_that_comes_back_gets_every_record() -> None:
    # The first turn is in the journal.
    engine = Engine(answer("done"), by_attempt={1: [answer(CALL), Hang()]})
    async with running_client(engine=engine) as here:
        client = BreakableClient(here, 3)
        async with background(client.run):
            await here.engine.calls.until(6)
            here.system.broker["leaving"].cut()
            await here.engine.cancelled.until(3)
            here.system.broker["leaving"].mend()
            records = await client.records.until(3)
    assert {record.outcome for record in records} == {Completed()}
    assert {record.attempt for record in records} == {2}
    assert len(engine.calls.items) == 9


async def test_a_client_that_was_away_for_long_gets_every_record_and_no_turn_is_asked_twice() -> None:
    engine = Engine(answer("done"), by_attempt={1: [answer(CALL), Hang()], 2: [Hang()]})
    async with running_client(engine=engine) as here:
        client, line = BreakableClient(here, 3), here.system.broker
        async with background(client.run):
            await engine.calls.until(6)
            for calls_before in (6, 9):
                line["leaving"].cut()
                await engine.cancelled.until(calls_before - 3)
                await anyio.sleep(CLIENT_DROPPED_S + 30)
                assert len(engine.calls.items) == calls_before
                line["leaving"].mend()
                with anyio.fail_after(60):
                    await engine.calls.until(calls_before + 3)
            records = await client.records.until(3)
    assert {record.outcome for record in records} == {Completed()}
    assert {record.attempt for record in records} == {3}
    assert len(engine.calls.items) == 12


async def test_a_client_that_only_reconnects_costs_nothing() -> None:
    async with running_client(answer(CALL), Hang()) as here:
        client = BreakableClient(here, 2)
        async with background(client.run):
            await here.engine.calls.until(4)
            here.system.broker["leaving"].cut()
            await anyio.sleep(0.9)
            here.system.broker["leaving"].mend()
            await anyio.sleep(10)
            assert not here.engine.cancelled.items


async def test_the_rollouts_of_a_published_run_go_on_without_their_client() -> None:
    async with running_client(answer(CALL), Hang()) as here:
        await here.gym.driver.publish(here.tasks("one", 2))
        await here.engine.calls.until(4)
        await anyio.sleep(60)
        assert not here.engine.cancelled.items


# -- cancelled before the worker came ---------------------------------------------------------------------


@pytest.mark.parametrize("parts", [(0,), (0, 0)])
async def test_a_worker_that_comes_later_knows_what_was_cancelled(parts: tuple[int, ...]) -> None:
    async with running_client() as here:
        here.system.kill("agent-1")
        await settled(lambda: True)
        await here.gym.driver.open_run(RunInfo(run="one", total=1))
        await here.gym.cancel("one", *parts)
        await here.gym.driver.publish(here.tasks("one", 1))
        await here.system.add_agent(name="agent-2")
        (record,) = await here.system.records(1, "one")
        assert record.outcome == Cancelled()
        assert not here.engine.calls.items
        await here.gym.driver.close_run(RunInfo(run="one", total=1), state="cancelled")
        assert await here.gym.driver.bus.counts("runs.one.cancelled.>") == {}


async def test_what_is_published_for_a_run_that_was_cancelled_before_is_dropped() -> None:
    async with running_client() as here:
        here.system.kill("agent-1")
        await here.gym.driver.open_run(RunInfo(run="one", total=1))
        await here.gym.cancel("one")
        await here.gym.driver.publish(here.tasks("one", 1))
        await here.system.add_agent(name="agent-2")
        await emptied(here, "one")
        assert not here.engine.calls.items


# -- closed while a worker was away -----------------------------------------------------------------------


async def emptied(here: RunningClient, run: str) -> None:
    """Return when nothing waits or is worked on; nothing is stored of the run then."""
    with anyio.fail_after(600):
        while await here.gym.driver.bus.counts("task.>"):
            await anyio.sleep(0.1)
    for kind in ("rollout", "journal"):
        assert await here.gym.driver.bus.counts(f"{kind}.{run}.>") == {}


@pytest.mark.parametrize("durability", ["turn", "result"])
async def test_a_worker_that_was_away_while_its_run_was_closed_stores_nothing(durability: str) -> None:
    gate = anyio.Event()

    class Slow(Engine):
        async def respond(self, call: calls.ModelCall, context: CallContext) -> calls.ModelAnswer:
            found = await super().respond(call, context)
            await gate.wait()
            return found

    engine = Slow(answer(CALL), answer("done"))
    async with running_client(engine=engine) as here:
        info = RunInfo(run="one", total=1)
        await here.gym.driver.open_run(info)
        (task,) = here.tasks("one", 1)
        await here.gym.driver.publish([msgspec.structs.replace(task, durability=durability)])
        await engine.calls.until(1)
        here.system.broker["agent-1"].freeze()
        await here.gym.driver.close_run(info, state="cancelled")
        await anyio.sleep(60)
        gate.set()
        here.system.broker["agent-1"].thaw()
        await anyio.sleep(60)
        await emptied(here, "one")


async def test_a_name_of_a_closed_run_may_be_used_again() -> None:
    async with running_client() as here:
        for _ in range(2):
            info = RunInfo(run="one", total=1)
            await here.gym.driver.open_run(info)
            await here.gym.driver.publish(here.tasks("one", 1))
            (record,) = await here.system.records(1, "one")
            assert isinstance(record.outcome, Completed)
            await here.gym.driver.close_run(info)


# -- the watchdog -----------------------------------------------------------------------------------------


async def test_a_hop_that_stalls_is_named_once_for_all_who_wait(capsys: pytest.CaptureFixture[str]) -> None:
    async with running_client(answer(CALL), Hang()) as here:
        await here.gym.driver.publish(here.tasks("one", 5))
        await here.engine.calls.until(10)
        capsys.readouterr()
        await anyio.sleep(STALL_S + STALL_LOOK_S + 1)
        (line,) = [line for line in capsys.readouterr().err.splitlines() if "requests stall" in line]
        assert "request=\"model 'policy' (worker model-1)\"" in line
        assert "requests=5" in line


@table(
    ("pace", "waited_s", "stalled"),
    [
        (None, 290, 0),  # nothing was answered yet: a slow model may still be at its first answers
        (None, 310, 1),
        ((1, 100), 59, 0),
        ((1, 100), 61, 1),
        ((30, 100), 80, 0),  # nothing was answered for a while, but answers have taken 30 s
        ((30, 100), 91, 1),
        ((30, 20), 290, 0),  # the last answer came 20 s ago: this one waits behind others
        ((30, 20), 310, 1),
    ],
)
def test_a_slow_engine_is_no_stall(pace: tuple[float, float] | None, waited_s: float, stalled: int) -> None:
    hop = InFlightRequest("model", "policy", "model-1", "key")
    hop.since_s -= waited_s
    known = {} if pace is None else {("model", "policy"): Pace(pace[0], hop.since_s + waited_s - pace[1])}
    stalls = Stalls([hop], known)
    stalls.look()
    assert stalls.count == stalled


async def test_a_deadline_names_the_hop_that_took_it() -> None:
    async with running_client(answer(CALL), Hang()) as here:
        await here.gym.driver.publish(tasks(1, timeout_s=30, max_attempts=1))
        (record,) = await here.system.records(1, "one")
    assert isinstance(record.outcome, Failed)
    fault = record.outcome.fault
    assert (fault.name, fault.stage) == ("DeadlineExceeded", "model")
    assert "waited 30 s for model 'policy' (worker model-1)" in fault.message


# -- a session that was left behind -------------------------------------------------------------------------


@pytest.mark.parametrize("closed", [False, True])
async def test_a_session_whose_close_signal_was_lost_is_closed_when_its_rollout_is_over(closed: bool) -> None:
    async with running_client() as here:
        info = RunInfo(run="one", total=1)
        await here.gym.driver.open_run(info)
        opened = calls.OpenSession(session="left", task=Raw(msgspec.json.encode(rows(1)[0])))
        request = calls.Request(
            body=calls.pack(opened), deadline_s=clock.monotonic() + 3600, key="k", rollout="one.0.0"
        )
        await here.gym.driver.bus.request(
            f"resource.{NAME}", calls.encode_request(request), deadline_s=request.deadline_s
        )
        await anyio.sleep(SESSION_IDLE_S + 2 * SESSIONS_SWEPT_S)
        assert len(here.resource.sessions) == 1
        if closed:
            await here.gym.driver.close_run(info)
        else:
            await here.gym.driver.bus.commit("rollout.one.0.0", b"{}")
        await settled(lambda: not len(here.resource.sessions), within_s=2 * SESSIONS_SWEPT_S)


async def test_a_session_whose_rollout_is_a_callers_own_text_is_closed_after_its_deadline() -> None:
    async with running_client() as here:
        for session, rollout in (("odd", "no rollout"), ("spare", "")):
            opened = calls.OpenSession(session=session, task=Raw(msgspec.json.encode(rows(1)[0])))
            request = calls.Request(
                body=calls.pack(opened), deadline_s=clock.monotonic() + 10, key=session, rollout=rollout
            )
            await here.gym.driver.bus.request(
                f"resource.{NAME}", calls.encode_request(request), deadline_s=request.deadline_s
            )
        assert len(here.resource.sessions) == 2
        await settled(
            lambda: not len(here.resource.sessions), within_s=10 + SESSION_KEPT_S + SESSION_IDLE_S + 120
        )

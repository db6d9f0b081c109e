"""What each guard of the agent worker says of a delivered rollout."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest
from gym_runtime.bus.interface import Delivery, Incoming
from gym_runtime.messages.outcomes import Cancelled, Failed
from gym_runtime.messages.rollout_spec import Candidate, encode_spec
from gym_runtime.messages.stored_records import CLOSED, RunInfo, encode_run
from gym_runtime.rollout.account import Spent
from gym_runtime.rollout.rollout import Rollout
from gym_runtime.rpc.ask import Router
from gym_runtime.rpc.members import Heartbeat, announce, encode_heartbeat
from gym_runtime.rpc.quarantine import MAX_CRASHES, MAX_KILLS, ROLLOUT_ALONE_AT, Before
from gym_runtime.rpc.watch import Members
from gym_runtime.timing import CLIENT_DROPPED_S, CLIENT_RETURN_S, JOURNAL_FRESH_S
from gym_runtime.workers.fate import Drop, Fate, Fates, GiveBack, Verdict
from gym_runtime.workers.guards import ClientPresent, NotEnded, NotSuspect, StoredAlready
from gym_testing.background import Mailbox, background
from gym_testing.memory import MemoryBroker, MemoryBus
from gym_testing.small_system import rollout_spec, row
from msgspec import Raw

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]

STORED, OVER = Drop("its result is stored"), Drop("its run is over")
COMPARED = {"candidates": [Candidate(rollout_index=0, features=Raw(b"1"))]}


@pytest.fixture
async def bus() -> AsyncGenerator[MemoryBus]:
    async with MemoryBroker().connect() as bus:
        yield bus


class Endless:
    async def run(self, rollout: Rollout) -> None:
        await anyio.sleep_forever()


class Deliveries:
    """Rollouts as one agent worker gets them."""

    def __init__(self, bus: MemoryBus) -> None:
        self.fates = Fates()
        self._bus = bus
        self._arrived: Mailbox[Delivery] = Mailbox()

    async def pull(self) -> None:
        async def handle(delivery: Delivery) -> None:
            self._arrived.put(delivery)
            await anyio.sleep_forever()

        await self._bus.pull("task.tool_loop.>", consumer="agent-tool_loop", slots=16, handle=handle)

    async def fate(self, task: int = 0, *, attached: bool = False) -> Fate:
        spec = rollout_spec(row(), task=task, timeout_s=1.0, attached=attached)
        number = len(self._arrived.items)
        await self._bus.enqueue("task.tool_loop.sample.run", encode_spec(spec))
        delivery = (await self._arrived.until(number + 1))[number]
        fate = Fate(spec, delivery, Endless(), self._bus, Router(self._bus), worker="agent-1")
        self.fates.add(fate)
        return fate


@pytest.fixture
async def deliveries(bus: MemoryBus) -> AsyncGenerator[Deliveries]:
    deliveries = Deliveries(bus)
    await bus.open_queue("task.tool_loop.>", consumer="agent-tool_loop")
    async with background(deliveries.pull):
        yield deliveries


# -- stored already -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("deliveries", "more", "record", "state", "verdict"),
    [
        (1, {}, True, "finished", None),  # the first delivery asks the broker nothing
        (2, {}, False, "active", None),
        (2, {}, True, "active", STORED),
        (2, {}, False, "finished", OVER),
        (2, {}, False, "cancelled", OVER),
        (1, {"taken_up": True}, True, "active", STORED),
        (1, COMPARED, True, "active", STORED),
        (1, COMPARED, False, "active", None),
    ],
)
async def test_what_is_stored_or_over_is_not_run_again(
    bus: MemoryBus, deliveries: int, more: dict[str, Any], record: bool, state: str, verdict: Verdict | None
) -> None:
    await bus.append("runs.run", encode_run(RunInfo(run="run", total=1, state=state)))
    if record:
        await bus.commit("rollout.run.0.0", b"{}")
    assert await StoredAlready(bus).admit(rollout_spec(row(), **more), deliveries) == verdict


QUEUE, OWN = "task.tool_loop.sample.run", "task.=.tool_loop.run.0.0"


# -- the client -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attached", "client", "gone_s", "subject", "verdict"),
    [
        (False, "gone", 0.0, QUEUE, None),
        (True, "alive", 0.0, QUEUE, None),
        (True, "silent", 0.0, QUEUE, None),  # it may block its loop, or our own connection may be broken
        (True, "gone", 0.0, QUEUE, GiveBack(CLIENT_RETURN_S)),
        (True, "gone", CLIENT_DROPPED_S - 1, QUEUE, GiveBack(CLIENT_RETURN_S)),
        (True, "gone", CLIENT_DROPPED_S + 1, QUEUE, GiveBack(to=OWN)),
        (True, "gone", CLIENT_DROPPED_S + 1, OWN, GiveBack(CLIENT_DROPPED_S)),
    ],
)
async def test_an_attached_rollout_needs_its_client(
    bus: MemoryBus, attached: bool, client: str, gone_s: float, subject: str, verdict: Verdict | None
) -> None:
    guard, task = ClientPresent(bus, Members(bus), Fates()), rollout_spec(row(), attached=attached)
    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(anyio.create_task_group())
        heartbeat = encode_heartbeat(Heartbeat(worker="run", kind="client", pools=[]))

        def answer(asked: Incoming) -> None:
            if client == "alive":
                tasks.start_soon(bus.publish, asked.reply, heartbeat)

        if client != "gone":
            await stack.enter_async_context(bus.serve("alive.client.run", answer))
        if gone_s:
            await guard.admit(task, subject)
            await anyio.sleep(gone_s)
        assert await guard.admit(task, subject) == verdict


@pytest.mark.slow
async def test_a_second_short_absence_of_a_client_begins_at_zero(bus: MemoryBus) -> None:
    """In between, this worker had no task of the client's run."""
    members, task = Members(bus), rollout_spec(row(), attached=True)
    guard = ClientPresent(bus, members, Fates())
    heartbeat = Heartbeat(worker="run", kind="client", pools=[])
    async with background(members.follow, guard.watch):
        for _ in range(2):
            assert await guard.admit(task, QUEUE) == GiveBack(CLIENT_RETURN_S)
            async with background(lambda: announce(bus, lambda: heartbeat)):
                await anyio.sleep(10 * CLIENT_DROPPED_S)
            await anyio.sleep(CLIENT_DROPPED_S / 2)
        await guard.admit(task, QUEUE)
        await anyio.sleep(CLIENT_DROPPED_S + 1)
        assert await guard.admit(task, QUEUE) == GiveBack(to=OWN)


async def test_rollouts_that_their_client_has_stopped_are_not_given_back_when_it_leaves(
    bus: MemoryBus, deliveries: Deliveries, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = await deliveries.fate(attached=True)
    ended.stop()
    async with background(ClientPresent(bus, Members(bus), deliveries.fates).watch):
        await anyio.sleep(CLIENT_DROPPED_S)
    assert ended.instead is None
    assert "the client of a run is gone" not in "".join(capsys.readouterr())
    going_on = await deliveries.fate(1, attached=True)
    async with background(ClientPresent(bus, Members(bus), deliveries.fates).watch):
        await anyio.sleep(CLIENT_DROPPED_S)
    assert (ended.instead, going_on.instead) == (None, GiveBack(CLIENT_RETURN_S))
    assert "the client of a run is gone" in "".join(capsys.readouterr())


# -- cancelled, closed ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("signal", "payload", "stopped"),
    [
        ("run", b"", [1, 10]),
        ("run.1", b"", [1]),
        ("run.1.0", b"", [1]),
        ("run.1.1", b"", []),
        ("other", b"", []),
        ("run", CLOSED, [1, 10]),
    ],
)
async def test_a_signal_stops_the_rollouts_that_it_covers(
    bus: MemoryBus, deliveries: Deliveries, signal: str, payload: bytes, stopped: list[int]
) -> None:
    guard = NotEnded(bus, deliveries.fates)
    fates = {task: await deliveries.fate(task) for task in (1, 10)}
    guard.hear(Incoming(f"cancel.{signal}", payload))
    for task, fate in fates.items():
        kind = Cancelled if task in stopped else Failed  # its deadline passes
        assert type((await fate.attempts.run()).outcome) is kind
    if payload == b"":
        later = await deliveries.fate(1)
        guard.begin(later)
        assert type((await later.attempts.run()).outcome) is (Cancelled if 1 in stopped else Failed)


async def test_what_was_cancelled_before_the_worker_began_is_read(
    bus: MemoryBus, deliveries: Deliveries
) -> None:
    await bus.append("runs.run.cancelled.1", b"")
    guard = NotEnded(bus, deliveries.fates)
    await guard.load()
    for task, kind in ((1, Cancelled), (10, Failed)):
        fate = await deliveries.fate(task)
        guard.begin(fate)
        assert type((await fate.attempts.run()).outcome) is kind


@pytest.mark.parametrize(
    ("heard", "took_s", "closed", "dropped"),
    [
        (True, 0.0, True, True),
        (True, 0.0, False, False),  # a run of the same name was opened later
        (False, JOURNAL_FRESH_S + 1, True, True),  # the signal may have been missed
        (False, JOURNAL_FRESH_S + 1, False, False),
        (False, 0.0, True, False),  # a young attempt would have heard it, so it asks nothing
    ],
)
async def test_for_a_closed_run_no_record_is_stored(
    bus: MemoryBus, deliveries: Deliveries, heard: bool, took_s: float, closed: bool, dropped: bool
) -> None:
    guard = NotEnded(bus, deliveries.fates)
    fate = await deliveries.fate()
    await bus.append("runs.run", encode_run(RunInfo(run="run", total=1, closed=closed)))
    if heard:
        guard.hear(Incoming("cancel.run", CLOSED))
    await anyio.sleep(took_s)
    assert await guard.settle(fate) == (Drop("its run is closed") if dropped else None)


# -- suspects -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("losses", "lost_worker", "refused"),
    [
        (0, "", False),
        (ROLLOUT_ALONE_AT, "crashed", False),
        (MAX_CRASHES, "crashed", True),
        (MAX_CRASHES, "killed", False),
        (MAX_CRASHES, "", False),
        (MAX_KILLS - 1, "killed", False),
        (MAX_KILLS, "killed", True),
    ],
)
async def test_a_rollout_that_ended_its_workers_fails(
    bus: MemoryBus, deliveries: Deliveries, losses: int, lost_worker: str, refused: bool
) -> None:
    guard = NotSuspect(Members(bus).views["agent"], Before(crashed="crashed"))
    fate = await deliveries.fate()
    fate.account.spent, fate.account.lost_worker = Spent(losses=losses), lost_worker
    assert (guard.refuse(fate) is not None) == refused


async def test_a_suspect_waits_until_a_turn_of_the_others_has_cleared_them(
    bus: MemoryBus, deliveries: Deliveries
) -> None:
    guard = NotSuspect(Members(bus).views["agent"], Before())
    other, suspect = await deliveries.fate(0), await deliveries.fate(1)
    suspect.account.spent = Spent(losses=ROLLOUT_ALONE_AT)
    assert not guard.place(other).limited
    place = guard.place(suspect)
    assert place.limited
    assert other.journal.on_turn is not None
    other.journal.on_turn()
    await place.take()

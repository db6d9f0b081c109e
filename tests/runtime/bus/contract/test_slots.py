"""Slots of pulls: used, shared and never exceeded."""

from __future__ import annotations

from collections import Counter
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import anyio
import pytest
from gym_runtime.bus.interface import (
    Bus,
    Delivery,
)
from gym_runtime.bus.pull import PROBE_S, Rank, Slots

if TYPE_CHECKING:
    pass
from runtime.bus.contract.traffic import Mailbox, pulling

pytestmark = pytest.mark.anyio


async def test_slots_are_used_and_never_exceeded(bus: Bus, other: Bus) -> None:
    running = most = 0
    full = anyio.Event()
    done: Mailbox[bytes] = Mailbox()

    async def handle(delivery: Delivery) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 7:
            full.set()
        await full.wait()
        await anyio.sleep(0.001 * (int(delivery.payload) % 4))
        running -= 1
        await delivery.ack()
        done.put(delivery.payload)

    async with pulling(other, handle, slots=7):
        for number in range(200):
            await bus.enqueue("task.a.b", b"%d" % number)
        await done.until(200)
    assert most == 7
    assert Counter(done.items) == {b"%d" % number: 1 for number in range(200)}


class Floor:
    """Counts the tasks in progress of each queue; each ends when it is let go."""

    def __init__(self) -> None:
        self.at_work: Counter[str] = Counter()
        self.most = 0
        self.redelivered = 0
        self._changed = anyio.Event()
        self.ended: Counter[str] = Counter()
        self._held: dict[str, list[anyio.Event]] = {}

    async def handle(self, delivery: Delivery) -> None:
        queue = delivery.subject.split(".")[1]
        self.redelivered += delivery.deliveries > 1
        let_go = anyio.Event()
        self._held.setdefault(queue, []).append(let_go)
        self._count(queue, 1)
        await let_go.wait()
        self.ended[queue] += 1
        self._count(queue, -1)
        await delivery.ack()

    def _count(self, queue: str, change: int) -> None:
        self.at_work[queue] += change
        self.most = max(self.most, self.at_work.total())
        self._changed.set()
        self._changed = anyio.Event()

    async def let_go(self, queue: str) -> None:
        """End one task, and return when it has ended."""
        ended = self.ended[queue] + 1
        self._held[queue].pop(0).set()
        with anyio.fail_after(15):
            while self.ended[queue] < ended:
                await self._changed.wait()

    async def hand_over(self, queue: str, **counts: int) -> None:
        """End one task of a queue after the other, until the others have so many.

        It may take some more on a busy machine: a slot is first offered to those who ask for it now.
        """
        total = self.at_work.total()
        while any(self.at_work[other] < count for other, count in counts.items()):
            await self.let_go(queue)
            with anyio.fail_after(15):
                while self.at_work.total() < total:
                    await self._changed.wait()

    async def until(self, **counts: int) -> None:
        with anyio.fail_after(15):
            while any(self.at_work[queue] != count for queue, count in counts.items()):
                await self._changed.wait()


@pytest.mark.slow
async def test_pulls_that_share_slots_give_all_of_them_to_the_queue_that_has_tasks(
    bus: Bus, other: Bus
) -> None:
    floor, slots = Floor(), Slots(12)
    async with AsyncExitStack() as stack:
        for name in "abcd":
            await stack.enter_async_context(
                pulling(
                    other,
                    floor.handle,
                    pattern=f"task.{name}.>",
                    consumer=name,
                    slots=slots,
                    ack_wait_s=2.0,
                )
            )
        for number in range(40):
            await bus.enqueue("task.a.x", b"%d" % number)
        await floor.until(a=12)
        # Another queue's turn comes when a slot is free, until both have the same.
        for number in range(6):
            await bus.enqueue("task.b.x", b"%d" % number)
        await anyio.sleep(1.2 * PROBE_S)
        await floor.hand_over("a", b=6)
        await floor.until(a=6, b=6)
        # When one queue is empty, the other one has all slots again, once its last pulls have ended.
        for _ in range(6):
            await floor.let_go("b")
        await floor.until(a=12, b=0)
        await bus.enqueue("task.c.x", b"")
        await anyio.sleep(1.2 * PROBE_S)
        await floor.hand_over("a", c=1)
        assert (floor.most, floor.redelivered) == (12, 0)


@pytest.mark.slow
async def test_fewer_slots_than_pulls_serve_them_all(bus: Bus, other: Bus) -> None:
    floor, slots = Floor(), Slots(1)
    async with AsyncExitStack() as stack:
        for name in "abc":
            await stack.enter_async_context(
                pulling(other, floor.handle, pattern=f"task.{name}.>", consumer=name, slots=slots)
            )
        for name in "cab":
            await bus.enqueue(f"task.{name}.x", b"")
            await floor.until(**{name: 1})
            await floor.let_go(name)
            await floor.until(**{name: 0})
    assert (floor.most, floor.redelivered) == (1, 0)


@pytest.mark.slow
async def test_pulls_of_different_ranks_get_slots_by_share_and_priority(bus: Bus, other: Bus) -> None:
    slots, started = Slots(16), Counter[str]()
    ranks = {"a": Rank(share=3.0), "b": Rank(), "c": Rank(priority=1)}
    passed = {count: anyio.Event() for count in (100, 700)}

    async def handle(delivery: Delivery) -> None:
        started[delivery.subject.split(".")[1]] += 1
        if (event := passed.get(started.total())) is not None:
            event.set()
        await anyio.sleep(0.02)
        await delivery.ack()

    async with AsyncExitStack() as stack:
        async with anyio.create_task_group() as tasks:
            for number in range(1200):
                tasks.start_soon(bus.enqueue, f"task.{'ab'[number % 2]}.x", b"")
        for name, rank in ranks.items():
            pull = pulling(other, handle, pattern=f"task.{name}.>", consumer=name, slots=slots, rank=rank)
            await stack.enter_async_context(pull)
        with anyio.fail_after(30):
            await passed[100].wait()
            before = started.copy()
            await passed[700].wait()
        ran = started - before
        assert abs(ran["a"] / ran.total() - 0.75) < 0.05, ran


@pytest.mark.slow
async def test_a_pull_of_a_higher_priority_goes_on_beside_more_idle_pulls_than_slots(
    bus: Bus, other: Bus
) -> None:
    slots, started = Slots(4), Counter[str]()
    ranks = {"high": Rank(priority=1), "late": Rank(priority=1)} | {f"idle{n}": Rank() for n in range(8)}
    finished = anyio.Event()

    async def handle(delivery: Delivery) -> None:
        started[delivery.subject.split(".")[1]] += 1
        # Its tasks take longer than the time after which idle pulls ask again.
        await anyio.sleep(0.3 * PROBE_S)
        await delivery.ack()
        if started["late"] == 1 and started["high"] >= 24:
            finished.set()

    async with AsyncExitStack() as stack:
        for number in range(60):
            await bus.enqueue("task.high.x", b"%d" % number)
        for name, rank in ranks.items():
            pull = pulling(other, handle, pattern=f"task.{name}.>", consumer=name, slots=slots, rank=rank)
            await stack.enter_async_context(pull)
        with anyio.move_on_after(10):
            while started["high"] < 8:
                await anyio.sleep(0.05)
            await bus.enqueue("task.late.x", b"")
            await finished.wait()
    assert finished.is_set(), started


@pytest.mark.slow
@pytest.mark.parametrize(
    "rank", [Rank(priority=1, most=2), Rank(share=9.0, most=2)], ids=["priority", "share"]
)
async def test_slots_that_a_limited_pull_cannot_use_are_the_others(bus: Bus, other: Bus, rank: Rank) -> None:
    slots, started = Slots(8), Counter[str]()
    others_went_on = anyio.Event()

    async def handle(delivery: Delivery) -> None:
        started[delivery.subject.split(".")[1]] += 1
        if started["rest"] == 30:
            others_went_on.set()
        await anyio.sleep(0.1)
        await delivery.ack()

    for number in range(40):
        await bus.enqueue("task.limited.x", b"%d" % number)
        await bus.enqueue("task.rest.x", b"%d" % number)
    limited = pulling(
        other, handle, pattern="task.limited.>", consumer="limited", slots=slots, rank=rank, most=2
    )
    rest = pulling(other, handle, pattern="task.rest.>", consumer="rest", slots=slots, rank=Rank())
    async with limited, rest:
        with anyio.fail_after(30):
            await others_went_on.wait()
        assert 0 < started["limited"] < 40, started

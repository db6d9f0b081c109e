"""One delivery: acknowledged, released, lost, kept alive, given back."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import anyio
import pytest
from gym_runtime.bus.interface import (
    Bus,
    Delivery,
    QueueDepth,
)

if TYPE_CHECKING:
    from runtime.bus.conftest import Fragile
from runtime.bus.contract.queue_traffic import eventually
from runtime.bus.contract.traffic import ACK_WAIT_S, SOON_S, Mailbox, Pool, background, pulling

pytestmark = pytest.mark.anyio


async def test_an_acked_task_is_removed(bus: Bus, other: Bus) -> None:
    await bus.enqueue("task.a.b", b"")
    acked = anyio.Event()

    async def handle(delivery: Delivery) -> None:
        await delivery.ack()
        acked.set()

    async with pulling(other, handle):
        with anyio.fail_after(SOON_S):
            await acked.wait()

        async def gone() -> bool:
            nothing = await bus.depth("workers") == QueueDepth(waiting=0, in_flight=0)
            return nothing and await bus.counts("task.>") == {}

        await eventually(gone)


async def test_a_released_task_is_delivered_again_and_counted(bus: Bus, other: Bus) -> None:
    await bus.enqueue("task.a.b", b"x")
    counts: Mailbox[int] = Mailbox()

    async def handle(delivery: Delivery) -> None:
        counts.put(delivery.deliveries)
        if delivery.deliveries < 4:
            await delivery.release()
        else:
            await delivery.ack()

    async with pulling(other, handle):
        assert await counts.until(4) == [1, 2, 3, 4]


async def test_a_task_released_with_a_delay_is_not_delivered_before(bus: Bus, other: Bus) -> None:
    await bus.enqueue("task.a.b", b"x")
    times_s: Mailbox[float] = Mailbox()

    async def handle(delivery: Delivery) -> None:
        times_s.put(anyio.current_time())
        if delivery.deliveries == 1:
            await delivery.release(0.4)
        else:
            await delivery.ack()

    async with pulling(other, handle):
        first_s, second_s = await times_s.until(2)
    assert second_s - first_s >= 0.39


@pytest.mark.parametrize("raises", [True, False], ids=["raises", "settles nothing"])
async def test_a_handler_that_settles_nothing_gives_the_task_back(
    bus: Bus, other: Bus, *, raises: bool
) -> None:
    await bus.enqueue("task.a.b", b"x")
    counts: Mailbox[int] = Mailbox()

    async def handle(delivery: Delivery) -> None:
        counts.put(delivery.deliveries)
        if delivery.deliveries == 2:
            await delivery.ack()
        elif raises:
            raise ValueError("a bug of the handler")

    async with pulling(other, handle, ack_wait_s=3600):
        assert await counts.until(2) == [1, 2]


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["freeze", "cut"])
async def test_the_task_of_a_lost_worker_is_delivered_again_after_the_ack_wait(
    bus: Bus, fragile: Fragile, fault: str
) -> None:
    await bus.enqueue("task.a.b", b"x")
    lost, pool = Pool(), Pool()
    async with pulling(fragile.bus, lost.hold, slots=1):
        await lost.first(1)
        getattr(fragile, fault)()
        began_s = anyio.current_time()
        async with pulling(bus, pool.ack):
            (delivery,) = await pool.first(1)
        assert (delivery.payload, delivery.deliveries) == (b"x", 2)
        # It was kept alive for the last time at most a third of the wait before.
        assert anyio.current_time() - began_s >= ACK_WAIT_S * 0.6
        fragile.thaw()
        fragile.mend()


@pytest.mark.slow
async def test_a_lost_ack_means_a_redelivery(bus: Bus, fragile: Fragile) -> None:
    await bus.enqueue("task.a.b", b"x")
    acked = anyio.Event()
    pool = Pool()

    async def handle(delivery: Delivery) -> None:
        fragile.freeze()
        await delivery.ack()
        acked.set()

    async with pulling(fragile.bus, handle, slots=1):
        with anyio.fail_after(SOON_S):
            await acked.wait()
        async with pulling(bus, pool.ack):
            (delivery,) = await pool.first(1)
        assert (delivery.payload, delivery.deliveries) == (b"x", 2)
        fragile.thaw()


@pytest.mark.slow
async def test_an_abandoned_delivery_is_neither_given_back_nor_kept_alive(bus: Bus, other: Bus) -> None:
    times_s: Mailbox[float] = Mailbox()
    again = anyio.Event()

    async def handle(delivery: Delivery) -> None:
        times_s.put(anyio.current_time())
        if delivery.deliveries == 1:
            delivery.abandon()
            await again.wait()
        else:
            again.set()
            await delivery.ack()

    # From before it is there: the first delivery may be handled late.
    began_s = anyio.current_time()
    await bus.enqueue("task.a.b", b"x")
    async with pulling(other, handle):
        _, second_s = await times_s.until(2)
    assert second_s - began_s >= 0.9 * ACK_WAIT_S


@pytest.mark.slow
async def test_a_delivery_is_kept_alive_while_it_is_handled(bus: Bus, other: Bus) -> None:
    await bus.enqueue("task.a.b", b"x")
    pool = Pool()
    async with pulling(other, pool.hold), pulling(bus, pool.hold):
        await pool.first(1)
        await anyio.sleep(2.5 * ACK_WAIT_S)
        assert len(pool.deliveries.items) == 1


async def test_cancelling_gives_back_what_is_unfinished(bus: Bus, other: Bus) -> None:
    for number in range(3):
        await bus.enqueue("task.a.b", b"%d" % number)
    first, second = Pool(), Pool()
    async with pulling(other, first.hold, ack_wait_s=3600):
        await first.first(3)
    async with pulling(bus, second.ack, ack_wait_s=3600):
        again = await second.first(3)
    assert sorted((delivery.payload, delivery.deliveries) for delivery in again) == [
        (b"0", 2),
        (b"1", 2),
        (b"2", 2),
    ]


async def test_stop_takes_nothing_new_and_returns_when_all_is_finished(bus: Bus, other: Bus) -> None:
    for number in range(5):
        await bus.enqueue("task.a.b", b"%d" % number)
    pool, stop, returned = Pool(), anyio.Event(), anyio.Event()

    async def pull() -> None:
        await other.pull("task.>", consumer="workers", slots=2, handle=pool.hold, stop=stop)
        returned.set()

    async with background(pull):
        await pool.first(2)
        stop.set()
        await anyio.sleep(0.05)
        assert not returned.is_set()
        pool.go()
        with anyio.fail_after(SOON_S):
            await returned.wait()
    assert len(pool.deliveries.items) == 2
    later = Pool()
    async with pulling(bus, later.ack):
        rest = await later.first(3)
    assert [(delivery.payload, delivery.deliveries) for delivery in rest] == [
        (b"2", 1),
        (b"3", 1),
        (b"4", 1),
    ]


async def test_stop_returns_at_once_when_nothing_is_in_flight(bus: Bus, other: Bus) -> None:
    stop = anyio.Event()
    pool = Pool()
    with anyio.fail_after(SOON_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                partial(other.pull, "task.>", consumer="workers", slots=2, handle=pool.ack, stop=stop)
            )
            await bus.enqueue("task.a.b", b"")
            await pool.first(1)
            stop.set()

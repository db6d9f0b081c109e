"""Requests, serving and signals."""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

import anyio
import pytest
from gym_runtime import clock
from gym_runtime.bus.interface import (
    Bus,
    Incoming,
)
from gym_runtime.errors import ConnectionLost, DeadlineExceeded, NoWorker

if TYPE_CHECKING:
    from runtime.bus.conftest import Fragile, System
from runtime.bus.contract.traffic import EVERY_BYTE, SOON_S, Mailbox, answering, ask, silent

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("payload", [b"", b"x", EVERY_BYTE], ids=["empty", "one", "all"])
async def test_request_returns_what_was_answered(bus: Bus, other: Bus, payload: bytes) -> None:
    async with answering(other, "service.echo", lambda incoming: incoming.payload[::-1]):
        assert await ask(bus, "service.echo", payload) == payload[::-1]


async def test_a_request_arrives_with_its_subject_headers_and_somewhere_to_answer(
    bus: Bus, other: Bus
) -> None:
    seen: Mailbox[Incoming] = Mailbox()

    def answer(incoming: Incoming) -> bytes:
        seen.put(incoming)
        return b""

    async with answering(other, "service.*", answer):
        await ask(bus, "service.one", headers={"traceparent": "00-ab-cd-01", "Gym-Key": "a: b"})
        await ask(bus, "service.two")
    first, second = await seen.until(2)
    assert (first.subject, second.subject) == ("service.one", "service.two")
    assert first.headers == {"traceparent": "00-ab-cd-01", "Gym-Key": "a: b"}
    assert not second.headers
    assert first.reply
    assert second.reply
    assert first.reply != second.reply


async def test_a_thousand_requests_in_flight_each_get_their_own_answer(bus: Bus, other: Bus) -> None:
    waiting: Mailbox[Incoming] = Mailbox()
    answers: dict[int, bytes] = {}

    async def one(number: int) -> None:
        answers[number] = await ask(bus, "service.slow", b"%d" % number)

    async with other.serve("service.slow", waiting.put), anyio.create_task_group() as tasks:
        for number in range(1000):
            tasks.start_soon(one, number)
        for incoming in reversed(await waiting.until(1000)):
            await other.publish(incoming.reply, b"re " + incoming.payload)
    assert answers == {number: b"re %d" % number for number in range(1000)}


async def test_no_worker_at_once_when_nobody_serves(bus: Bus, other: Bus) -> None:
    with anyio.fail_after(SOON_S):
        with pytest.raises(NoWorker):
            await ask(bus, "service.none", within_s=3600)
        async with other.serve("service.none", silent):
            pass
        with pytest.raises(NoWorker):
            await ask(bus, "service.none", within_s=3600)


async def test_no_worker_at_once_when_the_server_is_disconnected(bus: Bus, fragile: Fragile) -> None:
    async with answering(fragile.bus, "service.x", lambda incoming: b""):
        await ask(bus, "service.x")
        fragile.cut()
        with anyio.fail_after(SOON_S):
            while True:
                try:
                    await ask(bus, "service.x", within_s=0.1)
                except NoWorker:
                    break
                except DeadlineExceeded:
                    # A socket's end takes a moment to reach the broker.
                    continue
        fragile.mend()
        with anyio.fail_after(SOON_S):
            while True:
                try:
                    await ask(bus, "service.x", within_s=1)
                    break
                except NoWorker:
                    await anyio.sleep(0.01)


async def test_deadline(bus: Bus, other: Bus) -> None:
    async with other.serve("service.mute", silent):
        deadline_s = clock.monotonic() + 0.2
        with anyio.fail_after(SOON_S), pytest.raises(DeadlineExceeded):
            await bus.request("service.mute", b"", deadline_s=deadline_s)
        # The loop's clock and the epoch's differ by less than this over so short a time.
        assert clock.monotonic() >= deadline_s - 0.005


async def test_a_deadline_that_has_passed(bus: Bus, other: Bus) -> None:
    seen: Mailbox[Incoming] = Mailbox()
    async with other.serve("service.mute", seen.put):
        with pytest.raises(DeadlineExceeded):
            await bus.request("service.mute", b"", deadline_s=clock.monotonic() - 1)


async def test_a_cancelled_request_ends_at_once_and_its_late_answer_is_dropped(bus: Bus, other: Bus) -> None:
    seen: Mailbox[Incoming] = Mailbox()
    async with other.serve("service.late", seen.put):
        with anyio.fail_after(SOON_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(ask, bus, "service.late", b"1", within_s=3600))
                await seen.until(1)
                tasks.cancel_scope.cancel()
            async with anyio.create_task_group() as tasks:

                async def again() -> None:
                    assert await ask(bus, "service.late", b"2") == b"for 2"

                tasks.start_soon(again)
                first, second = await seen.until(2)
                await other.publish(first.reply, b"for 1")
                await other.publish(second.reply, b"for 2")


async def test_connection_lost_at_once_when_it_breaks_while_waiting(bus: Bus, fragile: Fragile) -> None:
    seen: Mailbox[Incoming] = Mailbox()
    async with bus.serve("service.mute", seen.put), anyio.create_task_group() as tasks:

        async def lose() -> None:
            with pytest.raises(ConnectionLost):
                await ask(fragile.bus, "service.mute", within_s=3600)

        with anyio.fail_after(SOON_S):
            for _ in range(3):
                tasks.start_soon(lose)
            await seen.until(3)
            fragile.cut()


async def test_requests_work_again_after_a_reconnection(bus: Bus, fragile: Fragile) -> None:
    async with answering(bus, "service.echo", lambda incoming: incoming.payload):
        assert await ask(fragile.bus, "service.echo", b"1") == b"1"
        fragile.cut()
        fragile.mend()
        with anyio.fail_after(SOON_S):
            while True:
                try:
                    assert await ask(fragile.bus, "service.echo", b"2") == b"2"
                    break
                except ConnectionLost:
                    # It was asked before the break was noticed.
                    continue


async def test_messages_are_received_in_order_of_arrival(bus: Bus, other: Bus) -> None:
    seen: Mailbox[Incoming] = Mailbox()
    async with other.serve("signal.*", seen.put):
        for number in range(2000):
            await bus.publish("signal.a" if number % 2 else "signal.b", b"%d" % number)
        received = await seen.until(2000)
    assert [int(incoming.payload) for incoming in received] == list(range(2000))


async def test_a_signal_carries_headers_and_no_reply(bus: Bus, other: Bus) -> None:
    seen: Mailbox[Incoming] = Mailbox()
    async with other.serve("signal.a", seen.put):
        await bus.publish("signal.a", EVERY_BYTE, headers={"k": "v"})
        (incoming,) = await seen.until(1)
    assert incoming == Incoming("signal.a", EVERY_BYTE, "", {"k": "v"})


async def test_a_signal_to_nobody_is_no_error(bus: Bus) -> None:
    await bus.publish("signal.nobody", b"")


async def test_each_message_goes_to_one_of_a_queue_and_to_everybody_else(bus: Bus, system: System) -> None:
    boxes: dict[str, Mailbox[Incoming]] = {}
    members: dict[str, Bus] = {}
    for name in ("a1", "a2", "b1", "plain1", "plain2"):
        boxes[name], members[name] = Mailbox(), await system.connect()
    shared: Mailbox[bytes] = Mailbox()

    def share(name: str, incoming: Incoming) -> None:
        boxes[name].put(incoming)
        shared.put(incoming.payload)

    async with AsyncExitStack() as stack:
        for name, member in members.items():
            queue = "" if name.startswith("plain") else name[0]
            put = partial(share, name) if queue == "a" else boxes[name].put
            await stack.enter_async_context(member.serve("signal.x", put, queue=queue))
        for number in range(200):
            await bus.publish("signal.x", b"%d" % number)
        for name in ("b1", "plain1", "plain2"):
            await boxes[name].until(200)
        await shared.until(200)
    everything = [b"%d" % number for number in range(200)]
    for name in ("b1", "plain1", "plain2"):
        assert [incoming.payload for incoming in boxes[name].items] == everything
    assert sorted(shared.items) == sorted(everything)
    assert boxes["a1"].items
    assert boxes["a2"].items


async def test_patterns(bus: Bus, other: Bus) -> None:
    patterns = ["a", "a.b", "a.*", "a.*.c", "a.>", "*.b", "*.*.*", "b.>"]
    expected = {
        "a": {"a"},
        "a.b": {"a.b", "a.*", "a.>", "*.b"},
        "a.x": {"a.*", "a.>"},
        "a.b.c": {"a.*.c", "a.>", "*.*.*"},
        "a.b.d": {"a.>", "*.*.*"},
        "a.b.c.d": {"a.>"},
        "ab": set(),
        "b": set(),
        "b.b": {"*.b", "b.>"},
    }
    hits: dict[str, set[str]] = {subject: set() for subject in expected}
    done = anyio.Event()

    def note(pattern: str, incoming: Incoming) -> None:
        hits[incoming.subject].add(pattern)

    async with AsyncExitStack() as stack:
        for pattern in patterns:
            await stack.enter_async_context(other.serve(pattern, partial(note, pattern)))
        await stack.enter_async_context(other.serve("end", lambda incoming: done.set()))
        for subject in expected:
            await bus.publish(subject, b"")
        await bus.publish("end", b"")
        with anyio.fail_after(SOON_S):
            await done.wait()
    assert hits == expected


async def test_nothing_is_received_after_the_context(bus: Bus, other: Bus) -> None:
    seen: Mailbox[Incoming] = Mailbox()
    async with other.serve("signal.x", seen.put):
        await bus.publish("signal.x", b"1")
        await seen.until(1)
    last: Mailbox[Incoming] = Mailbox()
    async with other.serve("signal.y", last.put):
        await bus.publish("signal.x", b"2")
        await bus.publish("signal.y", b"3")
        await last.until(1)
    assert len(seen.items) == 1


async def test_serving_goes_on_after_a_reconnection(bus: Bus, fragile: Fragile) -> None:
    seen: Mailbox[Incoming] = Mailbox()
    async with fragile.bus.serve("signal.x", seen.put):
        fragile.cut()
        fragile.mend()
        with anyio.fail_after(SOON_S):
            while not seen.items:
                await bus.publish("signal.x", b"")
                await anyio.sleep(0.01)


@pytest.mark.slow
async def test_publish_waits_while_the_buffer_is_full_and_can_be_cancelled_there(
    bus: Bus, fragile: Fragile
) -> None:
    chunk = bytes(2**20)
    fragile.freeze()
    with anyio.move_on_after(1) as scope:
        for _ in range(4096):
            await fragile.bus.publish("signal.x", chunk)
    assert scope.cancelled_caught, "a gigabyte was taken without waiting"
    async with bus.serve("signal.end", (ends := Mailbox[Incoming]()).put), anyio.create_task_group() as tasks:
        tasks.start_soon(fragile.bus.publish, "signal.end", b"")
        fragile.thaw()
        await ends.until(1)

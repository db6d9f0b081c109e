"""Large payloads, and the end of a connection."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import anyio
import pytest
from gym_runtime.bus.blobs import SMALL_INLINE_BYTES
from gym_runtime.bus.interface import (
    BLOB_BYTES,
    Bus,
    Incoming,
)
from gym_runtime.errors import ConnectionLost, PayloadTooLarge

if TYPE_CHECKING:
    pass
from runtime.bus.contract.traffic import SOON_S, Mailbox, Pool, answering, ask, pulling, silent, take

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("little_inline")]


def pattern_bytes(size: int) -> bytes:
    """Bytes without a short period, so that a chunk out of place shows."""
    return b"".join(b"%08x" % number for number in range(-(-size // 8)))[:size]


SIZES = [SMALL_INLINE_BYTES, SMALL_INLINE_BYTES + 1, 1_000_000, 5_000_000]


@pytest.mark.parametrize("size", SIZES)
async def test_large_requests_and_answers(bus: Bus, other: Bus, size: int) -> None:
    payload = pattern_bytes(size)
    async with answering(other, "service.echo", lambda incoming: incoming.payload[::-1]):
        assert await ask(bus, "service.echo", payload, headers={"k": "v"}) == payload[::-1]


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES[1:])
async def test_large_signals(bus: Bus, other: Bus, size: int) -> None:
    seen: Mailbox[Incoming] = Mailbox()
    async with other.serve("signal.>", seen.put):
        await bus.publish("signal.large", pattern_bytes(size), headers={"k": "v"})
        assert await seen.until(1) == [Incoming("signal.large", pattern_bytes(size), "", {"k": "v"})]


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES[1:])
async def test_large_tasks(bus: Bus, other: Bus, size: int) -> None:
    await bus.enqueue("task.a.b", pattern_bytes(size), headers={"k": "v"})
    pool = Pool()
    async with pulling(other, pool.ack):
        (delivery,) = await pool.first(1)
    assert delivery.payload == pattern_bytes(size)
    assert delivery.headers == {"k": "v"}


@pytest.mark.parametrize("size", SIZES[1:])
async def test_large_records(bus: Bus, other: Bus, size: int) -> None:
    payload = pattern_bytes(size)
    assert await bus.commit("rollout.run.0.0", payload) is True
    assert await other.commit("rollout.run.0.0", payload) is False
    assert await bus.commit("rollout.run.0.1", b"small") is True
    assert [record.payload for record in await other.latest("rollout.run.>")] == [payload, b"small"]
    assert [record.payload for record in await take(other, "rollout.>", 2)] == [payload, b"small"]
    await bus.append("journal.r.0.0", payload)
    assert [record.payload for record in await take(other, "journal.>", 1)] == [payload]
    assert await other.forget("journal.r.0.0") == 1
    assert await other.counts("rollout.>") == {"rollout.run.0.0": 1, "rollout.run.0.1": 1}


@pytest.mark.parametrize(
    "payload", [b"\x00", b"\x00gym-blob\x00", b'\x00gym-blob\x00{"digest":"x"}', b"\x00" * 1000]
)
async def test_no_payload_is_mistaken_for_a_reference(bus: Bus, other: Bus, payload: bytes) -> None:
    async with answering(other, "service.echo", lambda incoming: incoming.payload):
        assert await ask(bus, "service.echo", payload) == payload
    await bus.append("journal.r.0.0", payload)
    assert [record.payload for record in await other.latest("journal.>")] == [payload]


async def test_payload_too_large(bus: Bus, other: Bus) -> None:
    # Zeroed pages that nobody touches: this takes no memory.
    payload = bytes(BLOB_BYTES + 1)
    async with other.serve("service.x", silent):
        for send in (
            partial(ask, bus, "service.x", payload),
            partial(bus.publish, "service.x", payload),
            partial(bus.enqueue, "task.a.b", payload),
            partial(bus.commit, "rollout.run.0.0", payload),
            partial(bus.append, "journal.run.0.0", payload),
        ):
            with anyio.fail_after(SOON_S), pytest.raises(PayloadTooLarge):
                await send()
    assert await bus.commit("rollout.run.0.0", b"") is True


async def test_close_fails_requests_in_flight(bus: Bus, other: Bus) -> None:
    seen: Mailbox[Incoming] = Mailbox()

    async def lose() -> None:
        with pytest.raises(ConnectionLost):
            await ask(bus, "service.mute", within_s=3600)

    async with other.serve("service.mute", seen.put):
        with anyio.fail_after(SOON_S):
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(lose)
                await seen.until(3)
                await bus.aclose()
            with pytest.raises(ConnectionLost):
                await ask(bus, "service.mute", within_s=3600)


async def test_close_sends_what_is_buffered(bus: Bus, other: Bus) -> None:
    seen: Mailbox[Incoming] = Mailbox()
    async with other.serve("signal.x", seen.put):
        for number in range(500):
            await bus.publish("signal.x", b"%d" % number)
        await bus.aclose()
        received = await seen.until(500)
    assert [int(incoming.payload) for incoming in received] == list(range(500))


async def test_close_twice_is_once(bus: Bus) -> None:
    await bus.aclose()
    await bus.aclose()


async def test_the_nearest_copy_of_one_subject(bus: Bus) -> None:
    subject = "journal.r.0.0.0.role.a"
    assert await bus.latest(subject, nearest=True) == []
    large = b"x" * (SMALL_INLINE_BYTES + 1)
    for payload in (b"old", large):
        await bus.append(subject, payload)
    assert [record.payload for record in await bus.latest(subject, nearest=True)] == [large]
    assert await bus.latest("journal.r.0.0.0", nearest=True) == []

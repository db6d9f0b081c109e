"""Requests that are stopped from outside."""

from __future__ import annotations

import anyio
import pytest
from gym_runtime.bus.interface import Bus, Incoming, Stop, Stopped
from runtime.bus.contract.traffic import SOON_S, Mailbox, answering, ask

pytestmark = pytest.mark.anyio


async def test_a_stopped_request_ends_at_once_and_is_stopped_alone(bus: Bus, other: Bus) -> None:
    seen: Mailbox[Incoming] = Mailbox()
    ended: list[str] = []
    first, second = Stop(), Stop()

    async def stopped(payload: bytes, stop: Stop) -> None:
        with pytest.raises(Stopped):
            await ask(bus, "service.late", payload, within_s=3600, stop=stop)
        ended.append(payload.decode())

    async with other.serve("service.late", seen.put):
        with anyio.fail_after(SOON_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stopped, b"1", first)
                tasks.start_soon(stopped, b"2", second)
                asked = await seen.until(2)
                for stop, name in ((second, "2"), (first, "1")):
                    stop.stop()
                    stop.stop()
                    while name not in ended:
                        await anyio.sleep(0.001)
            assert ended == ["2", "1"]
            # Late answers, and a stop after the answer, change nothing.
            for incoming in asked:
                await other.publish(incoming.reply, b"late")
    async with answering(other, "service.echo", lambda incoming: incoming.payload):
        third = Stop()
        assert await ask(bus, "service.echo", b"3", stop=third) == b"3"
        third.stop()
        assert await ask(bus, "service.echo", b"4", stop=Stop()) == b"4"


async def test_a_request_that_was_stopped_before_is_not_sent(bus: Bus, other: Bus) -> None:
    seen: Mailbox[Incoming] = Mailbox()
    stop = Stop()
    stop.stop()
    async with other.serve("service.late", seen.put):
        with pytest.raises(Stopped):
            await ask(bus, "service.late", stop=stop)
        await other.publish("service.late", b"after it")
        assert [incoming.payload for incoming in await seen.until(1)] == [b"after it"]

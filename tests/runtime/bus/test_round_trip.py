"""How far the broker is, as pings say, and what a puller does about it."""

from __future__ import annotations

import asyncio
import time
from urllib.parse import urlsplit

import anyio
import pytest
from gym_runtime.bus import link as links
from gym_runtime.bus.pull import Slots
from gym_runtime.bus.sending import RoundTrips
from gym_runtime.timing import SLOW_LINK_S
from gym_testing.proxy import Proxy, Slowness
from runtime.bus.conftest import linked

pytestmark = pytest.mark.asyncio


async def test_one_slow_ping_changes_nothing_and_two_of_three_do() -> None:
    changes: list[bool] = []
    trips = RoundTrips(lambda: changes.append(trips.slow))
    for seconds in (0.01, 2.0, 0.01, 0.01):
        trips.add(seconds)
    assert (trips.seconds, changes) == (0.01, [])
    for seconds in (2.0, 1.0, 0.01, 0.01):
        trips.add(seconds)
    assert changes == [True, False]


async def test_what_the_event_loop_is_late_does_not_count() -> None:
    trips = RoundTrips(lambda: None)
    for _ in range(3):
        pong: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        trips.measure(pong, lambda: True)
        time.sleep(0.2)  # noqa: ASYNC251 - the fault: something blocks the loop
        pong.set_result(None)
        await asyncio.sleep(0)
    assert trips.seconds < 0.1


async def test_a_ping_that_was_not_answered_does_not_count() -> None:
    trips = RoundTrips(lambda: None)
    for _ in range(3):
        pong: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        trips.measure(pong, lambda: False)
        pong.set_result(None)
    await asyncio.sleep(0)
    trips.add(1.0)
    assert trips.seconds == 0.0


@pytest.mark.slow
async def test_a_slow_link_is_measured_until_it_is_fast_again(
    broker_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "PING_INTERVAL_S", 0.05)
    where = urlsplit(broker_url)
    assert where.hostname is not None
    assert where.port is not None
    proxy = Proxy(where.hostname, where.port)
    async with proxy.listening() as port:
        url = where._replace(netloc=where.netloc.replace(f":{where.port}", f":{port}")).geturl()
        async with linked(url) as link:
            assert link.round_trips.seconds == 0.0
            with anyio.fail_after(15):
                # The pings that come before the answers of others would end the connection.
                monkeypatch.setattr(links, "PINGS_OUTSTANDING", 100)
                proxy.slowness = Slowness(delay_s=SLOW_LINK_S)
                while link.round_trips.seconds < 1.5 * SLOW_LINK_S:
                    await anyio.sleep(0.05)
                assert link.round_trips.seconds < 4 * SLOW_LINK_S
                proxy.slowness = Slowness()
                while link.round_trips.seconds > SLOW_LINK_S / 2:
                    await anyio.sleep(0.05)


async def test_the_slower_the_link_the_fewer_slots_are_used() -> None:
    slots = Slots(8)
    used: list[int] = []
    for round_trip_s in (0.0, SLOW_LINK_S, 2 * SLOW_LINK_S, 100.0, 0.0):
        slots.fit(round_trip_s)
        used.append(slots.usable)
    assert used == [8, 8, 4, 1, 8]

"""A link that is slow and works: it is connected over, does not count as dead, and carries nothing twice."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import anyio
import pytest
from gym_runtime.bus import link as links
from gym_runtime.bus import streams
from gym_runtime.bus.nats import connect
from gym_testing.proxy import Proxy, Slowness
from runtime.bus.conftest import linked
from runtime.bus.nats.links import link_of

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

RATE = 400_000
"""Bytes per second."""


@asynccontextmanager
async def far(url: str) -> AsyncGenerator[tuple[Proxy, str]]:
    """A relay to a broker, and its URL there."""
    where = urlsplit(url)
    proxy = Proxy(where.hostname or "", where.port or 0)
    async with proxy.listening() as port:
        yield proxy, where._replace(netloc=where.netloc.replace(f":{where.port}", f":{port}")).geturl()


async def test_a_broker_is_connected_to_over_round_trips_of_more_than_a_second(broker_url: str) -> None:
    async with far(broker_url) as (proxy, url):
        proxy.slowness = Slowness(delay_s=0.6)
        async with linked(url) as link:
            assert link.up


async def test_what_a_slow_link_still_carries_is_not_sent_again_and_does_not_fail(
    broker_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "STORE_ANSWER_S", 0.5)
    monkeypatch.setattr(streams, "PATIENCE_S", 1.0)
    payload, count = b"x" * 100_000, 12
    async with far(broker_url) as (proxy, url), connect(url, prefix=prefix) as bus:
        proxy.slowness = Slowness(bytes_per_s=RATE)
        async with anyio.create_task_group() as tasks:
            for number in range(count):
                tasks.start_soon(bus.enqueue, f"task.a.{number}", payload)
        assert len(await bus.counts("task.>")) == count
        assert link_of(bus).traffic.sent_bytes < 1.2 * count * len(payload)


async def test_a_link_that_brings_much_does_not_count_as_dead(
    broker_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "PING_INTERVAL_S", 0.4)
    async with far(broker_url) as (proxy, url), connect(url, prefix=prefix) as bus:
        for number in range(80):
            await bus.append(f"journal.{number}", b"x" * 20_000)
        proxy.slowness = Slowness(bytes_per_s=RATE)
        records = bus.records("journal.>")
        assert [(await anext(records)).sequence for _ in range(80)] == list(range(1, 81))
        assert link_of(bus).connected_s == -math.inf, "it has connected again"
        await records.aclose()

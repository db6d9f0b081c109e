"""What travels inline, and that a broker never has more for a worker than its buffers hold."""

from __future__ import annotations

import os
import time
from pathlib import Path

import anyio
import pytest
from gym_runtime.bus import blobs as inline
from gym_runtime.bus.blobs import FITTING, SMALL_INLINE_BYTES, pull_terms
from gym_runtime.bus.interface import INLINE_BYTES, Delivery, Incoming
from gym_runtime.bus.nats import connect
from gym_runtime.system.private_broker import Broker
from runtime.bus.conftest import StartServer
from runtime.bus.nats.links import Inbox, link_of, soon
from time_limits import busy


@pytest.mark.slow
@pytest.mark.asyncio
@pytest.mark.parametrize("size", [SMALL_INLINE_BYTES + 1, 2**20 + 1, INLINE_BYTES, INLINE_BYTES + 1])
async def test_at_a_roomy_broker_everything_that_it_takes_travels_inline(
    broker_url: str, prefix: str, size: int
) -> None:
    payload = os.urandom(size)
    async with connect(broker_url, prefix=prefix) as bus, anyio.create_task_group() as tasks:

        def echo(incoming: Incoming) -> None:
            tasks.start_soon(bus.publish, incoming.reply, incoming.payload)

        async with bus.serve("echo", echo):
            assert await bus.request("echo", payload, deadline_s=soon()) == payload
        await bus.append("journal.r1.1", payload)
        assert [record.payload for record in await bus.latest("journal.r1.1")] == [payload]
        stored = await bus._streams.counts("blob.>")
        assert bool(stored) == (size > INLINE_BYTES)


def test_any_task_fits_into_a_pull() -> None:
    for max_payload in (2**20, 8 * 2**20, 32 * 2**20, 64 * 2**20):
        assert pull_terms(FITTING + 1, max_payload)["max_bytes"] >= FITTING * max_payload


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_worker_that_asks_for_many_large_tasks_is_not_disconnected(
    start_server: StartServer, tmp_path: Path, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A roomy broker at an eighth of its size. Without a limit it would have 150 MB for the worker, whose loop
    # is busy, and disconnect it.
    monkeypatch.setattr(inline, "ROOMY_PAYLOAD_BYTES", 4 * 2**20)
    monkeypatch.setattr(inline, "ROOMY_PULL_BYTES", 8 * 2**20)
    roomy = f'max_payload: 4MB\nmax_pending: 96MB\njetstream {{ store_dir: "{tmp_path}/js" }}'
    url, _ = start_server(roomy)
    payload, count = os.urandom(2**20), 150
    changes: list[bool] = []
    done = Inbox(count)

    def block() -> None:
        time.sleep(0.01)

    async def handle(delivery: Delivery) -> None:
        block()
        assert delivery.deliveries == 1
        assert delivery.payload == payload
        await delivery.ack()
        done(delivery.subject)

    async with connect(url, prefix=prefix) as bus, connect(url, prefix=prefix) as worker:
        for number in range(count):
            await bus.enqueue(f"task.a.{number}", payload)
        link_of(worker).watch(changes.append)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: worker.pull("task.>", consumer="a", slots=count, handle=handle))
            assert sorted(await done.full()) == sorted(f"task.a.{number}" for number in range(count))
            tasks.cancel_scope.cancel()
        assert changes == []


@pytest.mark.slow
@pytest.mark.asyncio
@pytest.mark.parametrize(("size", "count"), [(INLINE_BYTES, 12), (2**20, 256), (SMALL_INLINE_BYTES, 400)])
async def test_a_slow_reader_of_many_large_messages_is_not_disconnected(
    broker: Broker, start_server: StartServer, tmp_path: Path, prefix: str, size: int, count: int
) -> None:
    # The broker would have 100 MB or more for the worker, which reads 5 ms for each message.
    small = f'jetstream {{ store_dir: "{tmp_path}/js" }}'
    url = broker.url if size > SMALL_INLINE_BYTES else start_server(small)[0]
    changes: list[bool] = []
    async with connect(url, prefix=prefix) as bus, connect(url, prefix=prefix) as other:
        link_of(other).watch(changes.append)
        async with anyio.create_task_group() as answers:

            def read(incoming: Incoming) -> None:
                time.sleep(0.005)
                answers.start_soon(other.publish, incoming.reply, b"%d" % len(incoming.payload))

            async def ask() -> None:
                assert await bus.request("x", b"x" * size, deadline_s=soon(60 * busy())) == b"%d" % size

            async with other.serve("x", read), anyio.create_task_group() as requests:
                for _ in range(count):
                    requests.start_soon(ask)
        assert changes == []

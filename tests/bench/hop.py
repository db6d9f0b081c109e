"""What one request and its answer cost: ``python tests/bench/hop.py [requests]``.

Caller, worker and broker are three processes; 64 requests are in flight. Prints the CPU time that each
spends per request, in microseconds, and the rate.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import sys
import tempfile
import time
from pathlib import Path

import anyio
import psutil
import uvloop
from gym_runtime.bus.interface import Incoming
from gym_runtime.bus.nats import NatsBus, connect
from gym_runtime.system.private_broker import Broker

IN_FLIGHT = 64
SIZES_BYTES = (256, 4096, 65536)


def worker(url: str, pipe: multiprocessing.connection.Connection) -> None:
    """Answers each request with its payload, until told to stop; reports its CPU time when asked."""
    uvloop.run(_serve(url, pipe))


async def _serve(url: str, pipe: multiprocessing.connection.Connection) -> None:
    async with connect(url) as bus, anyio.create_task_group() as tasks:

        def receive(incoming: Incoming) -> None:
            tasks.start_soon(_answer, bus, incoming)

        def spent(incoming: Incoming) -> None:
            payload = str(time.process_time()).encode()
            tasks.start_soon(bus.publish, incoming.reply, payload)

        def receive_here(incoming: Incoming) -> None:
            # The least a receiver can do: answer from within the callback.
            coroutine = bus.publish(incoming.reply, incoming.payload)
            try:
                coroutine.send(None)
            except StopIteration:
                return

        async with (
            bus.serve("bench.task", receive),
            bus.serve("bench.here", receive_here),
            bus.serve("bench.spent", spent),
        ):
            pipe.send("ready")
            await anyio.to_thread.run_sync(pipe.recv, abandon_on_cancel=True)


async def _answer(bus: NatsBus, incoming: Incoming) -> None:
    await bus.publish(incoming.reply, incoming.payload)


async def _measure(url: str, broker_pid: int, requests: int) -> None:
    broker = psutil.Process(broker_pid)

    def broker_s() -> float:
        times = broker.cpu_times()
        return times.user + times.system

    async with connect(url) as bus:

        async def worker_s() -> float:
            return float(await bus.request("bench.spent", b"", deadline_s=time.monotonic() + 5))

        async def lane(subject: str, payload: bytes, count: int) -> None:
            for _ in range(count):
                await bus.request(subject, payload, deadline_s=time.monotonic() + 20)

        async def burst(subject: str, payload: bytes, count: int) -> None:
            async with anyio.create_task_group() as tasks:
                for _ in range(IN_FLIGHT):
                    tasks.start_soon(lane, subject, payload, count // IN_FLIGHT)

        print("answer    bytes  caller us  worker us  broker us  requests/s")
        for subject in ("bench.here", "bench.task"):
            for size in SIZES_BYTES:
                payload = b"x" * size
                count = requests if size < 65536 else requests // 8
                await burst(subject, payload, count // 10)
                before = (time.process_time(), await worker_s(), broker_s(), time.perf_counter())
                await burst(subject, payload, count)
                after = (time.process_time(), await worker_s(), broker_s(), time.perf_counter())
                caller, served, broke, wall = (
                    (b - a) / count * 1e6 for a, b in zip(before, after, strict=True)
                )
                print(
                    f"{subject[6:]:6} {size:8} {caller:10.1f} {served:10.1f} {broke:10.1f} {1e6 / wall:11.0f}"
                )


def main() -> None:
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 32_000
    with tempfile.TemporaryDirectory() as directory:
        broker = Broker(Path(directory))
        url = broker.start()
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.get_context("spawn").Process(target=worker, args=(url, theirs), daemon=True)
        process.start()
        try:
            ours.recv()
            uvloop.run(_measure(url, broker.pid, requests))
        finally:
            ours.send("stop")
            process.join(5)
            broker.stop()


if __name__ == "__main__":
    main()

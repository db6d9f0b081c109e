"""What it costs the broker to know who is alive: many light workers that do nothing else.

    python tests/bench/liveness.py --agents 500 --resources 500 --models 500

Every worker is a real connection that announces itself; every agent worker also follows all others and has
its share of the watch. They live in a few processes, whose own load does not count. The broker's CPU is read
from the system, its messages from its monitoring.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import time
import urllib.request
from contextlib import AsyncExitStack
from multiprocessing.synchronize import Barrier
from pathlib import Path

import anyio
import msgspec
import psutil
from anyio.abc import TaskGroup
from gym_runtime.bus.connection import connect
from gym_runtime.rpc.announcing import announce
from gym_runtime.rpc.members import Members
from gym_runtime.rpc.registry import Heartbeat
from gym_runtime.system.private_broker import Broker
from measure import cpu_s, print_table


async def _live(url: str, workers: list[tuple[str, str]], barrier: Barrier, known: int) -> None:
    followers: list[Members] = []

    async def one(stack: AsyncExitStack, tasks: TaskGroup, kind: str, name: str) -> None:
        bus = await stack.enter_async_context(connect(url, name=name))
        heartbeat = Heartbeat(worker=name, kind=kind, pools=["policy"], host="bench", pid=1)
        if kind == "agent":
            followers.append(members := Members(bus, own=name))
            tasks.start_soon(members.follow)
        tasks.start_soon(announce, bus, lambda: heartbeat)

    async with AsyncExitStack() as stack, anyio.create_task_group() as tasks:
        for kind, name in workers:
            await one(stack, tasks, kind, name)
        while any(sum(len(view.alive()) for view in it.views.values()) < known for it in followers):
            await anyio.sleep(0.5)
        await anyio.to_thread.run_sync(barrier.wait)
        await anyio.to_thread.run_sync(barrier.wait)
        # Hundreds of orderly departures would be a measurement of their own.
        os._exit(0)


def _process(url: str, workers: list[tuple[str, str]], barrier: Barrier, known: int) -> None:
    anyio.run(_live, url, workers, barrier, known, backend_options={"use_uvloop": True})


def _messages(monitoring: str) -> int:
    with urllib.request.urlopen(f"{monitoring}/varz") as answer:
        found = msgspec.json.decode(answer.read())
    return found["in_msgs"] + found["out_msgs"]


def measure(agents: int, resources: int, models: int, *, processes: int, seconds: float) -> list[object]:
    """One line of the table."""
    counts = {"agent": agents, "resource": resources, "model": models}
    workers = [(kind, f"{kind}-{number}") for kind, count in counts.items() for number in range(count)]
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker(Path(folder))
        url = broker.start()
        barrier = context.Barrier(processes + 1)
        shares = [workers[number::processes] for number in range(processes)]
        lives = [
            context.Process(target=_process, args=(url, share, barrier, len(workers))) for share in shares
        ]
        for life in lives:
            life.start()
        began_s = time.perf_counter()
        barrier.wait()
        known_s = time.perf_counter() - began_s
        time.sleep(10)
        process = psutil.Process(broker.pid)
        monitoring = broker.monitor_url
        cpu, messages, start_s = cpu_s([process]), _messages(monitoring), time.perf_counter()
        time.sleep(seconds)
        took_s = time.perf_counter() - start_s
        cpu, messages = cpu_s([process]) - cpu, _messages(monitoring) - messages
        memory = process.memory_info().rss
        barrier.wait()
        for life in lives:
            life.join()
        broker.stop()
    return [
        f"{agents}/{resources}/{models}",
        f"{messages / took_s:.0f}",
        f"{cpu / took_s:.1%}",
        f"{memory / 2**20:.0f} MiB",
        f"{known_s:.0f} s",
    ]


def main() -> None:
    """Measure and print one line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=500)
    parser.add_argument("--resources", type=int, default=500)
    parser.add_argument("--models", type=int, default=500)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    line = measure(
        options.agents,
        options.resources,
        options.models,
        processes=options.processes,
        seconds=options.seconds,
    )
    header = ["agents/resources/models", "messages/s in and out", "broker, one core", "memory", "all known"]
    print_table("Who is alive", header, [line])


if __name__ == "__main__":
    main()

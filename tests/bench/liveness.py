"""What it costs the broker to know who is alive: many light workers that do nothing else.

    python tests/bench/liveness.py --agents 500 --resources 500 --models 500

Every worker is a real connection that announces itself; every agent worker also hears all announcements and
asks its share of the members. They live in a few processes, whose own load does not count. The broker's CPU
is read from the system, its messages from its monitoring.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import tempfile
import time
import urllib.request
from collections import defaultdict
from contextlib import AsyncExitStack
from functools import partial
from multiprocessing.synchronize import Barrier
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
import psutil
from gym_runtime.bus.interface import Bus, Incoming
from gym_runtime.bus.nats import connect
from gym_runtime.rpc.members import Heartbeat, announce
from gym_runtime.rpc.watch import ring_of, watcher
from gym_runtime.system.private_broker import Broker
from gym_runtime.timing import MEMBER_ASKED_S
from measure import cpu_s, print_table


class LightAgent:
    """An agent worker as the broker sees it: hears every announcement, and asks its share of the members.

    It keeps no list of its own, so that one process can hold hundreds.
    """

    def __init__(self, bus: Bus, share: list[str]) -> None:
        self._bus = bus
        self._share = share

    async def run(self) -> None:
        async with (
            self._bus.serve("join.>", _ignore),
            self._bus.serve("gone.>", _ignore),
            self._bus.serve("call", _ignore),
            anyio.create_task_group() as tasks,
        ):
            await anyio.sleep(random.uniform(0.0, MEMBER_ASKED_S))
            while True:
                for name in self._share:
                    tasks.start_soon(self._ask, name)
                await anyio.sleep(MEMBER_ASKED_S)

    async def _ask(self, name: str) -> None:
        await self._bus.request(f"alive.{name}", b"", deadline_s=time.monotonic() + 60)


def _ignore(_: Incoming) -> None:
    pass


async def _live(url: str, workers: list[Heartbeat], shares: dict[str, list[str]], barrier: Barrier) -> None:
    async with anyio.create_task_group() as tasks, AsyncExitStack() as stack:
        agents: list[LightAgent] = []
        for worker in workers:
            bus = await stack.enter_async_context(connect(url, name=worker.name))
            ready = anyio.Event()
            tasks.start_soon(partial(announce, bus, partial(_same, worker), ready=ready.set))
            await ready.wait()
            if worker.kind == "agent":
                agents.append(LightAgent(bus, shares[worker.name]))
        await anyio.to_thread.run_sync(barrier.wait)
        for agent in agents:
            tasks.start_soon(agent.run)
        await anyio.to_thread.run_sync(barrier.wait)
        # Hundreds of orderly departures would be their own measurement.
        os._exit(0)


def _same(worker: Heartbeat) -> Heartbeat:
    return worker


def _process(url: str, workers: list[Heartbeat], shares: dict[str, list[str]], barrier: Barrier) -> None:
    anyio.run(_live, url, workers, shares, barrier, backend_options={"use_uvloop": True})


def _messages(monitoring: str) -> int:
    with urllib.request.urlopen(f"{monitoring}/varz") as answer:
        found = msgspec.json.decode(answer.read())
    return found["in_msgs"] + found["out_msgs"]


def measure(agents: int, resources: int, models: int, *, processes: int, seconds: float) -> list[object]:
    """One line of the table."""
    counts = {"agent": agents, "resource": resources, "model": models}
    workers = [
        Heartbeat(worker=f"{kind}-{number}", kind=kind, pools=["policy"], host="bench", pid=number)
        for kind, count in counts.items()
        for number in range(count)
    ]
    ring = ring_of(worker.name for worker in workers if worker.kind == "agent")
    shares: dict[str, list[str]] = defaultdict(list)
    for worker in workers:
        shares[watcher(ring, worker.name) or ""].append(worker.name)
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker(Path(folder))
        url = broker.start()
        barrier = context.Barrier(processes + 1)
        lives = [
            context.Process(target=_process, args=(url, workers[number::processes], shares, barrier))
            for number in range(processes)
        ]
        for life in lives:
            life.start()
        barrier.wait()
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
    header = ["agents/resources/models", "messages/s in and out", "broker, one core", "memory"]
    print_table("Who is alive", header, [line])


if __name__ == "__main__":
    main()

"""How large a system may be: clients, sessions, agent workers, rollouts in flight; and run after run.

    python tests/bench/scale.py clients --count 50       # each with its own run, at the same time
    python tests/bench/scale.py sessions --count 10000   # open at the same time, each asked twice
    python tests/bench/scale.py agents --count 500       # workers, each with its own connection
    python tests/bench/scale.py held --count 70000       # tasks of one queue that workers hold and keep alive
    python tests/bench/scale.py in-flight --count 70000  # rollouts of one agent: needs a quiet machine
    python tests/bench/scale.py runs --count 60          # one after another, a third of them cancelled

A real broker and real workers; the model is scripted. Each case also checks that every rollout was made once.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial

import anyio
from batch import size_bytes
from counter_rows import ENVIRONMENT, counter_rows
from gym_runtime.bus.interface import Delivery
from gym_runtime.bus.nats import connect as connect_bus
from gym_runtime.client import connect
from gym_runtime.client.client import Client
from gym_runtime.messages.outcomes import RolloutRecord
from gym_runtime.rpc.members import Heartbeat, announce
from gym_runtime.system.worker_process import hosted_worker
from measure import print_table
from scene import AGENT, agents, check, environments, models, published, redelivered, scene


async def clients(count: int) -> None:
    """Clients at one time, with their own connections, and 100 rollouts each."""
    each = 100
    ended_s: list[float] = []
    async with scene(agents(1024), environments(), models(0.1)) as here, AsyncExitStack() as stack:
        others = [await stack.enter_async_context(connect(nats=here.broker.url)) for _ in range(count)]
        here.begin()
        start_s = time.monotonic()

        async def run(gym: Client) -> None:
            made = gym.rollouts(counter_rows(each), environment=ENVIRONMENT)
            check([record async for record in made], each)
            ended_s.append(time.monotonic() - start_s)

        async with anyio.create_task_group() as tasks:
            for gym in others:
                tasks.start_soon(run, gym)
        title = f"{count} clients at once, {each} rollouts each: {count * each / max(ended_s):.0f} a second, "
        title += (
            f"the first client had its own after {min(ended_s):.1f} s and the last after {max(ended_s):.1f} s"
        )
        print_table(title, ["process", "of a core", "MiB"], here.rows())


async def sessions(count: int) -> None:
    """Sessions open at one time. Each is opened, asked for its count once all are open, and closed."""
    row = counter_rows(1)[0]
    async with scene(environments(), models()) as here:
        before = here.mib()
        opened = anyio.Semaphore(256)  # requests at a time, not sessions
        everyone, looked = anyio.Event(), anyio.Event()
        waiting = asked = 0
        started_s = time.monotonic()
        took_s: list[float] = []

        async def one() -> None:
            nonlocal waiting, asked
            await opened.acquire()
            async with here.gym.session(row, environment=ENVIRONMENT) as session:
                opened.release()
                waiting += 1
                if waiting == count:
                    took_s.append(time.monotonic() - started_s)
                    everyone.set()
                await everyone.wait()
                async with opened:
                    assert "3" in await session.call("get_counter_value")
                asked += 1
                if asked == count:
                    took_s.append(time.monotonic() - started_s)
                    looked.set()
                await looked.wait()
                if not before.get("open"):
                    before["open"] = 1.0
                    after = here.mib()
                    print(f"{count:,} sessions: opened after {took_s[0]:.1f} s, ", end="")
                    print(f"each asked once more after {took_s[1]:.1f} s")
                    for name in ("resource worker", "client", "broker"):
                        each = (after[name] - before[name]) * 1024 / count
                        print(
                            f"  {name}: {before[name]:.0f} MiB, then {after[name]:.0f}: {each:.1f} KiB each"
                        )

        async with anyio.create_task_group() as tasks:
            for _ in range(count):
                tasks.start_soon(one)
        with anyio.fail_after(30):
            while any(one.in_use for one in (await here.gym.status()).workers):
                await anyio.sleep(0.2)
        print(f"  closed after {time.monotonic() - started_s:.1f} s, {here.mib()['resource worker']:.0f} MiB")


async def _host(url: str, numbers: range, slots: int) -> None:
    """Agent workers in one process, until it is killed."""
    async with AsyncExitStack() as stack, anyio.create_task_group() as tasks:
        for number in numbers:
            name = f"agent-{number:05d}"
            bus = await stack.enter_async_context(connect_bus(url, name=name, role="agent"))
            pool = agents(slots)
            member = await stack.enter_async_context(hosted_worker(pool, bus, name))
            ready = anyio.Event()
            tasks.start_soon(partial(member.hosted.run, ready=ready.set))
            await ready.wait()
            tasks.start_soon(announce, bus, partial(_heartbeat, name, slots, member.in_use))


def _heartbeat(name: str, slots: int, in_use: Callable[[], int]) -> Heartbeat:
    return Heartbeat(
        worker=name,
        kind="agent",
        pools=[AGENT],
        host=socket.gethostname(),
        pid=os.getpid(),
        capacity=slots,
        in_use=in_use(),
        places=True,
    )


def _run(work: Callable[..., Awaitable[None]], *arguments: object) -> None:
    anyio.run(work, *arguments, backend_options={"use_uvloop": True})


async def working_agents(count: int) -> None:
    """Agent workers with 4 slots each, and rollouts of two turns that take 10 s each."""
    slots, turn_s, processes = 4, 10.0, 4
    total = 4 * slots * count
    context = multiprocessing.get_context("spawn")
    async with scene(environments(), models(turn_s)) as here:
        hosts = [
            context.Process(
                target=_run, args=(_host, here.broker.url, range(n, count, processes), slots), daemon=True
            )
            for n in range(processes)
        ]
        started_s = time.monotonic()
        for host in hosts:
            host.start()
        try:
            with anyio.fail_after(120):
                while sum(one.kind == "agent" for one in await here.gym.workers()) < count:
                    await anyio.sleep(0.5)
            print(f"{count} agent workers were there after {time.monotonic() - started_s:.1f} s")
            await published(here.gym, total)
            here.watch("agent workers", *(host.pid or 0 for host in hosts))
            here.begin()
            began_s = time.monotonic()
            records = [record async for record in here.gym.collect("run")]
            took_s = time.monotonic() - began_s
            check(records, total)
            used = Counter(record.worker for record in records)
            title = f"{count} agent workers: {total / took_s:.0f} rollouts/s, slots / latency "
            title += (
                f"{slots * count / (2 * turn_s):.0f}; each made {min(used.values())} to {max(used.values())}"
            )
            assert len(used) == count
            print_table(title, ["process", "of a core", "MiB"], here.rows())
        finally:
            for host in hosts:
                host.kill()
                host.join()


async def in_flight(count: int) -> None:
    """Rollouts of one agent in flight at one time, over four workers; an engine that takes a minute."""
    workers = 4
    slots = -(-count // workers)
    pools = (agents(slots, workers), environments(workers), models(60.0, workers))
    async with scene(*pools) as here:
        await published(here.gym, count)
        most = 0
        started_s = time.monotonic()

        async def watch() -> None:
            nonlocal most
            while True:
                depth = await here.gym.driver.bus.depth(f"agent-{AGENT}")
                most = max(most, depth.in_flight)
                await anyio.sleep(1)

        records: list[RolloutRecord] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            async for record in here.gym.collect("run"):
                records.append(record)
            tasks.cancel_scope.cancel()
        check(records, count)
        title = f"{count:,} rollouts, {most:,} of them in flight at one time; all after "
        print_table(
            f"{title}{time.monotonic() - started_s:.0f} s", ["process", "of a core", "MiB"], here.rows()
        )


async def _hold(url: str, slots: int) -> None:
    """Take so many tasks, and keep them alive without working on them, until killed."""

    async def handle(_: Delivery) -> None:
        await anyio.sleep_forever()

    async with connect_bus(url, name=f"holder-{os.getpid()}") as bus:
        await bus.pull(f"task.{AGENT}.>", consumer=f"agent-{AGENT}", slots=slots, handle=handle)


async def held(count: int) -> None:
    """Tasks of one queue that four connections hold at one time: the queue alone, without rollouts."""
    processes, seconds = 4, 20.0
    context = multiprocessing.get_context("spawn")
    async with scene() as here:
        await published(here.gym, count)
        holders = [
            context.Process(target=_run, args=(_hold, here.broker.url, -(-count // processes)), daemon=True)
            for _ in range(processes)
        ]
        started_s = time.monotonic()
        for holder in holders:
            holder.start()
        try:
            depth = await here.gym.driver.bus.depth(f"agent-{AGENT}")
            with anyio.fail_after(120):
                while depth.in_flight < count:
                    await anyio.sleep(0.2)
                    depth = await here.gym.driver.bus.depth(f"agent-{AGENT}")
            title = f"{depth.in_flight:,} tasks in flight after {time.monotonic() - started_s:.1f} s; "
            here.watch("holders", *(holder.pid or 0 for holder in holders))
            here.begin()
            await anyio.sleep(seconds)
            depth = await here.gym.driver.bus.depth(f"agent-{AGENT}")
            title += f"{seconds:.0f} s later {depth.in_flight:,} and {depth.waiting} waiting, "
            title += f"{redelivered(here.broker)} delivered again"
            print_table(title, ["process", "of a core", "MiB"], here.rows())
        finally:
            for holder in holders:
                holder.kill()
                holder.join()


async def runs(count: int) -> None:
    """Runs of 100 rollouts one after another in a system that stays; every third is cancelled half-way."""
    each = 100
    lines: list[list[object]] = []
    async with scene(agents(64), environments(), models(0.02)) as here:
        for number in range(count):
            made = here.gym.rollouts(counter_rows(each), environment=ENVIRONMENT)
            done = 0
            async for _ in made:
                done += 1
                if number % 3 == 2 and done == each // 2:
                    break
            await made.aclose()
            if (number + 1) % (count // 6) == 0:
                await anyio.sleep(2)
                memory = here.mib()
                workers = (await here.gym.status()).workers
                held = sum(one.in_use for one in workers)
                disk = size_bytes(here.folder) / 1024
                lines.append([number + 1, *(f"{mib:.1f}" for mib in memory.values()), f"{disk:.0f}", held])
        names = [f"{name} MiB" for name in here.mib()]
    print_table(f"{count} runs of {each}", ["runs", *names, "disk KiB", "sessions and slots in use"], lines)


CASES: dict[str, tuple[Callable[[int], Awaitable[None]], int]] = {
    "clients": (clients, 50),
    "sessions": (sessions, 10_000),
    "agents": (working_agents, 500),
    "held": (held, 70_000),
    "in-flight": (in_flight, 70_000),
    "runs": (runs, 60),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--count", type=int, default=0)
    options = parser.parse_args()
    case, usual = CASES[options.case]
    anyio.run(case, options.count or usual, backend_options={"use_uvloop": True})


if __name__ == "__main__":
    main()

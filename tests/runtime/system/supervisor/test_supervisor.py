"""The supervisor: what it says, and what it starts again."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import anyio
import psutil
import pytest
from gym_runtime import connect
from gym_runtime.client import make_pools
from gym_runtime.system.private_broker import Broker
from gym_runtime.system.spec import Event, PoolSpec, SystemSpec
from gym_runtime.system.system import launch, running
from gym_runtime.workers.adapter import ModelSettings
from runtime.system.supervisor.supervised import (
    NAME,
    gone,
    is_empty,
    pid_of,
    processes_of,
    rows,
    spec,
    works,
)
from runtime.system.supervisor.supervised import (
    model as hosted_model,
)
from stubs import stub_engine
from time_limits import busy

pytestmark = [pytest.mark.slow, pytest.mark.anyio, pytest.mark.timeout(60)]


async def test_it_says_where_the_broker_is_and_who_is_ready_and_leaves_nothing_behind(
    temporary: Path,
) -> None:
    said: list[Event] = []
    async with running(spec(workers=2), said.append) as system:
        pids = processes_of(system)
        assert [event.event for event in said] == ["broker", *["ready"] * 6, "all_ready"]
        assert said[0].url == system.url
        # A resource worker also asks in a child whether there is a sandbox.
        assert {event.pid for event in said[1:-1]} | {system.pid, said[0].pid} <= pids
        kinds = Counter(event.kind for event in system.workers.values())
        assert kinds == {"agent": 2, "resource": 2, "model": 2}
        assert not is_empty(temporary)
        await works(system)
    await gone(pids, within_s=5)  # what a worker has asked in a child may end a moment later
    assert is_empty(temporary)


async def test_ps_tells_the_processes_apart() -> None:
    async with running(spec()) as system:
        titles = {
            kind: " ".join(psutil.Process(pid_of(system, kind)).cmdline())
            for kind in ("agent", "resource", "model")
        }
        assert titles["agent"].startswith("gym-runtime agent tool_loop (agent-")
        assert titles["resource"].startswith(f"gym-runtime resource {NAME} (resource-")
        assert titles["model"].startswith("gym-runtime model policy (model-")
        assert " ".join(psutil.Process(system.pid).cmdline()).strip() == "gym-runtime supervisor"


@pytest.mark.skipif(sys.platform != "linux", reason="the policy is Linux's")
async def test_workers_and_the_broker_take_turns_and_an_engine_in_a_worker_does_not() -> None:
    def policies(*pids: int) -> set[int]:
        found: set[int] = set()
        for thread in (task.id for pid in pids for task in psutil.Process(pid).threads()):
            with suppress(ProcessLookupError):  # it has ended meanwhile
                found.add(os.sched_getscheduler(thread))
        return found

    with stub_engine.running() as engine:
        asking = ModelSettings(provider="openai", name="stub", urls=(engine.url,))
        for model, expected in ((asking, os.SCHED_BATCH), (hosted_model(), os.SCHED_OTHER)):
            pools = make_pools([NAME], model, workers=1, concurrency=16)
            async with running(SystemSpec(pools=pools)) as system:
                agent, resource = pid_of(system, "agent"), pid_of(system, "resource")
                assert policies(system.broker_pid, agent, resource) == {os.SCHED_BATCH}
                assert policies(pid_of(system, "model")) == {expected}
                assert policies(system.pid) == {os.sched_getscheduler(0)} == {os.SCHED_OTHER}


async def test_with_a_broker_of_somebody_elses_it_starts_and_stops_none(broker: Broker) -> None:
    async with running(spec(nats=(broker.url,))) as system:
        assert (system.url, system.broker_pid) == (broker.url, 0)
        await works(system)
    assert broker.poll() is None


async def test_several_systems_share_a_broker_by_their_prefixes(broker: Broker) -> None:
    async with (
        running(spec(nats=(broker.url,), prefix="one")),
        connect(nats=broker.url, prefix="one") as one,
        connect(nats=broker.url, prefix="two") as two,
    ):
        assert len(await one.workers()) == 3
        assert await two.workers() == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets one make a pipe small")
async def test_an_owner_who_does_not_listen_holds_nothing_up() -> None:
    system = launch(SystemSpec(pools=(PoolSpec(kind="resource", names=("mcqa",), processes=2),)))
    try:
        assert system._process.stdout is not None  # pyright: ignore[reportPrivateUsage]
        fcntl.fcntl(system._process.stdout, fcntl.F_SETPIPE_SZ, 4096)  # pyright: ignore[reportPrivateUsage]
        broker = await system.until("broker")
        # The pipe is full from here on, as after the events of many workers.
        writing = os.open(f"/proc/{system.pid}/fd/1", os.O_WRONLY | os.O_NONBLOCK)
        with suppress(BlockingIOError):
            while os.write(writing, b"\n"):
                pass
        os.close(writing)
        async with connect(nats=broker.url) as gym:
            with anyio.fail_after(40 * busy()):
                while len(await gym.workers()) < 2:
                    await anyio.sleep(0.1)
        os.kill(system.pid, signal.SIGTERM)
        await gone({system.pid}, within_s=15)
    finally:
        system.kill()


@pytest.mark.parametrize("kind", ["agent", "resource", "model"])
async def test_a_worker_that_is_killed_is_started_again_and_works(kind: str) -> None:
    async with running(spec()) as system:
        pid = pid_of(system, kind)
        os.kill(pid, signal.SIGKILL)
        with anyio.fail_after(15 * busy()):
            restarted = await system.until("restarted")
            ready = await system.until("ready")
        assert (restarted.kind, restarted.pid) == (kind, pid)
        assert restarted.reason == f"{kind} worker {pid} was killed by SIGKILL"
        assert ready.kind == kind
        assert pid_of(system, kind) == ready.pid != pid
        assert len(system.workers) == 3
        await works(system)


async def test_the_broker_is_started_again_where_it_was_with_what_it_had() -> None:
    async with running(spec()) as system, connect(nats=system.url) as gym:
        pid = system.broker_pid
        records = gym.rollouts(rows(200), environment=NAME)
        await anext(records)
        os.kill(pid, signal.SIGKILL)
        with anyio.fail_after(15 * busy()):
            restarted = await system.until("restarted")
        assert (restarted.kind, restarted.reason) == ("broker", "the broker died")
        assert system.broker_pid not in (0, pid)
        with anyio.fail_after(30 * busy()):
            assert len([record async for record in records]) == 199

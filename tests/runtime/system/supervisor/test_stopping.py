"""Stopping: draining, giving back, signals."""

from __future__ import annotations

import getpass
import os
import signal
import socket
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import msgspec
import pytest
from gym_runtime import connect
from gym_runtime.client import Client, RunInfo
from gym_runtime.errors import UsageError
from gym_runtime.files.rows import expand
from gym_runtime.system.private_broker import Broker
from gym_runtime.system.spec import Event
from gym_runtime.system.system import launch, running
from gym_testing.proxy import Proxy, Slowness
from runtime.system.supervisor.supervised import (
    NAME,
    alive,
    draining,
    gone,
    in_the_middle,
    pid_of,
    processes_of,
    rows,
    spec,
    works,
)
from time_limits import busy

pytestmark = [pytest.mark.slow, pytest.mark.anyio, pytest.mark.timeout(60)]


async def finished_what_was_in_flight(gym: Client) -> None:
    """Of the 40 rollouts `in_the_middle`; a few may have ended, and others begun, before the signal came."""
    done = len(await gym.driver.bus.counts("rollout.run.>"))
    assert 16 <= done < 40
    assert (await gym.driver.bus.depth("agent-tool_loop")).waiting == 40 - done


async def begun(gym: Client) -> int:
    """The rollouts that are in flight or have ended."""
    in_flight = (await gym.driver.bus.depth("agent-tool_loop")).in_flight
    return in_flight + len(await gym.driver.bus.counts("rollout.run.>"))


async def test_draining_finishes_what_is_in_flight_and_leaves_the_rest_on_the_queue(broker: Broker) -> None:
    async with in_the_middle(broker, latency_s=1.0) as (system, gym):
        with anyio.fail_after(15 * busy()):
            await system.stop()
        await finished_what_was_in_flight(gym)
        assert await gym.workers() == []


async def test_stopping_without_patience_gives_everything_back_at_once(broker: Broker) -> None:
    async with in_the_middle(broker, latency_s=600) as (system, gym):
        with anyio.fail_after(15 * busy()):
            await system.stop(drain=False)
        assert await gym.driver.bus.counts("rollout.run.>") == {}
        assert await gym.workers() == []
        async with running(spec(nats=(broker.url,))):
            with anyio.fail_after(15 * busy()):
                assert len([record async for record in gym.collect("run")]) == 40


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_to_the_supervisor_drains(broker: Broker, number: signal.Signals) -> None:
    async with in_the_middle(broker, latency_s=1.0) as (system, gym):
        os.kill(system.pid, number)
        with anyio.fail_after(15 * busy()):
            await system.until("stopped")
        await finished_what_was_in_flight(gym)


async def test_a_signal_to_every_process_drains_however_often_it_comes(broker: Broker) -> None:
    async with in_the_middle(broker, latency_s=1.0) as (system, gym):
        pids = sorted(processes_of(system) - {system.pid})
        for pid in (*pids, system.pid, *pids):
            with suppress(ProcessLookupError):  # what a worker asks in a child is answered
                os.kill(pid, signal.SIGTERM)
        with anyio.fail_after(15 * busy()):
            await system.until("stopped")
        # Their second turns asked a model and an environment that had been signalled too.
        await finished_what_was_in_flight(gym)


async def test_a_signal_to_every_process_and_the_broker_loses_no_result(tmp_path: Path) -> None:
    state = tmp_path / "state"
    system = launch(spec(latency_s=1.0, state_dir=str(state)))
    try:
        await system.until("all_ready")
        async with connect(nats=system.url) as gym:
            await gym.driver.open_run(RunInfo(run="run", total=10))
            await gym.driver.publish(
                expand([msgspec.json.encode(row) for row in rows(10)], run="run", environment=NAME)
            )
            with anyio.fail_after(15 * busy()):
                while await begun(gym) < 10:
                    await anyio.sleep(0.02)
        for pid in processes_of(system):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        with anyio.fail_after(20 * busy()):
            await system.until("stopped")
    finally:
        system.kill()
    broker = Broker(state)
    try:
        async with connect(nats=broker.start()) as gym:
            assert len(await gym.driver.bus.counts("rollout.run.>")) == 10
    finally:
        broker.stop()


async def test_what_takes_longer_than_the_limit_goes_back_within_the_grace_of_platforms(
    broker: Broker,
) -> None:
    system = launch(spec(nats=(broker.url,), latency_s=600, drain_s=1.0))
    try:
        await system.until("all_ready")
        async with connect(nats=broker.url) as gym:
            await gym.driver.open_run(RunInfo(run="run", total=5))
            await gym.driver.publish(
                expand([msgspec.json.encode(row) for row in rows(5)], run="run", environment=NAME)
            )
            with anyio.fail_after(15 * busy()):
                while await busiest(gym, "model") < 5:
                    await anyio.sleep(0.05)
            os.kill(system.pid, signal.SIGTERM)
            with anyio.fail_after((1.0 + 4.0) * busy()):
                await system.until("stopped")
            assert await gym.workers() == []
            assert (await gym.driver.bus.depth("agent-tool_loop")).in_flight + (
                await gym.driver.bus.depth("agent-tool_loop")
            ).waiting == 5
    finally:
        system.kill()


async def test_workers_that_are_asked_to_leave_are_not_replaced_and_the_last_one_ends_the_system(
    broker: Broker,
) -> None:
    said: list[Event] = []
    async with running(spec(nats=(broker.url,), workers=2)) as system, connect(nats=broker.url) as gym:
        first, second = (event.worker for event in system.workers.values() if event.kind == "agent")
        asked = await gym.drain(first)
        assert [(worker.worker, answer.in_flight) for worker, answer in asked] == [(first, 0)]
        with anyio.fail_after(15 * busy()):
            assert (await system.until("drained", said.append)).worker == first
        await works(system)
        assert {record.worker for record in await gym.workers() if record.kind == "agent"} == {second}
        with pytest.raises(UsageError, match="worker, pool or host 'agnet'; did you mean 'agent'"):
            await gym.drain("agnet")
        await gym.drain(socket.gethostname())
        with anyio.fail_after(15 * busy()):
            await system.until("stopped", said.append)
    assert "restarted" not in [event.event for event in said]


async def test_a_signal_to_one_worker_has_it_leave(broker: Broker) -> None:
    async with running(spec(nats=(broker.url,), workers=2)) as system:
        pid = pid_of(system, "resource")
        os.kill(pid, signal.SIGTERM)
        with anyio.fail_after(15 * busy()):
            assert (await system.until("drained")).pid == pid
        await works(system)


async def test_a_worker_that_says_it_is_ready_can_be_asked_to_leave(broker: Broker) -> None:
    where = urlsplit(broker.url)
    proxy = Proxy(where.hostname or "", where.port or 0)
    proxy.slowness = Slowness(delay_s=0.2)
    async with proxy.listening() as port, connect(nats=broker.url) as gym:
        url = where._replace(netloc=where.netloc.replace(f":{where.port}", f":{port}")).geturl()
        async with running(spec(nats=(url,))) as system:
            asked = await gym.drain("agent", "resource", "model")
            assert {worker.worker for worker, _ in asked} == set(system.workers)
            with anyio.fail_after(30 * busy()):
                await system.until("stopped")


async def test_a_worker_that_hangs_while_it_leaves_is_killed(broker: Broker) -> None:
    async with (
        running(spec(nats=(broker.url,), workers=2, drain_s=1)) as system,
        connect(nats=broker.url) as gym,
    ):
        worker = next(event for event in system.workers.values() if event.kind == "resource")
        await gym.drain(worker.worker)
        os.kill(worker.pid, signal.SIGSTOP)
        with anyio.fail_after(15 * busy()):
            assert (await system.until("drained")).pid == worker.pid
        await works(system)


async def busiest(gym: Client, kind: str) -> int:
    return max((worker.in_use for worker in await gym.workers() if worker.kind == kind), default=0)


@pytest.mark.parametrize("kind", ["resource", pytest.param("model", marks=pytest.mark.soak)])
async def test_what_a_killed_agent_has_left_at_a_worker_does_not_delay_the_end(
    broker: Broker, kind: str
) -> None:
    # A resource worker holds sessions from the first answer on, a model worker calls at once.
    async with in_the_middle(broker, latency_s=3 if kind == "resource" else 600) as (system, gym):
        with anyio.fail_after(20 * busy()):
            while await busiest(gym, kind) < 16:
                await anyio.sleep(0.05)
        os.kill(pid_of(system, "agent"), signal.SIGKILL)
        with anyio.fail_after(15 * busy()):
            await system.until("restarted")
            await system.until("ready")
            await gym.cancel("run")
        with anyio.fail_after(15 * busy()):
            await system.stop()


async def test_when_the_owner_gives_up_in_the_middle_of_draining_it_ends_soon(broker: Broker) -> None:
    async with in_the_middle(broker, latency_s=600) as (system, gym):
        pids = processes_of(system)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(system.stop)
            await draining(gym)
            assert alive(pids)
            system._process.stdin.close()  # type: ignore[union-attr]  # as the owner's death does
            await gone(pids - {system.pid}, within_s=6)


async def test_the_log_says_who_asked_to_drain_and_who_cancelled(
    broker: Broker, capfd: pytest.CaptureFixture[str]
) -> None:
    me = f"{getpass.getuser()}@{socket.gethostname()}"
    async with in_the_middle(broker, latency_s=600) as (system, gym):
        await gym.cancel("run", 3)
        with anyio.fail_after(15 * busy()):
            while len(await gym.driver.bus.counts("rollout.run.>")) < 1:
                await anyio.sleep(0.02)
        await gym.drain("resource")
        with anyio.fail_after(15 * busy()):
            await system.until("drained")
    lines = capfd.readouterr().err.splitlines()
    (cancelled,) = (line for line in lines if "rollouts are cancelled" in line)
    (drained,) = (line for line in lines if "asked to drain" in line)
    assert me in cancelled
    assert "run.3" in cancelled
    assert me in drained

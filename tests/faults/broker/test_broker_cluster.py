"""A cluster of three brokers of which one fails."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from faults.broker.broker_runs import ENVIRONMENT, ROLLOUTS, Command, row, server
from gym_runtime import connect
from gym_runtime.bus import nats, stream_reader, streams
from gym_runtime.bus.streams import ESSENTIALS
from gym_runtime.client import make_pools, status
from gym_runtime.errors import BrokerError
from gym_runtime.rpc.members import fresh
from gym_runtime.system.spec import SystemSpec
from gym_runtime.system.system import running
from gym_runtime.workers.adapter import ModelSettings
from ports import free_port
from time_limits import busy

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.anyio, pytest.mark.timeout(180)]


@asynccontextmanager
async def cluster(folder: Path) -> AsyncGenerator[dict[str, tuple[str, int]]]:
    """Three brokers that store together, once they agree on a leader; URL and process of each by its name."""
    first = free_port()
    ports = [first, first + 1, first + 2]
    routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports)
    with ExitStack() as stack:
        nodes: dict[str, tuple[str, int]] = {}
        for number, port in enumerate(ports):
            config = (
                f'server_name: "node{number}"\nlisten: "127.0.0.1:-1"\nmax_payload: 8MB\n'
                f'cluster {{ name: "three", listen: "127.0.0.1:{port}", routes: [{routes}] }}'
            )
            url, _, pid = stack.enter_context(server(folder / f"node{number}", config))
            nodes[f"node{number}"] = url, pid
        while True:
            with suppress(BrokerError):
                async with nats.connect([url for url, _ in nodes.values()]):
                    break
        yield nodes


async def stream_info(url: str, stream: str) -> dict[str, Any]:
    async with nats.connect(url, role="agent") as bus:
        answer = await bus._link.ask(  # pyright: ignore[reportPrivateUsage]
            f"$JS.API.STREAM.INFO.{stream}", b"", within_s=5
        )
    return json.loads(answer.payload)


@pytest.mark.parametrize("role", ["leader", pytest.param("follower", marks=pytest.mark.soak)])
async def test_a_run_goes_on_when_one_of_three_brokers_is_killed(
    command: Command, tmp_path: Path, role: str
) -> None:
    async with cluster(tmp_path) as nodes:
        urls = ",".join(url for url, _ in nodes.values())
        command.start(url=urls)
        await command.until(100)
        info = await stream_info(urls, "gym_ROLLOUTS")
        assert info["config"]["num_replicas"] == 3
        leader = info["cluster"]["leader"]
        victim = leader if role == "leader" else next(name for name in nodes if name != leader)
        os.kill(nodes[victim][1], signal.SIGKILL)
        await command.completes()


@pytest.mark.soak
async def test_a_reader_does_not_wait_for_a_broker_that_is_frozen(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        urls = ",".join(url for url, _ in nodes.values())
        async with nats.connect(urls) as bus:
            assert await bus.commit("rollout.run.1", b"record")
        leader = (await stream_info(urls, "gym_ROLLOUTS"))["cluster"]["leader"]
        victim = next(name for name in nodes if name != leader)

        async def read(bus: nats.NatsBus) -> None:
            async for record in bus.records("rollout.>"):
                assert record.payload == b"record"
                break

        async with nats.connect(nodes[leader][0]) as bus:
            os.kill(nodes[victim][1], signal.SIGSTOP)
            try:
                with anyio.fail_after(45 * busy()):
                    async with anyio.create_task_group() as tasks:
                        # The cluster gives some of them to the frozen node, until it has noticed.
                        for _ in range(12):
                            tasks.start_soon(read, bus)
                            await anyio.sleep(0.3)
            finally:
                os.kill(nodes[victim][1], signal.SIGCONT)


@pytest.mark.soak
async def test_everything_is_stored_three_times_in_a_cluster(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        url, _ = nodes["node0"]
        for kind in ESSENTIALS:
            stream = {"task": "TASKS", "rollout": "ROLLOUTS", "blob": "BLOBS"}.get(kind, kind)
            info = await stream_info(url, f"gym_{stream.upper()}")
            assert info["config"]["num_replicas"] == 3


@pytest.mark.soak
async def test_a_client_waits_while_two_of_three_brokers_are_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers cannot store meanwhile, as at a broker whose disk is full.

    The third one may still believe for 20 s that it leads, so no delay is shortened here.
    """
    # On a busy machine brokers that were frozen agree on leaders late.
    monkeypatch.setattr(streams, "PATIENCE_S", 600.0)
    monkeypatch.setattr(stream_reader, "PATIENCE_S", 600.0)
    # Slow, so that rollouts are in progress when the client has read the first results.
    model = ModelSettings(provider="scripted", name="message", options={"latency_s": 1.0})
    seen: list[int] = []
    some = anyio.Event()
    async with cluster(tmp_path) as nodes:
        stays, *others = nodes.values()
        pools = make_pools([ENVIRONMENT], model, concurrency=8)
        spec = SystemSpec(pools=pools, nats=(stays[0],), drain_s=0.1)
        async with running(spec), connect(stays[0]) as gym, anyio.create_task_group() as tasks:

            async def collect() -> None:
                async for record in gym.rollouts(map(row, range(ROLLOUTS // 4)), environment=ENVIRONMENT):
                    seen.append(record.task_index)
                    if len(seen) == 20:
                        some.set()

            tasks.start_soon(collect)
            await some.wait()
            for _, pid in others:
                os.kill(pid, signal.SIGSTOP)
            try:
                bus, workers = gym.driver.bus, await gym.workers()
                with anyio.fail_after(30 * busy()):
                    while not any(one.refused for one in await fresh(bus, workers)):
                        await anyio.sleep(0.1)
                await anyio.sleep(status.REFUSED_S + 8)
            finally:
                for _, pid in others:
                    os.kill(pid, signal.SIGCONT)
    assert sorted(seen) == list(range(ROLLOUTS // 4))

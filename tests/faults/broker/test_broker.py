"""A broker that is away, and a network that fails, in the middle of a run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import pytest
from faults.broker.broker_runs import ENVIRONMENT, Command, row, server
from gym_runtime import connect
from gym_runtime.client import make_pools
from gym_runtime.system.private_broker import Broker
from gym_runtime.system.spec import SystemSpec
from gym_runtime.system.system import running
from gym_runtime.workers.adapter import ModelSettings
from gym_testing.proxy import Proxy
from time_limits import busy

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.anyio, pytest.mark.timeout(180)]


CUT_S = 10.0


@pytest.mark.parametrize("number", [pytest.param(signal.SIGTERM, marks=pytest.mark.soak), signal.SIGKILL])
async def test_a_run_goes_on_when_its_broker_was_restarted(
    command: Command, broker: Broker, number: signal.Signals
) -> None:
    command.start(url=broker.url)
    await command.until(100)
    os.kill(broker.pid, number)
    await anyio.sleep(3)
    broker.restart()
    await command.completes()


@pytest.mark.soak
async def test_a_worker_that_dies_while_the_broker_is_away_is_started_until_it_is_back(
    broker: Broker,
) -> None:
    model = ModelSettings(provider="scripted", name="message")
    system = SystemSpec(pools=make_pools([ENVIRONMENT], model, concurrency=8), nats=(broker.url,))
    async with running(system) as started:
        broker.stop()
        (victim,) = (event.pid for event in started.workers.values() if event.kind == "agent")
        os.kill(victim, signal.SIGKILL)
        said: list[str] = []
        with anyio.fail_after(60 * busy()):
            async for event in started.events():
                said.append(event.reason)
                # Twice: once more than it would be for a worker that has never worked.
                if sum("no broker at" in reason for reason in said) == 2:
                    break
            broker.restart()
            async with connect(broker.url) as gym:
                records = [record async for record in gym.rollouts([row(1)], environment=ENVIRONMENT)]
    assert [record.reward for record in records] == [1.0]


async def test_a_run_goes_on_after_a_cut_through_a_proxy(command: Command, broker: Broker) -> None:
    address = urlsplit(broker.url)
    proxy = Proxy(address.hostname or "", address.port or 0)
    async with proxy.listening() as port:
        command.start(url=broker.url.replace(f":{address.port}", f":{port}"))
        await command.until(100)
        proxy.cut()
        await anyio.sleep(CUT_S)
        proxy.mend()
        await command.completes()


@pytest.mark.soak
async def test_a_run_goes_on_after_the_network_let_nothing_pass(command: Command, broker: Broker) -> None:
    address = urlsplit(broker.url)
    proxy = Proxy(address.hostname or "", address.port or 0)
    async with proxy.listening() as port:
        command.start(url=broker.url.replace(f":{address.port}", f":{port}"))
        await command.until(100)
        proxy.freeze()
        await anyio.sleep(CUT_S)
        proxy.thaw()
        await command.completes()


@contextmanager
def namespace() -> Generator[tuple[str, str, Callable[[str], None]]]:
    """Its own network; yields its name, our address in it, and what sets the cable up or down."""
    name = f"gym{os.getpid() % 100000}"
    here, there = "10.213.77.1", "10.213.77.2"

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True, text=True)

    def cable(state: str) -> None:
        ip("link", "set", f"{name}a", state)

    if shutil.which("ip") is None:
        pytest.skip("network namespaces need iproute2")
    try:
        ip("netns", "add", name)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"network namespaces are not permitted here: {error.stderr.strip()}")
    try:
        ip("link", "add", f"{name}a", "type", "veth", "peer", "name", f"{name}b", "netns", name)
        ip("addr", "add", f"{here}/30", "dev", f"{name}a")
        cable("up")
        ip("-n", name, "addr", "add", f"{there}/30", "dev", f"{name}b")
        ip("-n", name, "link", "set", f"{name}b", "up")
        ip("-n", name, "link", "set", "lo", "up")
        yield name, here, cable
    finally:
        with suppress(subprocess.CalledProcessError):
            ip("link", "del", f"{name}a")
        ip("netns", "del", name)


@pytest.mark.soak
async def test_a_run_goes_on_after_its_cable_was_unplugged(command: Command, tmp_path: Path) -> None:
    with (
        namespace() as (name, address, cable),
        server(tmp_path / "server", f'listen: "{address}:-1"') as (url, _, _),
    ):
        command.start(url=url, within=["ip", "netns", "exec", name])
        await command.until(100)
        cable("down")
        await anyio.sleep(CUT_S)
        cable("up")
        await command.completes()
        command.end()

"""Trouble with the broker in the middle of a run: it goes on, or stops with one clear line; nothing twice.

``gym-runtime run`` is a process, its workers are others, and the broker is a real one that is stopped,
cut off, starved of disk, slowed down or killed with its leader's role. What is on disk afterwards counts.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import msgspec
import pytest
from gym_runtime import connect
from gym_runtime.bus import nats
from gym_runtime.bus.jetstream import ESSENTIALS
from gym_runtime.client import make_pools
from gym_runtime.errors import BrokerError
from gym_runtime.messages.outcomes import RolloutRecord
from gym_runtime.system.private_broker import Broker, find_binary
from gym_runtime.system.spec import SystemSpec
from gym_runtime.system.system import running
from gym_runtime.testing.proxy import Proxy
from gym_runtime.workers.adapter import ModelSettings

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.anyio, pytest.mark.timeout(180)]

ENVIRONMENT = "example_session_state_mgmt"
ROLLOUTS = 600
CUT_S = 10.0
MODEL = """
[[pools]]
kind = "model"
[pools.model]
provider = "scripted"
name = "message"
options = { latency_s = 0.3 }
"""


@pytest.fixture(autouse=True)
def no_broker_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GYM_NATS_URL", raising=False)


def row(number: int, size_bytes: int = 0) -> dict[str, Any]:
    content = f"task {number} " + "x" * size_bytes
    params = {"input": [{"role": "user", "content": content}]}
    agent = {"name": ENVIRONMENT}
    return {"responses_create_params": params, "initial_count": 3, "expected_count": 3, "agent_ref": agent}


class Command:
    """``gym-runtime run`` as a process of its own."""

    def __init__(self, folder: Path, *, rollouts: int = ROLLOUTS, row_bytes: int = 0) -> None:
        self.rollouts = rollouts
        self._folder = folder
        (folder / "model.toml").write_text(MODEL)
        rows = [row(number, row_bytes) for number in range(rollouts)]
        (folder / "rows.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, rows)))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str, url: str = "", within: Sequence[str] = ()) -> None:
        arguments = [*within, sys.executable, "-m", "gym_runtime.cli.main", "run", "-i", "rows.jsonl"]
        arguments += ["-o", "out.jsonl", "--config", "model.toml", "--concurrency", "64", "--workers", "2"]
        environment = {**os.environ, **({"GYM_NATS_URL": url} if url else {})}
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [*arguments, *more], cwd=self._folder, env=environment, stdout=log, stderr=log
            )

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text()

    def rows(self, name: str = "out.jsonl") -> list[dict[str, Any]]:
        path = self._folder / name
        return list(map(json.loads, path.read_bytes().splitlines())) if path.exists() else []

    async def until(self, count: int) -> None:
        """Return when so many rows are on the disk."""
        assert self._process is not None
        out = self._folder / "out.jsonl"
        while not out.exists() or out.read_bytes().count(b"\n") < count:
            assert self._process.poll() is None, self.log
            await anyio.sleep(0.02)

    async def status(self) -> int:
        assert self._process is not None
        return await anyio.to_thread.run_sync(self._process.wait, abandon_on_cancel=True)

    async def completes(self) -> None:
        """Every rollout is there once, and none has failed."""
        assert await self.status() == 0, self.log
        seen = Counter((row["_ng_task_index"], row["_ng_rollout_index"]) for row in self.rows())
        assert len(seen) == self.rollouts, self.log
        assert set(seen.values()) == {1}
        assert self.rows("out_failures.jsonl") == []
        assert "Traceback" not in self.log

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait()


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    command = Command(tmp_path)
    yield command
    command.end()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path / "broker")
    broker.start()
    yield broker
    broker.stop()


@contextmanager
def server(folder: Path, config: str, *, disk: str = "sync_interval: 2m") -> Generator[tuple[str, str, int]]:
    """A plain nats-server; yields its URL, its monitoring URL and its process."""
    folder.mkdir()
    store = f'jetstream {{ store_dir: "{folder}", {disk} }}'
    (folder / "conf").write_text(f'http: "127.0.0.1:-1"\n{store}\n{config}\n')
    with (folder / "log").open("wb") as log:
        command = [find_binary(), "-c", str(folder / "conf"), "--ports_file_dir", str(folder)]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    file = folder / f"nats-server_{process.pid}.ports"
    ports: dict[str, list[str]] = {}
    while not ports:
        assert process.poll() is None, (folder / "log").read_text()
        with suppress(FileNotFoundError, ValueError):
            ports = json.loads(file.read_text())
        time.sleep(0.002)
    try:
        yield ports["nats"][0], ports["monitoring"][0], process.pid
    finally:
        process.kill()
        process.wait()


def complaints(command: Command) -> list[str]:
    """What the command says of its end, which is no traceback."""
    assert "Traceback" not in command.log
    return [line for line in command.log.splitlines() if line.startswith("gym-runtime: ")]


# ---- it is away for a while


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
        with anyio.fail_after(60):
            async for event in started.events():
                said.append(event.reason)
                # Twice: once more than it would be for a worker that has never worked.
                if sum("no broker at" in reason for reason in said) == 2:
                    break
            broker.restart()
            async with connect(broker.url) as gym:
                records = [record async for record in gym.rollouts([row(1)], environment=ENVIRONMENT)]
    assert [record.reward for record in records] == [1.0]


# ---- the network


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
    """A network of its own; yields its name, our address in it, and what sets the cable up or down."""
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


# ---- the disk


@pytest.mark.soak
async def test_a_run_goes_on_while_the_disk_is_slow(command: Command, tmp_path: Path) -> None:
    # Every write waits for the disk, and now and then all of them for a long time.
    config = 'listen: "127.0.0.1:-1"'
    with server(tmp_path / "server", config, disk="sync_interval: always") as (url, _, pid):
        command.start(url=url)
        await command.until(50)
        for _ in range(8):
            os.kill(pid, signal.SIGSTOP)
            await anyio.sleep(1.5)
            os.kill(pid, signal.SIGCONT)
            await anyio.sleep(0.3)
        await command.completes()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 12 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True) if shutil.which("mount") else None
    if done is None or done.returncode:
        pytest.skip(f"a small file system needs mount: {done.stderr.strip() if done else 'not installed'}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.soak
async def test_a_full_disk_stops_a_run_with_one_line_and_resume_completes_it(
    tmp_path: Path, small_disk: Path
) -> None:
    command = Command(tmp_path, row_bytes=30_000)
    try:
        command.start("--state-dir", str(small_disk / "broker"))
        assert await command.status() == 1, command.log
        (complaint,) = complaints(command)
        assert "make room at the broker, then go on with --resume" in complaint
        assert 0 < len(command.rows()) < ROLLOUTS
        enlarge = ["mount", "-o", "remount,size=400m", str(small_disk)]
        await anyio.run_process(enlarge)
        command.start("--state-dir", str(small_disk / "broker"), "--resume")
        await command.completes()
    finally:
        command.end()


# ---- the size of messages


async def test_rows_larger_than_the_broker_takes_are_no_trouble(tmp_path: Path) -> None:
    command = Command(tmp_path, rollouts=20, row_bytes=700_000)
    config = 'listen: "127.0.0.1:-1"\nmax_payload: 512KB'
    with server(tmp_path / "server", config) as (url, _, _):
        command.start(url=url)
        await command.completes()


async def test_a_broker_that_takes_too_small_messages_is_one_line(command: Command, tmp_path: Path) -> None:
    config = 'listen: "127.0.0.1:-1"\nmax_payload: 128KB'
    with server(tmp_path / "server", config) as (url, _, _):
        command.start(url=url)
        assert await command.status() != 0
    (complaint,) = complaints(command)
    assert "takes messages up to 131072 bytes only" in complaint
    assert "put 'max_payload: 8MB' into its configuration" in complaint


# ---- a slow consumer


async def test_a_client_that_the_broker_dropped_for_being_slow_misses_nothing(tmp_path: Path) -> None:
    model = ModelSettings(provider="scripted", name="message", options={"latency_s": 0.1})
    config = 'listen: "127.0.0.1:-1"\nmax_payload: 1MB\nmax_pending: 2MB\nwrite_deadline: "1s"'
    records: list[RolloutRecord] = []
    with server(tmp_path / "server", config) as (url, monitor, _):
        address = urlsplit(url)
        proxy = Proxy(address.hostname or "", address.port or 0)
        system = SystemSpec(pools=make_pools([ENVIRONMENT], model, concurrency=32), nats=(url,))
        async with (
            running(system),
            proxy.listening() as port,
            nats.connect(url) as flood,
            connect(f"nats://127.0.0.1:{port}") as gym,
            gym.bus.serve("flood", lambda incoming: None),
        ):
            async for record in gym.rollouts(map(row, range(ROLLOUTS)), environment=ENVIRONMENT):
                records.append(record)
                if len(records) == 100:
                    proxy.freeze()
                    while not slow_consumers(monitor):
                        await flood.publish("flood", bytes(200_000))
                        await anyio.sleep(0.01)
                    proxy.thaw()
    seen = Counter((record.task_index, record.rollout_index) for record in records)
    assert len(seen) == ROLLOUTS
    assert set(seen.values()) == {1}
    assert all(record.reward == 1.0 for record in records)


def slow_consumers(monitor: str) -> int:
    with urllib.request.urlopen(f"{monitor}/varz") as answer:
        return json.load(answer)["slow_consumers"]


# ---- a cluster


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@asynccontextmanager
async def cluster(folder: Path) -> AsyncGenerator[dict[str, tuple[str, int]]]:
    """Three brokers that store together, once they agree on a leader; URL and process of each by its name."""
    ports = free_ports(3)
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
                with anyio.fail_after(45):
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

"""The buses under test, and what makes their connections fail."""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import anyio
import pytest
from gym_runtime.bus import nats
from gym_runtime.bus.identity import parse
from gym_runtime.bus.interface import Bus
from gym_runtime.bus.link import Link
from gym_runtime.system.private_broker import Broker, find_binary
from gym_testing.memory import MemoryBroker
from gym_testing.proxy import Proxy

StartServer = Callable[[str], tuple[str, int]]

_prefixes = itertools.count(1)


@pytest.fixture(scope="session")
def broker_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A NATS broker for the whole session; tests keep apart by their prefixes."""
    broker = Broker(tmp_path_factory.mktemp("broker"))
    yield broker.start()
    broker.stop()


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[StartServer]:
    """Starts a plain nats-server with a configuration of one's own; returns its URL and process id."""
    running: list[subprocess.Popen[bytes]] = []

    def start(config: str) -> tuple[str, int]:
        folder = tmp_path / f"server{len(running)}"
        folder.mkdir()
        (folder / "conf").write_text(f'listen: "127.0.0.1:-1"\n{config}\n')
        command = [find_binary(), "-c", str(folder / "conf"), "--ports_file_dir", str(folder)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        running.append(process)
        ports = folder / f"nats-server_{process.pid}.ports"
        while True:
            try:
                return json.loads(ports.read_text())["nats"][0], process.pid
            except (FileNotFoundError, ValueError):
                assert process.poll() is None
                time.sleep(0.002)

    yield start
    for process in running:
        process.kill()
        process.wait()


@contextlib.asynccontextmanager
async def linked(*urls: str, **options: Any) -> AsyncIterator[Link]:
    """A connection without a bus on it, as an operator has it."""
    link = Link(parse(urls), **options)
    await link.dial()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(link.run)
        try:
            yield link
        finally:
            with anyio.CancelScope(shield=True):
                await link.close()


@dataclass(frozen=True)
class Fragile:
    """A connection, and what can be done to it."""

    bus: Bus
    cut: Callable[[], None]
    mend: Callable[[], None]
    freeze: Callable[[], None]
    thaw: Callable[[], None]


class System(Protocol):
    """One kind of bus: connections that share what is stored."""

    async def connect(self) -> Bus:
        """A connection, closed after the test."""
        ...

    async def connect_fragile(self) -> Fragile:
        """A connection that can be cut and frozen."""
        ...

    async def wait_days(self, days: float) -> None:
        """Let time pass, where time is virtual."""
        ...


class MemorySystem:
    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._broker = MemoryBroker()

    async def connect(self) -> Bus:
        return await self._stack.enter_async_context(self._broker.connect())

    async def connect_fragile(self) -> Fragile:
        bus = await self._stack.enter_async_context(self._broker.connect())
        return Fragile(bus, bus.cut, bus.mend, bus.freeze, bus.thaw)

    async def wait_days(self, days: float) -> None:
        await anyio.sleep(days * 86400)


class NatsSystem:
    def __init__(self, stack: AsyncExitStack, url: str) -> None:
        self._stack = stack
        self._url = url
        self._prefix = f"test{next(_prefixes)}"

    async def connect(self) -> Bus:
        return await self._stack.enter_async_context(self._connect(self._url))

    def _connect(self, url: str) -> AbstractAsyncContextManager[Bus]:
        return nats.connect(url, prefix=self._prefix)

    async def connect_fragile(self) -> Fragile:
        address = urlsplit(self._url)
        proxy = Proxy(address.hostname or "", address.port or 0)
        port = await self._stack.enter_async_context(proxy.listening())
        user = address.netloc.rpartition("@")[0]
        bus = await self._stack.enter_async_context(self._connect(f"nats://{user}@127.0.0.1:{port}"))
        return Fragile(bus, proxy.cut, proxy.mend, proxy.freeze, proxy.thaw)

    async def wait_days(self, days: float) -> None:
        pass


@pytest.fixture(params=["memory", "nats"])
def kind(request: pytest.FixtureRequest) -> str:
    """Which bus is tested."""
    return request.param


@pytest.fixture
async def system(kind: str, request: pytest.FixtureRequest) -> AsyncGenerator[System]:
    async with AsyncExitStack() as stack:
        if kind == "memory":
            yield MemorySystem(stack)
        else:
            yield NatsSystem(stack, request.getfixturevalue("broker_url"))


@pytest.fixture
def little_inline(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is larger than `SMALL_INLINE_BYTES` travels by reference, as at a broker with small buffers."""
    monkeypatch.setattr("gym_runtime.bus.blobs.ROOMY_PAYLOAD_BYTES", 1 << 40)

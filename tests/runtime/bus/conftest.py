"""Real brokers for the bus: one that all tests share, each under a prefix of its own, and private ones."""

from __future__ import annotations

import itertools
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gym_runtime.broker import Broker, find_binary

_numbers = itertools.count()


@pytest.fixture(scope="session")
def shared_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    broker = Broker(tmp_path_factory.mktemp("broker"))
    yield broker.start()
    broker.stop()


@pytest.fixture
def prefix() -> str:
    return f"t{next(_numbers)}"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker to kill, freeze and restart."""
    broker = Broker(tmp_path / "broker")
    broker.start()
    yield broker
    broker.stop()


StartServer = Callable[[str], tuple[str, int]]


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

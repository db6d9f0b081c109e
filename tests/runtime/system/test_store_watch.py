"""Whether a real nats-server stores, by its own statistics."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import pytest
from faults.broker.broker_runs import break_disk
from gym_runtime.bus import streams
from gym_runtime.bus.nats import connect
from gym_runtime.errors import BrokerError
from gym_runtime.system.private_broker import Broker, refusal

HALF_MB = bytes(range(256)) * 2048


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "PATIENCE_S", 0.3)


async def fill(url: str, most: int = 40) -> None:
    async with connect(url) as bus:
        for number in range(most):
            await bus.append(f"journal.r.0.{number}.0", HALF_MB)


def monitor(broker: Broker) -> str:
    return urlsplit(broker.monitor_url).netloc


@pytest.mark.slow
def test_a_failed_write_is_known_until_the_broker_is_started_again(broker: Broker) -> None:
    anyio.run(fill, broker.url, 2)
    assert refusal(monitor(broker)) is None
    assert broker.refusal() == ""
    break_disk(broker.pid)
    with pytest.raises(BrokerError):
        anyio.run(fill, broker.url, 2)
    assert "write error" in broker.refusal()
    broker.restart()
    assert broker.refusal() == ""
    anyio.run(fill, broker.url, 2)


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


@pytest.mark.slow
def test_a_full_broker_is_not_started_again_before_there_is_space(small_disk: Path) -> None:
    broker = Broker(small_disk / "broker")
    broker.start()
    try:
        with pytest.raises(BrokerError):
            anyio.run(fill, broker.url)
        found = refusal(monitor(broker))
        assert found is not None
        assert "the limit is" in found.why
        assert broker.refusal() == ""
        subprocess.run(["mount", "-o", "remount,size=100m", str(small_disk)], check=True)
        assert broker.refusal() == found.why
        broker.restart()
        anyio.run(fill, broker.url, 4)
    finally:
        broker.stop()


@pytest.mark.slow
def test_a_server_that_says_nothing_is_not_judged() -> None:
    assert refusal("127.0.0.1:-1") is None
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert refusal(f"127.0.0.1:{silent.getsockname()[1]}") is None

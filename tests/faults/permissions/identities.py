"""A broker with identities, and what they try."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Generator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from pathlib import Path

from gym_deploy.broker_plan import BrokerPlan, configure
from gym_runtime.bus import nats
from gym_runtime.bus.link import Role
from gym_runtime.bus.nats import NatsBus
from gym_runtime.system.private_broker import find_binary

WORKERS: tuple[Role, ...] = ("agent", "resource", "model")


def identities(folder: Path) -> Path:
    """A folder with keys, certificates and configuration, as the command makes them."""
    folder.mkdir(exist_ok=True)
    configure(BrokerPlan(folder=folder, node="server"))
    return folder


@contextmanager
def serving(folder: Path, *changes: tuple[str, str], log_name: str = "broker.log") -> Generator[str]:
    """The broker with that configuration on its own port; yields its URL."""
    text = (folder / "server.conf").read_text()
    for old, new in [("0.0.0.0:4222", "127.0.0.1:-1"), ("127.0.0.1:8222", "127.0.0.1:-1"), *changes]:
        assert old in text
        text = text.replace(old, new)
    (folder / "test.conf").write_text(text)
    command = [find_binary(), "-c", str(folder / "test.conf"), "--ports_file_dir", str(folder)]
    with (folder / log_name).open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    ports = folder / f"nats-server_{process.pid}.ports"
    try:
        while True:
            with suppress(FileNotFoundError, ValueError):
                yield json.loads(ports.read_text())["nats"][0].replace("nats://", "tls://")
                return
            assert process.poll() is None, (folder / log_name).read_text()
            time.sleep(0.002)
    finally:
        process.kill()
        process.wait()


def as_role(url: str, folder: Path, role: Role) -> AbstractAsyncContextManager[NatsBus]:
    return nats.connect(url, role=role, credentials=folder / f"{role}.seed")

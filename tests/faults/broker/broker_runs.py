"""`gym-runtime run` as a process, and brokers to trouble it with."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec
from gym_runtime.system.private_broker import find_binary

ENVIRONMENT = "example_session_state_mgmt"


ROLLOUTS = 600


MODEL = """
[[pools]]
kind = "model"
[pools.model]
provider = "scripted"
name = "message"
options = { latency_s = 0.3 }
"""


def row(number: int, size_bytes: int = 0) -> dict[str, Any]:
    content = f"task {number} " + "x" * size_bytes
    params = {"input": [{"role": "user", "content": content}]}
    agent = {"name": ENVIRONMENT}
    return {"responses_create_params": params, "initial_count": 3, "expected_count": 3, "agent_ref": agent}


class Command:
    """``gym-runtime run`` as its own process."""

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
        assert "Traceback" not in self.log, self.log

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait()


def break_disk(pid: int) -> None:
    """Every write of a broker to a file fails from now on, as on a full disk; a new process can write.

    This needs no file system of its own, and no root.
    """
    _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, most))


@contextmanager
def server(folder: Path, config: str, *, disk: str = "sync_interval: 2m") -> Generator[tuple[str, str, int]]:
    """A plain nats-server; yields its URL, its monitoring URL and its process."""
    folder.mkdir(exist_ok=True)
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

"""``gym-runtime broker`` as a process, for tests."""

from __future__ import annotations

import subprocess
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from ports import free_port
from runtime.cli.started import SCRIPT


def started(folder: Path, *more: str, host: str, port: int) -> psutil.Popen:
    """The command; its monitoring port is one above its port."""
    arguments = ["--dir", str(folder), "--listen", f"{host}:{port}", "--monitor", f"{host}:{port + 1}", *more]
    with (folder.parent / f"broker-{host}.log").open("ab") as log:
        return psutil.Popen([SCRIPT, "broker", *arguments], stdout=subprocess.PIPE, stderr=log, text=True)


@contextmanager
def serving(folder: Path, *more: str, host: str = "127.0.0.1", port: int = 0) -> Generator[psutil.Popen]:
    """The command until the end of the block, not yet ready."""
    process = started(folder, *more, host=host, port=port or free_port())
    try:
        yield process
    finally:
        stop(process)


def stop(process: psutil.Popen) -> None:
    """SIGTERM, and wait for its end."""
    with suppress(psutil.NoSuchProcess):
        process.terminate()
    try:
        process.wait(40)
    finally:
        process.stdout.close()


def until_ready(process: psutil.Popen) -> None:
    line = process.stdout.readline()
    assert line.startswith("ready; to join"), line

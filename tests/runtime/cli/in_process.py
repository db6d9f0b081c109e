"""A command line in this process: a process of its own takes half a second to start."""

from __future__ import annotations

import io
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

from gym_runtime.cli import main
from gym_runtime.environment import catalogue


class Ran(NamedTuple):
    """What a command left behind."""

    status: int
    out: str
    err: str


def ran(folder: Path, *command: str) -> Ran:
    """Run a command in a folder; it knows no file that an earlier command named."""
    for files in catalogue._files.values():  # pyright: ignore[reportPrivateUsage] - as in tests/conftest.py
        files.clear()
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with chdir(folder), redirect_stdout(out), redirect_stderr(err):
        status = main.run([*command])
    for stream in (out, err):
        stream.seek(0)
    return Ran(status, out.read(), err.read())

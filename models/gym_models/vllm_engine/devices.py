"""Which accelerators a worker with its own engine takes: each group of them belongs to one worker.

A group is held by a lock on a file in the temporary directory, which the kernel drops when the worker
dies, so its successor takes the same devices, and no registry of devices is needed.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gym_runtime import UsageError
from gym_runtime.own_files import open_own

_VISIBLE = "CUDA_VISIBLE_DEVICES"


def groups(devices: Sequence[str], size: int) -> list[tuple[str, ...]]:
    """The devices in groups of ``size``; the remaining devices belong to no group.

    >>> groups(["0", "1", "2", "3", "4"], 2)
    [('0', '1'), ('2', '3')]
    """
    return [tuple(devices[start : start + size]) for start in range(0, len(devices) - size + 1, size)]


@contextmanager
def hold_devices(size: int) -> Generator[tuple[str, ...]]:
    """Hold the first free group and make it the only one that this process sees.

    Does nothing on a machine without accelerators.

    Raises:
        UsageError: all groups are held by others, or there are fewer than ``size`` devices.
    """
    devices = _devices()
    if not devices:
        yield ()
        return
    said = os.environ.get(_VISIBLE)
    group, files = _take(groups(devices, size))
    if not files:
        raise UsageError(
            f"no {size} of the accelerators {', '.join(devices)} are free for another vLLM: "
            "start fewer model workers, or make its tensor-parallel group smaller"
        )
    os.environ[_VISIBLE] = ",".join(group)
    try:
        yield group
    finally:
        for number in files:
            os.close(number)
        os.environ.pop(_VISIBLE)
        if said is not None:
            os.environ[_VISIBLE] = said


def _devices() -> list[str]:
    said = os.environ.get(_VISIBLE)
    if said is not None:
        return [device.strip() for device in said.split(",") if device.strip()]
    return [node.name.removeprefix("nvidia") for node in sorted(Path("/dev").glob("nvidia[0-9]*"))]


def _take(free: Sequence[tuple[str, ...]]) -> tuple[tuple[str, ...], list[int]]:
    """The first free group and its locked files; no files if all groups are held."""
    for group in free:
        files = [_open(device) for device in group]
        try:
            for number in files:
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            for number in files:
                os.close(number)
        else:
            return group, files
    return (), []


def _open(device: str) -> int:
    name = f"gym-runtime-device-{device.replace('/', '-')}.lock"
    return open_own(Path(tempfile.gettempdir()) / name, os.O_RDWR | os.O_CREAT, 0o666)

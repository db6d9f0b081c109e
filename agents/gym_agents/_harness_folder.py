"""The folder in which a program plays a rollout: the same path in each attempt, on each machine.

Programs tell their model where they work, so another path would be another conversation. A folder of a worker
that was killed is taken over: the processes that still work in it end, and it is emptied. One that is in use,
by a worker that is frozen or by another system's rollout of the same name, is left alone, and the path gets a
number; those of other numbers that are no longer in use end in the same way.

    work   empty; the working directory
    home   HOME
    temp   TMPDIR
    own    what the runtime puts there for the program: its MCP configuration, images, ``gym-tool``
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from hashlib import blake2b
from typing import NamedTuple

import anyio
import anyio.to_thread

REMOVE_S = 30.0
MOST_PATHS = 20
LEFTOVERS_S = 5.0
MARK = "GYM_HARNESS_FOLDER"
"""A variable of the program and what it starts; by it they are found when their worker was killed."""
_PARTS = ("work", "home", "temp", "own")


class HarnessFolder(NamedTuple):
    """The absolute paths of the parts; see the module."""

    path: str
    work: str
    home: str
    temp: str
    own: str


@asynccontextmanager
async def harness_folder(rollout: str) -> AsyncGenerator[HarnessFolder]:
    """The folder of a rollout, by its id, until the context ends.

    Raises:
        OSError: none can be made.
    """
    path, lock = await anyio.to_thread.run_sync(_made, rollout)
    try:
        yield HarnessFolder(path, *(os.path.join(path, name) for name in _PARTS))
    finally:
        # The folder may hold thousands of files, so it is not deleted on the event loop.
        with anyio.move_on_after(REMOVE_S, shield=True):
            await anyio.to_thread.run_sync(_end, path, abandon_on_cancel=True)
        os.close(lock)


def _end(path: str) -> None:
    """End what the program has left running, in sessions of its own, too; and delete the folder."""
    _end_leftovers(path)
    shutil.rmtree(path, ignore_errors=True)


def _made(rollout: str) -> tuple[str, int]:
    """An empty folder, and the descriptor that holds its lock, which ends with this process."""
    name = blake2b(rollout.encode(), digest_size=8).hexdigest()
    place = os.path.join(tempfile.gettempdir(), f"gym-harness-{name}")
    paths = [place, *(f"{place}-{number}" for number in range(2, MOST_PATHS + 1))]
    for path in paths:
        if (lock := _locked(path)) is None:
            continue
        try:
            _end_leftovers(path)
            _empty(lock)
            for part in _PARTS:
                os.mkdir(part, 0o700, dir_fd=lock)
        except OSError:  # files that cannot be deleted, or a full disk
            os.close(lock)
            if path == paths[-1]:
                raise
        else:
            _end_others([one for one in paths if one != path])
            return path, lock
    raise FileExistsError(f"{place} and {MOST_PATHS - 1} more like it are in use")


def _end_others(paths: Sequence[str]) -> None:
    """End what killed workers left at these paths; a path in use is left alone."""
    for path in filter(os.path.isdir, paths):
        if (lock := _locked(path)) is not None:
            try:
                _end(path)
            finally:
                os.close(lock)


def _locked(path: str) -> int | None:
    """The descriptor of this folder, locked; None if it is another user's or in use."""
    while True:
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)
        try:
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # its last user has just deleted it
        except OSError:
            return None
        try:
            if os.fstat(lock).st_uid == os.geteuid():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Its last user may have deleted it before this one had the lock.
                with suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(lock), os.stat(path, follow_symlinks=False)):
                        return lock
                os.close(lock)
                continue
        except BlockingIOError:
            pass
        os.close(lock)
        return None


def _empty(folder: int) -> None:
    for name in os.listdir(folder):
        try:
            shutil.rmtree(name, dir_fd=folder)
        except NotADirectoryError:
            os.unlink(name, dir_fd=folder)


def _end_leftovers(path: str) -> None:
    """Kill what an earlier user of the folder has left running, by the variable that names the folder."""
    mark = f"{MARK}={path}".encode()
    found, until_s = True, time.monotonic() + LEFTOVERS_S
    while found and time.monotonic() < until_s:  # again, as long as one may have started another
        found = False
        for pid in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else ()):
            with suppress(OSError):
                with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
                    theirs = mark in file.read().split(b"\0")
                if theirs:
                    os.kill(int(pid), signal.SIGKILL)
                    found = True

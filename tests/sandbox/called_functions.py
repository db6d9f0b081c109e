"""Functions that a pool's processes import by name."""

from __future__ import annotations

import os
import signal
import threading
import time

from gym_sandbox.frames import CallFailed


def echo(text: str) -> str:
    return text


def fail(text: str) -> str:
    raise ValueError(text)


def fail_unreadably() -> str:
    raise ValueError("no such \udcff word")


def explained_shortly(error: BaseException) -> CallFailed:
    return CallFailed("Short", str(error), "somewhere")


def leave(code: int) -> None:
    os._exit(code)


def leave_early() -> None:
    """A preparation."""
    os._exit(1)


def kill_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def wait() -> None:
    threading.Event().wait()


def share() -> bool:
    """A preparation: calls may share a fork."""
    return True


def do(what: str) -> int:
    """The fork's process, after it has ended, raised, spun or worked; or what is in its folder."""
    if what == "die":
        os._exit(3)
    if what == "raise":
        raise ValueError(what)
    begun_s = time.process_time()
    while what == "spin" or (what == "work" and time.process_time() < begun_s + 0.4):
        pass
    if what == "leave a folder":
        os.makedirs(f"/tmp/{os.getpid()}/left")
        os._exit(4)
    return len(os.listdir("/tmp")) if what == "look" else os.getpid()

"""Functions that a pool's processes import by name."""

from __future__ import annotations

import os
import signal
import threading

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

"""Functions that tests run in sandboxed processes, which import them by name."""

from __future__ import annotations

import os
import threading
import time

from gym_runtime.errors import TaskError


def pid() -> int:
    """Of the fork."""
    return os.getpid()


def parent() -> int:
    """The fork server, as it is numbered in there."""
    return os.getppid()


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def sleep_first(seconds: str) -> None:
    """A preparation."""
    time.sleep(float(seconds))


def wait_with_a_thread() -> None:
    """Never ends; a process with two threads is at work."""
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    threading.Event().wait()


def spin(seconds: float) -> None:
    while time.process_time() < seconds:
        pass


def run(code: str) -> str:
    """What the code leaves as ``said``."""
    names: dict[str, object] = {"said": ""}
    exec(code, names)
    return str(names["said"])


def refuse(text: str) -> None:
    raise TaskError(text, stage="open")


def wrong() -> int:
    """Returns what it does not say."""
    return "no number"  # pyright: ignore[reportReturnType]

"""Finds the code that blocks an event loop: a verifier or a tool that computes or waits without ``await``.

A thread checks whether the loop still runs. When it has not run for `limit_s` seconds, the thread reads the
stack of the loop's thread and reports the innermost frame that is not of an installed library. A loop that
only waits for events, or for a processor of a busy machine, is not blocked. The thread wakes a few times per
limit, which has no measurable cost.
"""

from __future__ import annotations

import asyncio
import selectors
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from types import FrameType

import anyio

from gym_runtime.cancellation import LIBRARIES

_LOOKS_PER_LIMIT = 4


@asynccontextmanager
async def watching(limit_s: float, report: Callable[[str, float], None]) -> AsyncGenerator[None]:
    """Watch this event loop for as long as the context lasts.

    Args:
        limit_s: how long one step of the loop may take, in seconds.
        report: called in the watching thread, once for each time that the loop is blocked, with the place
            (``FILE:LINE in FUNCTION``) and the seconds until then.
    """
    loop, thread = asyncio.get_running_loop(), threading.get_ident()
    native, runner = threading.get_native_id(), _runner()
    stop = threading.Event()
    beat = [(time.monotonic(), _queued_s(native))]

    def tick() -> None:
        beat[0] = (time.monotonic(), _queued_s(native))

    def watch() -> None:
        reported_s, own_queued_s = 0.0, 0.0
        looked_s, used_s = time.monotonic(), time.process_time()
        while not stop.wait(limit_s / _LOOKS_PER_LIMIT):
            away_s, worked_s = time.monotonic() - looked_s, time.process_time() - used_s
            looked_s, used_s = looked_s + away_s, used_s + worked_s
            if away_s > limit_s and worked_s < away_s / 2:
                # The whole process stood still, as in a paused container: that is no code's doing.
                tick()
            since_s, queued_s = beat[0]
            blocked_s = time.monotonic() - since_s
            if blocked_s > limit_s and since_s != reported_s:
                # The loop may wait for a processor (which counts once it has got it), or for this thread,
                # which waits for one while it holds the interpreter's lock.
                own_s = _queued_s(threading.get_native_id()) - own_queued_s
                blocked_s -= _queued_s(native) - queued_s + own_s
                frame = sys._current_frames().get(thread)  # pyright: ignore[reportPrivateUsage]
                if blocked_s > limit_s and not _is_idle(frame, runner):
                    reported_s = since_s
                    report(_describe(frame), blocked_s)
            elif blocked_s <= limit_s:
                own_queued_s = _queued_s(threading.get_native_id())
            try:
                # Also where this thread looks too late, or it would never know the loop again.
                loop.call_soon_threadsafe(tick)
            except RuntimeError:  # the loop is closed
                return

    watcher = threading.Thread(target=watch, name="blocked-loop", daemon=True)
    watcher.start()
    try:
        yield
        await anyio.lowlevel.checkpoint()
    finally:
        stop.set()
        watcher.join()


def _describe(frame: FrameType | None) -> str:
    """``FILE:LINE in FUNCTION`` of the innermost frame that is not of an installed library."""
    innermost = frame
    while frame is not None and frame.f_code.co_filename.startswith(LIBRARIES):
        frame = frame.f_back
    shown = frame or innermost
    if shown is None:
        return "an unknown place"
    return f"{shown.f_code.co_filename}:{shown.f_lineno} in {shown.f_code.co_name}"


def _runner() -> FrameType | None:
    """The frame that runs this event loop, for a loop without Python frames, such as uvloop."""
    task = asyncio.current_task()
    frame = getattr(task and task.get_coro(), "cr_frame", None)
    return frame and frame.f_back


def _is_idle(frame: FrameType | None, runner: FrameType | None) -> bool:
    """Whether a loop waits for events: asyncio's in ``select``, uvloop's in no frame of Python."""
    if frame is None or frame is runner:
        return True
    return frame.f_code.co_name == "select" and frame.f_code.co_filename == selectors.__file__


def _queued_s(native: int) -> float:
    """How long a thread has waited for a processor, in seconds; 0 where the system does not tell."""
    try:
        with open(f"/proc/self/task/{native}/schedstat", "rb") as statistics:
            return int(statistics.read().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0

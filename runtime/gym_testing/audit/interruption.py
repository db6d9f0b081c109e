"""Ends a verifier that blocks the event loop, such as a regular expression that backtracks without end.

A timer of the process's own processor time sends a signal, unless the loop has set it again. Its handler
raises in the code that blocks, and nowhere else. A thread could not: such code may hold the interpreter's
lock. Code that does not look for signals, as most libraries in C, goes on until its end.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from types import CodeType, FrameType

import anyio
from gym_runtime.errors import ResourceError

_RESETS_PER_LIMIT = 4


@asynccontextmanager
async def interrupting(limit_s: float, within: Collection[CodeType]) -> AsyncGenerator[None]:
    """Let code that blocks this event loop for longer raise a `ResourceError`.

    It does nothing outside of the main thread, where no signal is handled.

    Args:
        limit_s: seconds of processor time.
        within: the functions whose callees are ended.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def stop(_number: int, frame: FrameType | None) -> None:
        while frame is not None:
            if frame.f_code in within:
                raise ResourceError(f"it blocked the event loop for more than {limit_s:g} s", stage="verify")
            frame = frame.f_back

    async def reset() -> None:
        while True:
            signal.setitimer(signal.ITIMER_VIRTUAL, limit_s, limit_s)
            await anyio.sleep(limit_s / _RESETS_PER_LIMIT)

    before = signal.signal(signal.SIGVTALRM, stop)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reset)
            yield
            tasks.cancel_scope.cancel()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)

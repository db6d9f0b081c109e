"""The signals that a process receives, each once."""

from __future__ import annotations

import signal
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import contextmanager

import anyio

from gym_runtime import clock

SAME_S = 0.05
"""Two signals of the same kind within this time are one; a second Ctrl-C comes later."""


@contextmanager
def received(*numbers: signal.Signals) -> Generator[AsyncIterator[signal.Signals]]:
    """As `anyio.open_signal_receiver`, but a signal is not counted twice.

    uvloop (0.23, ``Loop._invoke_signals``) reports a signal twice if it comes while another one is handled:
    from Python's handler, and then from the pipe into which the interpreter has written its number.
    """
    with anyio.open_signal_receiver(*numbers) as signals:
        yield once(signals)


async def once(signals: AsyncIterator[signal.Signals]) -> AsyncGenerator[signal.Signals]:
    """Signals, without repetitions within `SAME_S`."""
    came_s: dict[signal.Signals, float] = {}
    async for number in signals:
        before_s, came_s[number] = came_s.get(number, -SAME_S), clock.monotonic()
        if came_s[number] - before_s >= SAME_S:
            yield number

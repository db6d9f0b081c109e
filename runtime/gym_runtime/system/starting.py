"""How a worker starts: it waits for parts that have not started yet, and can be ended at once.

`Patience` waits for a broker, its streams, an engine that loads its weights. What cannot come by waiting
(refused credentials, a model that the engine does not have) ends the wait at once.

Loading a model may block the event loop for minutes. So until a worker serves, SIGTERM, SIGINT and the end of
its supervisor end it at once, together with every process that its adapter has started: it has no work yet to
finish or to give back. `received` gives a process the signals that it receives later, each once.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from typing import NoReturn, TypeVar

import anyio
from gym_sandbox.processes import tree

from gym_runtime import clock
from gym_runtime.errors import BrokerError, ConnectionLost, GymError, NotThereYet, leaf

WAIT_PAUSE_S = 1.0
"""The pause before a broker or an engine that is awaited (`--wait`) is tried again."""


T = TypeVar("T")


class Patience:
    """One limit for all that a starting worker waits for.

    Args:
        wait_s: in seconds; 0 for none, infinite for ever.
        waiting: called with the name of the awaited part, when it changes.
    """

    def __init__(self, wait_s: float, waiting: Callable[[str], None]) -> None:
        self._wait_s = wait_s
        self._waiting = waiting
        self._began_s = anyio.current_time()
        self._said = ""

    async def enter(self, stack: AsyncExitStack, make: Callable[[], AbstractAsyncContextManager[T]]) -> T:
        """Enter a context on the stack, again and again until it can be entered.

        Raises:
            GymError: why it could not, the last time.
        """
        while True:
            try:
                return await stack.enter_async_context(make())
            # What a context with a task group raises comes as a group.
            except (GymError, BaseExceptionGroup) as raised:
                error = leaf(raised)
                if not _may_come(error) or anyio.current_time() >= self._began_s + self._wait_s:
                    raise
                self._say(str(error))
            await anyio.sleep(WAIT_PAUSE_S)

    def _say(self, why: str) -> None:
        if why != self._said:
            self._said = why
            self._waiting(why)


def _may_come(error: BaseException) -> bool:
    # A connection breaks when the broker is restarted between the handshake and its first answer.
    passing = isinstance(error, NotThereYet | ConnectionLost)
    return passing or (isinstance(error, BrokerError) and error.silent)


@contextmanager
def ended_at_once(lifeline: int) -> Generator[None]:
    """End this process at once on a signal, or when ``lifeline`` closes, while the context lasts.

    ``lifeline`` is the pipe that closes when the supervisor ends. Enter it in the main thread, where Python
    handles signals. A thread watches the pipe, because the event loop may be blocked. The handlers of the
    signals stay until the caller installs others, so that no signal is lost in between.
    """
    # Closing it wakes the thread, which `select` could otherwise not leave.
    started_read, started_write = os.pipe()
    watch = threading.Thread(target=_watch, args=(lifeline, started_read), name="lifeline", daemon=True)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    watch.start()
    try:
        yield
    finally:
        os.close(started_write)
        watch.join()
        os.close(started_read)


def _watch(lifeline: int, started: int) -> None:
    readable, _, _ = select.select([lifeline, started], [], [])
    # If both are readable, the worker has started, and its own watch of the pipe takes over.
    if started not in readable:
        _end()


def _end(*_: object) -> NoReturn:
    for child in tree.children(os.getpid()):
        tree.kill(child)
    # Not `sys.exit`: this may be a thread, or a handler within code that never returns.
    os._exit(128 + signal.SIGTERM)


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

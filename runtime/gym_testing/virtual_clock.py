"""Virtual time: an event loop whose clock jumps to the next timer when nothing else is left to do.

Hours pass in milliseconds, and the same program with the same seed runs the same way each time. While such
a loop runs, the clocks of `gym_runtime.clock` return its time as well, so deadlines and waits agree; the time
of day can be set (`VirtualLoop.set_clock`), as an administrator does.

In a script ``run(main, seed=7)``; in a test module a fixture for anyio's pytest plugin::

    @pytest.fixture
    def anyio_backend():
        return clock.BACKEND

A program that waits for something that cannot happen fails at once with `Deadlock`. Virtual time does not
measure work that takes real time: the clock stops while a thread that anyio started works, and the loop waits
for sockets and processes only if no timer is scheduled.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import math
import random
import selectors
from collections.abc import Awaitable, Callable, Coroutine, Generator
from operator import itemgetter
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from gym_runtime import clock

EPOCH_S = 1_800_000_000.0
"""The value of `gym_runtime.clock.now` when a virtual loop starts: in January 2027."""
BOOTED_S = 1_000.0
"""The value of `gym_runtime.clock.monotonic` then: another one, because the two must not be mixed up."""
PATIENCE_S = 1.0
"""How long the loop waits for real I/O when no timer is set, in real seconds."""

RESOLUTION_S = 1e-9
"""Timers closer together than this are due at once."""

T = TypeVar("T")
_Wake = tuple[int, Callable[..., Any], tuple[Any, ...], contextvars.Context | None]


class Deadlock(RuntimeError):
    """All tasks wait, and nothing is scheduled that could wake one."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """The event loop. ``start_s`` is where `gym_runtime.clock.now` begins, in seconds since the epoch."""

    def __init__(self, start_s: float = EPOCH_S) -> None:
        self._start_s = start_s
        self._passed_s = 0.0
        super().__init__(_Selector(self))
        self._numbers = itertools.count(1)
        self._cancelled: list[_Wake] = []
        self.set_task_factory(self._new_task)

    def time(self) -> float:
        """Virtual seconds since the loop was created."""
        return self._passed_s

    def now(self) -> float:
        """Virtual seconds since the epoch."""
        return self._start_s + self._passed_s

    def monotonic(self) -> float:
        """Virtual seconds since the simulated machine was booted."""
        return BOOTED_S + self._passed_s

    def set_clock(self, seconds: float) -> None:
        """Set the time of day forward, or back where ``seconds`` is negative. No time passes."""
        self._start_s += seconds

    def advance(self, seconds: float) -> None:
        """Let time pass, to simulate work that takes time without waiting, such as a computation."""
        then_s = self._passed_s + seconds
        if then_s + RESOLUTION_S == then_s:
            # At so large a time the resolution is below a float's step, and the loop would never find a
            # timer of exactly this moment due.
            then_s = math.nextafter(then_s, math.inf)
        self._passed_s = then_s

    def run_forever(self) -> None:
        with clock.reading(self.now, self.monotonic):
            super().run_forever()

    def call_soon(
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        number = _cancelled_task(callback, args)
        if number == 0:
            return super().call_soon(callback, *args, context=context)
        # Cancelled tasks are woken in the order of their creation. anyio keeps cancel scopes in sets, so it
        # would wake them in the order of their addresses, which differs from run to run.
        if not self._cancelled:
            super().call_soon(self._wake_cancelled)
        self._cancelled.append((number, callback, args, context))
        return asyncio.Handle(callback, args, self, context)

    def _wake_cancelled(self) -> None:
        waking, self._cancelled = self._cancelled, []
        for _, callback, args, context in sorted(waking, key=itemgetter(0)):
            super().call_soon(callback, *args, context=context)

    def _new_task(
        self,
        loop: asyncio.AbstractEventLoop,
        work: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        **options: Any,
    ) -> asyncio.Task[Any]:
        return _Task(next(self._numbers), work, loop, options)


class _Task(asyncio.Task[Any]):
    """A task that knows when it was created."""

    def __init__(self, number: int, work: Any, loop: asyncio.AbstractEventLoop, options: Any) -> None:
        self.number = number
        super().__init__(work, loop=loop, **options)


def _cancelled_task(callback: object, args: tuple[object, ...]) -> int:
    """The number of the task that a callback wakes because what it waited for was cancelled, or 0."""
    if not args or not isinstance(args[0], asyncio.Future) or not args[0].cancelled():
        return 0
    match callback:
        case object(__self__=_Task(number=number)):
            return number
        case _:
            return 0


class _Selector(selectors.DefaultSelector):
    """Waits for sockets only when there is no timer to jump to."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if _threads_at_work():
            return super().select(None)
        if timeout is not None:
            self._loop.advance(timeout)
            return []
        ready = super().select(PATIENCE_S)
        if not ready:
            names = sorted(task.get_name() for task in asyncio.all_tasks(self._loop))
            raise Deadlock(f"everything waits and no timer is set; the tasks: {', '.join(names)}")
        return ready


def _threads_at_work() -> bool:
    return anyio.to_thread.current_default_thread_limiter().borrowed_tokens > 0


BACKEND: tuple[str, dict[str, Any]] = ("asyncio", {"loop_factory": VirtualLoop})
"""The value of an ``anyio_backend`` fixture that puts tests on virtual time."""


def run(main: Callable[[], Awaitable[T]], *, seed: int = 0, start_s: float = EPOCH_S) -> T:
    """Run a program on virtual time and return its result.

    ``seed`` seeds the module `random` meanwhile, which provides the jitter of pauses.

    Raises:
        Deadlock: the program waits for something that cannot happen.
    """
    state = random.getstate()
    random.seed(seed)
    try:
        return anyio.run(main, backend_options={"loop_factory": lambda: VirtualLoop(start_s)})
    finally:
        random.setstate(state)

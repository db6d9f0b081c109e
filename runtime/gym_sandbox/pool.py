"""A pool of fork servers: functions called in sandboxed forks that are killed at their limits.

A call uses an idle process that was prepared for calls of its kind (its modules are imported), or starts one.
The number of calls that compute at a time is a little above the number of CPUs; waiting for a slot does not
count towards a limit. A call's limit is in processor time, so that a busy machine fails no call; a call that
only waits ends after `WALL_FACTOR` times the limit plus `WALL_S`, by the clock, without the time in which
this process did not run, as on a machine that sleeps. A call that takes `OVERRUN_FACTOR` times as long as its
kind usually does (at least `OVERRUN_S`) gives up its slot and continues at the lowest priority, so that calls
that hang do not delay others; at most `OVERRUNNING_AT_MOST` do so. The process that takes its slot was
started in advance, at the lowest priority where that can be raised again: when all slots are taken, one more
process is started, and another one when a call overruns.

The processes are new sandboxed interpreters, never forks of a worker with its threads and connections, and
end with their event loop.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import anyio
import msgspec
from anyio import CapacityLimiter
from anyio.lowlevel import RunVar

from gym_sandbox.process import of_loop
from gym_sandbox.server_process import Overrun, ServerProcess
from gym_sandbox.verifier import Verifier

OVERRUN_S = 0.1
OVERRUN_FACTOR = 5.0
USUAL_S = 0.4  # assumed until the first call of a kind is measured
OVERRUNNING_AT_MOST = 64
WALL_FACTOR, WALL_S = 4.0, 5.0
WATCH_S, WATCH_LONG_S, WATCH_KEPT_S = 0.05, 1.0, 10.0
WATCH_PART = 0.2
"""A call is looked at each time that it has become older by this part, because a look costs the event loop up
to half a millisecond, and a call may take minutes. The pauses are from `WATCH_S` to `WATCH_LONG_S`, or to
`WATCH_KEPT_S` where the kernel keeps the limits."""

STILL_S = 2.0
"""A look that comes later than this says that this process did not run, and then mostly nor did the call."""


class _Wait:
    """How long a call has taken, in seconds.

    Args:
        limit_s: how long it may take.
    """

    def __init__(self, limit_s: float) -> None:
        self.limit_s, self.spent_s, self._looked_s = limit_s, 0.0, time.monotonic()

    async def answers(self, process: ServerProcess) -> bool:
        """Whether the call answers before the next look at it.

        Raises:
            TimeoutError: it has taken too long.
        """
        longest_s = WATCH_KEPT_S if process.kept_by_kernel else WATCH_LONG_S
        pause_s = min(longest_s, max(WATCH_S, min(WATCH_PART * self.spent_s, self.limit_s - self.spent_s)))
        answered = await process.answers_within(pause_s)
        now_s = time.monotonic()
        self.spent_s += min(now_s - self._looked_s, pause_s + STILL_S)
        self._looked_s = now_s
        if not answered and self.spent_s >= self.limit_s:
            raise TimeoutError
        return answered

    async def answer(self, process: ServerProcess) -> msgspec.Raw:
        """Its answer, which has begun to come; raises as `ServerProcess.answer`, and TimeoutError."""
        with anyio.fail_after(max(STILL_S, self.limit_s - self.spent_s)):
            return await process.answer()


class Pool:
    """The fork servers of one event loop."""

    def __init__(self) -> None:
        cpus = os.cpu_count() or 2
        self.slots = cpus + max(1, cpus // 4)  # more than CPUs: a call that hangs idles one until it overruns
        self._slots = CapacityLimiter(self.slots)
        self._idle_at_most = self.slots + 2
        self._overrunning = 0
        self._busy: dict[Verifier, int] = {}
        self._usual_s: dict[Verifier, float] = {}
        self._idle: list[ServerProcess] = []
        self._alive: set[ServerProcess] = set()
        # Not a method: that would keep this object alive.
        weakref.finalize(self, _abandon, self._alive)

    def start_ahead(self, kinds: Sequence[Verifier]) -> bool:
        """Start a process for each kind, unless they are more than may be idle; whether it did."""
        if len(kinds) > self._idle_at_most:
            return False
        # Not as spare processes: the first calls come as soon as a model has answered.
        self._idle += [self._start(verifier) for verifier in kinds]
        return True

    async def call(self, verifier: Verifier, arguments: bytes, cpu_s: float) -> msgspec.Raw:
        """Call a verifier's function with encoded arguments; returns its result as JSON.

        Raises:
            TimeoutError: it took too long, and was killed; the message has the limit.
            ProcessDied: the process ended during the call, or exceeded a limit.
            NotPrepared: no process could be prepared for such calls.
            FunctionRaised: it, or the preparation, raised.
            StartError, SetupError: a process cannot be started.
        """
        async with self._slot() as slot, self._process(verifier) as process:
            await process.prepare()
            wall_s = WALL_FACTOR * cpu_s + WALL_S
            try:
                with anyio.fail_after(wall_s):
                    await process.ask(arguments, cpu_s)
                return await self._answer(process, slot, _Wait(wall_s))
            except Overrun:
                raise TimeoutError(f"{cpu_s:g} s of processor time") from None
            except TimeoutError:
                raise TimeoutError(f"{wall_s:g} s") from None

    async def _answer(self, process: ServerProcess, slot: object, wait: _Wait) -> msgspec.Raw:
        kind = process.verifier
        usual_s = self._usual_s.get(kind, USUAL_S)
        in_time_s = max(OVERRUN_S, OVERRUN_FACTOR * usual_s)
        while not await wait.answers(process):
            process.watch()
            process.insist()
            if wait.spent_s > in_time_s and self._overrunning < OVERRUNNING_AT_MOST:
                return await self._overrun(process, slot, wait)
        # A moving average over about eight calls: one slow call changes little.
        self._usual_s[kind] = usual_s + (wait.spent_s - usual_s) / 8
        return await wait.answer(process)

    async def _overrun(self, process: ServerProcess, slot: object, wait: _Wait) -> msgspec.Raw:
        process.overran = True
        self._busy[process.verifier] -= 1
        self._overrunning += 1
        self._slots.release_on_behalf_of(slot)
        self._keep_one_idle(process.verifier)
        try:
            process.yield_to_others()
            while not await wait.answers(process):
                process.watch()
                process.yield_to_others()
            return await wait.answer(process)
        finally:
            self._overrunning -= 1

    @asynccontextmanager
    async def _slot(self) -> AsyncGenerator[object]:
        slot = object()
        # Not on behalf of the task: a call that overruns gives its slot back and goes on.
        await self._slots.acquire_on_behalf_of(slot)
        try:
            yield slot
        finally:
            # A call that overran has given it back already.
            if slot in self._slots.statistics().borrowers:
                self._slots.release_on_behalf_of(slot)

    @asynccontextmanager
    async def _process(self, verifier: Verifier) -> AsyncGenerator[ServerProcess]:
        """A process for one call; afterwards it becomes idle if it can take further calls."""
        process = await self._take(verifier)
        self._busy[verifier] = self._busy.get(verifier, 0) + 1
        if self._busy[verifier] >= self.slots - 1:
            self._keep_one_idle(verifier)
        try:
            yield process
        finally:
            if not process.overran:
                self._busy[verifier] -= 1
            await self._retire(process)

    async def _take(self, verifier: Verifier) -> ServerProcess:
        # Other calls take idle processes while this one waits for the end of one.
        while process := next((idle for idle in self._idle if idle.verifier == verifier), None):
            self._idle.remove(process)
            if not process.ended:
                return process
            await self._end(process)  # it may have been killed while idle (out of memory)
        return self._start(verifier)

    async def _retire(self, process: ServerProcess) -> None:
        if not process.reusable or not process.is_at_normal_priority:
            await self._end(process)
            return
        process.overran = False
        self._idle.append(process)
        if len(self._idle) > self._idle_at_most:  # the one that has been idle for longest ends
            await self._end(self._idle.pop(0))

    async def _end(self, process: ServerProcess) -> None:
        # A cancelled call's process must not go on computing.
        with anyio.CancelScope(shield=True):
            await process.close()
        self._alive.discard(process)

    def _keep_one_idle(self, verifier: Verifier) -> None:
        if not any(process.verifier == verifier for process in self._idle):
            self._idle.append(self._start(verifier, spare=True))

    def _start(self, verifier: Verifier, *, spare: bool = False) -> ServerProcess:
        process = ServerProcess(verifier, spare=spare)
        self._alive.add(process)
        return process


_pool: RunVar[Pool] = RunVar("gym_sandbox_pool")


def pool() -> Pool:
    """The pool of this event loop."""
    return of_loop(_pool, Pool)


def _abandon(alive: set[ServerProcess]) -> None:
    for process in alive:
        process.abandon()

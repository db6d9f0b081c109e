"""Warm processes that call functions and are killed where they do not come back.

A call takes an idle process that has been prepared for calls of its kind (its modules are imported), or
starts one. Little more calls compute at a time than there are CPUs; waiting for a turn counts against no
limit. A call that is at work `OVERRUN_FACTOR` times as long as its kind usually is (at least `OVERRUN_S`)
gives its turn away and goes on at the lowest priority, up to `OVERRUNNING_AT_MOST` of them, so that calls
which hang keep nobody waiting. Who takes their place has been warmed in advance, at the lowest priority where
that can be taken back: when all turns are taken one more process is started, and another one when a call
overruns.

What a process may use it limits itself (`warm`), but how many it becomes and what memory all of
them hold is bounded from here (`bounded`). It is replaced after `CALLS_PER_PROCESS` calls, and
after one that leaves processes behind.

The processes are fresh interpreters (never forks of a worker with its threads and connections) and end with
the event loop that they serve.
"""

from __future__ import annotations

import math
import os
import pickle
import sys
import time
import weakref
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

import anyio
from anyio import CapacityLimiter
from anyio.lowlevel import RunVar

from gym_runtime.processes import priority, tree
from gym_runtime.processes.bounded import Bounded
from gym_runtime.processes.child import EndOfProcess
from gym_runtime.processes.warm import MEMORY_BYTES

OVERRUN_S = 0.1
OVERRUN_FACTOR = 5.0
USUAL_S = 0.4  # until the first call of a kind tells
OVERRUNNING_AT_MOST = 64
CALLS_PER_PROCESS = 1000
START_LIMIT_S = 120.0
MESSAGE_BYTES = 256 << 20
PROCESSES = 64
OF_ITS_OWN = 2  # the one that calls, and the one that watches it
WATCH_S, WATCH_OVERRUNNING_S = 0.05, 0.2
_R = TypeVar("_R")


class ProcessDied(Exception):
    """The process ended in the middle of a call, or had to be; the message says why."""


class NotPrepared(Exception):
    """The process could not even prepare for calls of its kind: it ended, or took too long."""


class Warm(Bounded):
    """A process that was told to prepare for one kind of calls when it was started.

    Args:
        spare: nobody waits for it yet.
    """

    def __init__(self, kind: bytes, *, spare: bool) -> None:
        super().__init__(
            [sys.executable, "-P", "-m", "gym_runtime.processes.warm"],
            processes=PROCESSES,
            memory_bytes=MEMORY_BYTES,
        )
        self.kind = kind
        self.calls = 0
        self.overran = False
        self.prepared = False
        self._yields = spare and priority.weigh(self.pid, priority.LEAST)
        self.send_now(_request(kind, None))

    async def prepare(self) -> None:
        """Wait until it has prepared.

        Raises:
            NotPrepared: it ended over it, or took longer than `START_LIMIT_S` seconds.
            Exception: whatever its preparation raised.
        """
        self.insist()
        if self.prepared:
            return
        try:
            with anyio.fail_after(START_LIMIT_S):
                await self.answer()
        except ProcessDied as error:
            raise NotPrepared("it ended while it imported what it needs") from error
        except TimeoutError as error:
            raise NotPrepared(f"importing what it needs took longer than {START_LIMIT_S:g} s") from error
        self.prepared = True

    def insist(self) -> None:
        """Take the priority that a call has. Repeatable, and to be repeated: it may fail for a while."""
        if self._yields and priority.weigh(self.pid, 0):
            self._yields = False

    def yield_to_others(self) -> None:
        """Go on at the lowest priority, with all that it has started by now; repeatable."""
        priority.lower(tree.members(self.pid)[1:])  # the first one is to see to the end of the others
        priority.weigh(self.pid, priority.LEAST)

    def kill(self) -> None:
        if self.exit_code is None:
            priority.weigh(self.pid, 0)  # dying takes time, too
            tree.kill(self.pid, waits=True)

    def watch(self) -> None:
        """Look at what it has become.

        Raises:
            ProcessDied: that is more than it may be; it has been killed.
        """
        if too_much := self.find_excess():
            self.kill()
            raise ProcessDied(too_much)

    @property
    def alone(self) -> bool:
        """Whether nobody is left of those that its calls have started."""
        return len(tree.members(self.pid)) <= OF_ITS_OWN

    async def answer(self) -> Any:
        """The result of what it was asked.

        Raises:
            ProcessDied: it ended over it.
            Exception: whatever that raised.
        """
        try:
            well, result = pickle.loads(await self.receive(MESSAGE_BYTES))
        except EndOfProcess as error:
            why = self.find_excess() or "out of memory or of processor time, or a crash in native code"
            raise ProcessDied(why) from error
        self.watch()  # the result may be what a child lacks that the kernel has killed
        if well:
            return result
        raise cast("BaseException", result)


class WarmProcesses:
    """The warm processes of one event loop."""

    def __init__(self) -> None:
        cpus = os.cpu_count() or 2
        self.turns = cpus + max(1, cpus // 4)  # so that one which may soon turn out to hang blocks no CPU
        self._turns = CapacityLimiter(self.turns)
        self._overrunning = 0
        self._busy: dict[bytes, int] = {}
        self._usual_s: dict[bytes, float] = {}
        self._idle: list[Warm] = []
        self._alive: set[Warm] = set()
        weakref.finalize(self, _abandon, self._alive)

    async def call(self, kind: bytes, call: bytes, timeout_s: float) -> Any:
        """Make a pickled call in a process of a kind, which is a pickled call too.

        Raises:
            TimeoutError: it took longer than ``timeout_s`` seconds, and its process was killed.
            ProcessDied: the process ended over it, or became more than it may be.
            NotPrepared: no process can be had for such calls.
            Exception: whatever the call raised.
        """
        async with self._turn() as turn, self._process(kind) as process:
            await process.prepare()
            with anyio.fail_after(timeout_s):
                try:
                    await process.send(_request(call, timeout_s))
                except EndOfProcess as error:
                    raise ProcessDied("it was gone") from error
                start_s, usual_s = time.monotonic(), self._usual_s.get(kind, USUAL_S)
                in_time_s = start_s + max(OVERRUN_S, OVERRUN_FACTOR * usual_s)
                while not await process.answers_within(WATCH_S):
                    process.watch()
                    process.insist()
                    if time.monotonic() > in_time_s and self._overrunning < OVERRUNNING_AT_MOST:
                        return await self._overrun(process, turn)
                self._usual_s[kind] = usual_s + (time.monotonic() - start_s - usual_s) / 8
                return await process.answer()

    async def _overrun(self, process: Warm, turn: object) -> Any:
        process.overran = True
        self._busy[process.kind] -= 1
        self._overrunning += 1
        self._turns.release_on_behalf_of(turn)
        self._keep_one_idle(process.kind)
        try:
            process.yield_to_others()
            while not await process.answers_within(WATCH_OVERRUNNING_S):
                process.watch()
                process.yield_to_others()
            return await process.answer()
        finally:
            self._overrunning -= 1

    @asynccontextmanager
    async def _turn(self) -> AsyncGenerator[object]:
        turn = object()
        await self._turns.acquire_on_behalf_of(turn)
        try:
            yield turn
        finally:
            if turn in self._turns.statistics().borrowers:
                self._turns.release_on_behalf_of(turn)

    @asynccontextmanager
    async def _process(self, kind: bytes) -> AsyncGenerator[Warm]:
        """A process for one call; back among the idle ones if it comes out of it alive and well."""
        process = await self._take(kind)
        self._busy[kind] = self._busy.get(kind, 0) + 1
        if self._busy[kind] >= self.turns - 1:
            self._keep_one_idle(kind)
        well = False
        try:
            yield process
            well = process.alone
        except (ProcessDied, NotPrepared, TimeoutError, anyio.get_cancelled_exc_class()):
            raise
        except Exception:
            well = process.prepared and process.alone  # the call raised; it did what it was told
            raise
        finally:
            if not process.overran:
                self._busy[kind] -= 1
            process.calls += 1
            await self._retire(process, well)

    async def _take(self, kind: bytes) -> Warm:
        for process in [idle for idle in self._idle if idle.kind == kind]:
            self._idle.remove(process)
            if process.exit_code is None:
                return process
            await self._end(process)  # out of memory, the system chose this one: no fault of the next call's
        return self._start(kind)

    async def _retire(self, process: Warm, well: bool) -> None:
        if well and not process.overran and process.calls < CALLS_PER_PROCESS:
            self._idle.append(process)
            # A kind that nobody asks for any more gives way.
            if len(self._idle) > self.turns + 2:
                await self._end(self._idle.pop(0))
            return
        if process.calls >= CALLS_PER_PROCESS:
            self._keep_one_idle(process.kind)
        await self._end(process)

    async def _end(self, process: Warm) -> None:
        with anyio.CancelScope(shield=True):
            await process.close()
        self._alive.discard(process)

    def _keep_one_idle(self, kind: bytes) -> None:
        if not any(process.kind == kind for process in self._idle):
            self._idle.append(self._start(kind, spare=True))

    def _start(self, kind: bytes, *, spare: bool = False) -> Warm:
        process = Warm(kind, spare=spare)
        self._alive.add(process)
        return process


_of_loop: RunVar[WarmProcesses] = RunVar("gym_runtime_warm_processes")


async def call_killable(
    function: Callable[..., _R],
    arguments: tuple[object, ...],
    prepare: Callable[[], object],
    timeout_s: float,
) -> _R:
    """As `WarmProcesses.call`; processes are of one kind if ``prepare`` pickles to the same."""
    try:
        processes = _of_loop.get()
    except LookupError:
        processes = WarmProcesses()
        _of_loop.set(processes)
    call = pickle.dumps((function, arguments))
    return cast("_R", await processes.call(pickle.dumps((prepare, ())), call, timeout_s))


def _request(call: bytes, cpu_s: float | None) -> bytes:
    limit_s = None if cpu_s is None or math.isinf(cpu_s) else cpu_s
    return pickle.dumps((sys.path, limit_s, call))


def _abandon(alive: set[Warm]) -> None:
    for process in alive:
        process.abandon()

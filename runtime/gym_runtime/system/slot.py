"""One slot of a pool: the process that fills it, and when the next process may start.

The process is forked from the supervisor. It writes to a pipe: ``ready``, ``drain`` when it was asked to
leave, and the reason of its end if it knows one. It drains at `DRAIN_SIGNAL`, and ends when the lifeline, a
pipe that the supervisor keeps open, is closed.

A process that ended is started again after a growing pause. More than `MAX_RESTARTS` within
`RESTART_WINDOW_S` stop the system, and so do `MAX_FALSE_STARTS` in a row that never became ready.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import time
import traceback
import uuid
from collections import deque
from functools import partial
from typing import NoReturn

import msgspec
from gym_sandbox.processes import priority
from setproctitle import setproctitle

from gym_runtime.errors import GymError, RuntimeFault, TransportError, UsageError, described, leaf
from gym_runtime.retrying import Backoff, Pauses
from gym_runtime.system.spec import DRAIN_LINE, DRAIN_SIGNAL, READY_LINE, WAITING, PoolSpec, SystemSpec

RESTART_WINDOW_S = 300.0
"""The time in which a worker's restarts are counted, until its slot gives up."""
RESTART_PAUSES = Pauses(first_s=0.05, longest_s=1.6)
"""The pauses before a worker is started again."""
MAX_RESTARTS = 100
"""A row that ends its workers ends three, until `gym_runtime.rpc.quarantine` lets it fail: so many restarts
are dozens of such rows, or a worker that fails at every row."""
MAX_FALSE_STARTS = 5
GC_THRESHOLD = (150_000, 20, 100)
"""Rare collections: rollouts in flight are live objects, about a hundred each, which they scan in vain.

A thousand in flight, as many as an agent worker has by default, lead to none. With 50,000 a trainer's step of
512 rollouts had one, of 15 to 80 ms, while its results came in. With more a collection's pause would be
longer.
"""
TITLE_CHARS = 60
RAISED = 1
"""A worker's exit status when it raised what is no error of the runtime."""
IN_TROUBLE = 75
"""A worker's exit status when a restart may help (EX_TEMPFAIL)."""
FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""The signals by which others end a process. Any other one shows that the process has crashed."""
SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""The signals that the supervisor handles; its children reset them."""


class Deaths:
    """How often one process died within the last seconds, and how often it may."""

    def __init__(self, most: int, within_s: float) -> None:
        self._at_s: deque[float] = deque()
        self._most, self._within_s = most, within_s

    def count(self, what: str) -> int:
        """Count one more death; return how many there were.

        Raises:
            UsageError: there were too many.
        """
        now = time.monotonic()
        self._at_s.append(now)
        # The newest is within the window, so the deque does not become empty.
        while self._at_s[0] < now - self._within_s:
            self._at_s.popleft()
        count = len(self._at_s)
        if count > self._most:
            raise UsageError(f"{what}, {count} times within {self._within_s:.0f} s; see its log above")
        return count


class End(msgspec.Struct, frozen=True):
    """How a process ended. ``reason`` says why a restart would fail too; empty if a restart may help."""

    pid: int
    what: str
    reason: str


class Slot:
    """One slot of a pool.

    Attributes:
        pid: 0 while it is empty.
        report: the pipe to read from the process, or -1.
        asked_s: when another process than the supervisor asked its process to leave; 0 if none did.
        awaits: what its process waits for before it can start; empty for nothing.
        told_s: when the supervisor told its process to drain; 0 if it did not.
        retired: its process left as it was asked to; the slot stays empty.
        crashed, killed: the name of its last process, if that crashed, or was ended from outside.
    """

    def __init__(self, pool: PoolSpec) -> None:
        self.pool = pool
        self.pid = 0
        self.name = ""
        self.report = -1
        self.ready = False
        self.asked_s = 0.0
        self.awaits = ""
        self.told_s = 0.0
        self.retired = False
        self.crashed = self.killed = ""
        self.start_at_s = 0.0
        self._worked = False
        self._said = ""
        self._deaths = Deaths(MAX_RESTARTS, RESTART_WINDOW_S)
        self._false_starts = 0
        self._backoff = Backoff(RESTART_PAUSES)

    def fork(self, system: SystemSpec, lifeline: tuple[int, int]) -> None:
        """Fill the slot. ``lifeline`` is the pipe's reading and writing end."""
        report_read, report_write = os.pipe()
        self.name = f"{self.pool.kind}-{uuid.uuid4().hex[:10]}"
        self.ready, self.asked_s, self.told_s = False, 0.0, 0.0
        self.awaits = self._said = ""
        # Both processes would write any output that is still buffered at the fork.
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            os.close(report_read)
            self._become(system, lifeline, report_write)
        os.close(report_write)
        os.set_blocking(report_read, False)
        self.pid, self.report = pid, report_read

    def _become(self, system: SystemSpec, lifeline: tuple[int, int], report: int) -> NoReturn:
        """The child's side of a fork."""
        status = RAISED
        try:
            gc.set_threshold(*GC_THRESHOLD)
            # The pipe belongs to the supervisor: this process's signals would wake it.
            signal.set_wakeup_fd(-1)
            for number in SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            ours, supervisors = lifeline
            # As long as any process holds the writing end, the pipe does not close.
            os.close(supervisors)
            setproctitle(
                f"gym-runtime {self.pool.kind} {','.join(self.pool.names)[:TITLE_CHARS]} ({self.name})"
            )
            null = os.open(os.devnull, os.O_RDWR)
            # Standard input is the supervisor's line to its owner.
            os.dup2(null, 0)
            os.dup2(2, 1)  # standard output belongs to the supervisor's events
            status = _work(system, self, ours, report)
        except BaseException:  # noqa: BLE001 - the child must end here, on any error
            # The next starts mostly fail in the same way: their last line is enough.
            traceback.print_exc(limit=0 if self._false_starts else None)
        finally:
            # The reader of standard error may be gone.
            with contextlib.suppress(OSError):
                sys.stderr.flush()
            # Not `sys.exit`: that would run the supervisor's own clean-up, in a second process.
            os._exit(status)

    def hear(self) -> bool:
        """Read the process's reports; True once, when it becomes ready."""
        if self.report < 0:
            return False
        # There is nothing to read now.
        with contextlib.suppress(BlockingIOError):
            self._said += os.read(self.report, 65536).decode(errors="replace")
        while self._said.startswith(WAITING) and "\n" in self._said:
            line, _, self._said = self._said.partition("\n")
            self.awaits = line.removeprefix(WAITING)
        became_ready = not self.ready and self._heard(READY_LINE)
        if became_ready:
            self.ready = self._worked = True
        if self.ready and self._heard(DRAIN_LINE):
            # The first request counts; each further one would put the drain off.
            self.asked_s = self.asked_s or time.monotonic()
        return became_ready

    def _heard(self, line: str) -> bool:
        heard = self._said.startswith(line)
        while self._said.startswith(line):
            self._said = self._said.removeprefix(line)
        return heard

    def tell(self) -> None:
        """Make its process drain; a process that is not ready yet ends at once. May be called again."""
        if self.pid and self.ready and not self.told_s:
            self.told_s = time.monotonic()
            os.kill(self.pid, DRAIN_SIGNAL)
        elif self.pid and not self.ready:
            # Each time: right after the fork the child still has the supervisor's handler, which ignores it.
            os.kill(self.pid, signal.SIGTERM)

    def empty(self, status: int) -> End:
        """Empty the slot: its process ended with this status of ``waitpid``."""
        os.close(self.report)
        pid, self.pid, self.report = self.pid, 0, -1
        code = os.waitstatus_to_exitcode(status)
        reason = self._said.strip()
        self.retired = self.asked_s > 0 and self.told_s > 0
        # A slot that has worked will work again: only the broker is missing.
        passing = self._worked and code == IN_TROUBLE
        crash = code not in (0, IN_TROUBLE) and -code not in FROM_OUTSIDE
        self.crashed = self.name if crash else ""
        self.killed = self.name if -code in FROM_OUTSIDE else ""
        self._false_starts = 0 if self.ready or passing else self._false_starts + 1
        if passing or (code == RAISED and reason):
            how, reason = f"ended: {reason}", ""
        else:
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with status {code}"
        return End(pid, f"{self.pool.kind} worker {pid} {how}", reason)

    def put_off(self, what: str) -> None:
        """Have the slot filled again after a pause.

        Raises:
            UsageError: its processes have died too often.
        """
        if self._false_starts >= MAX_FALSE_STARTS:
            raise UsageError(f"{what}; it failed {self._false_starts} times to get ready; see its log above")
        if self._deaths.count(what) == 1:
            self._backoff.reset()
        self.start_at_s = time.monotonic() + self._backoff.next_s()


def _work(system: SystemSpec, slot: Slot, lifeline: int, report: int) -> int:
    import anyio

    from gym_runtime.cancellation import raised_at
    from gym_runtime.rpc.quarantine import Before
    from gym_runtime.system.worker_process import work

    # A model worker that names no engine may run it itself, and an engine must not wait for others.
    if slot.pool.model is None or slot.pool.model.urls:
        priority.take_turns()

    def say(line: str) -> None:
        os.write(report, line.encode())

    before = Before(slot.crashed, slot.killed)
    main = partial(work, system, slot.pool, slot.name, before=before, lifeline=lifeline, report=say)
    try:
        anyio.run(main, backend_options={"use_uvloop": sys.platform != "win32"})
    # What a task group raises may be no Exception.
    except BaseException as error:
        cause = leaf(error)
        if not isinstance(cause, GymError):
            reason = f"{described(cause)} ({raised_at(cause.__traceback__)})"
            os.write(report, reason.encode(errors="replace"))
            raise
        os.write(report, str(cause).encode())
        return IN_TROUBLE if isinstance(cause, TransportError | RuntimeFault) else 2
    return 0

"""The supervisor: one small synchronous process that starts the broker and the workers and keeps them up.

Workers are forked from it, so each costs milliseconds and shares the imported code. It therefore has
neither threads nor an event loop. It reads its `SystemSpec` from standard input and stays as long as
that is open: ``drain`` on a line stops it gracefully, the end of the input (its owner died) stops it
with little patience. It writes `Event` lines to standard output.

What dies is started again after a pause; ``MAX_RESTARTS`` within ``RESTART_WINDOW_S`` are too many, and so
are ``MAX_FALSE_STARTS`` of a worker that never gets ready. A worker that says why it cannot start is not
started again, unless its slot has worked before and it is the way to the broker that is in trouble: that
may pass, and is tried again for as long as it takes. In all other cases everything stops, with the reason.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import shutil
import signal
import sys
import time
import traceback
import uuid
from collections import deque
from importlib import import_module
from pathlib import Path

import msgspec
from msgspec.structs import replace

from gym_runtime.broker import Broker
from gym_runtime.errors import GymError, TransportError, UsageError, leaf
from gym_runtime.workers.spec import Event, Kind, PoolSpec, SystemSpec, decode_system, encode

MAX_RESTARTS = 20
RESTART_WINDOW_S = 60.0
MAX_FALSE_STARTS = 5
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.6
GC_THRESHOLD = (50_000, 20, 100)
"""Thousands of rollouts in flight are live objects that each collection would only look at."""
HASTY_S = 1.0
HASTY_KILL_S = 3.0
IN_TROUBLE = 75
"""A worker's exit status when its trouble may pass (EX_TEMPFAIL)."""
STOP_ORDER: tuple[Kind, ...] = ("agent", "resource", "model")


class _Worker:
    """One slot of a pool, and the process that fills it."""

    def __init__(self, pool: PoolSpec) -> None:
        self.pool = pool
        self.pid = 0
        self.name = ""
        self.report = -1
        self.ready = False
        self.worked = False
        self.said = ""
        self.deaths: deque[float] = deque()
        self.false_starts = 0
        self.start_at_s = 0.0


class Supervisor:
    """Keeps one system up."""

    def __init__(self, system: SystemSpec) -> None:
        self._system = system
        self._workers = [_Worker(pool) for pool in system.pools for _ in range(pool.processes)]
        self._broker: Broker | None = None
        self._broker_deaths: deque[float] = deque()
        self._stopping = False
        self._patience_s = system.drain_s
        self._failure = ""
        self._input = b""
        self._announced = False
        self._lifeline_read, self._lifeline_write = os.pipe()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)

    def run(self) -> int:
        """Keep the system up until it is told to stop; the process's exit status."""
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        try:
            self._start_broker()
            gc.collect()
            gc.freeze()
            while not self._stopping:
                self._fill_slots()
                self._wait(self._next_start_s())
                self._reap()
                self._watch_broker()
        except GymError as error:
            self._failure = str(error)
        finally:
            self._shut_down()
        if self._failure:
            _say(Event(event="failed", reason=self._failure))
            return 1
        _say(Event(event="stopped"))
        return 0

    # -- the broker -----------------------------------------------------------------------------------

    def _start_broker(self) -> None:
        if self._system.nats:
            _say(Event(event="broker", url=",".join(self._system.nats)))
            return
        self._broker = Broker(Path(self._system.state_dir))
        url = self._broker.start()
        self._system = replace(self._system, nats=(url,))
        _say(Event(event="broker", url=url, pid=self._broker.pid))

    def _watch_broker(self) -> None:
        if self._broker is None or self._broker.poll() is None:
            return
        self._count_death(self._broker_deaths, "the broker died")
        self._broker.restart()
        _say(Event(event="restarted", kind="broker", pid=self._broker.pid, reason="the broker died"))

    # -- the workers ----------------------------------------------------------------------------------

    def _fill_slots(self) -> None:
        now = time.monotonic()
        for worker in self._workers:
            if not worker.pid and worker.start_at_s <= now and not self._stopping:
                self._fork(worker)

    def _next_start_s(self) -> float | None:
        waiting = [worker.start_at_s for worker in self._workers if not worker.pid]
        return max(0.0, min(waiting) - time.monotonic()) if waiting else (0.5 if self._broker else None)

    def _fork(self, worker: _Worker) -> None:
        report_read, report_write = os.pipe()
        worker.name = f"{worker.pool.kind}-{uuid.uuid4().hex[:10]}"
        worker.ready, worker.said = False, ""
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            os.close(report_read)
            self._become(worker, report_write)
        os.close(report_write)
        os.set_blocking(report_read, False)
        worker.pid, worker.report = pid, report_read

    def _become(self, worker: _Worker, report: int) -> None:
        """The child's side of a fork; never returns."""
        status = 1
        try:
            gc.set_threshold(*GC_THRESHOLD)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            os.close(self._lifeline_write)
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 0)
            os.dup2(2, 1)  # standard output belongs to the supervisor's events
            status = _be_worker(self._system, worker.pool, worker.name, self._lifeline_read, report)
        except BaseException:  # noqa: BLE001 - the child must end here, whatever happens
            traceback.print_exc()
        finally:
            with contextlib.suppress(OSError):
                sys.stderr.flush()
            os._exit(status)

    def _reap(self) -> None:
        for worker in self._workers:
            self._hear(worker)
            if worker.pid:
                pid, status = os.waitpid(worker.pid, os.WNOHANG)
                if pid:
                    self._hear(worker)
                    self._bury(worker, status)
        if not self._announced and self._workers and all(worker.ready for worker in self._workers):
            self._announced = True
            _say(Event(event="all_ready"))

    def _hear(self, worker: _Worker) -> None:
        if worker.report < 0:
            return
        with contextlib.suppress(BlockingIOError):
            worker.said += os.read(worker.report, 65536).decode(errors="replace")
        if not worker.ready and worker.said.startswith("ready\n"):
            worker.ready = worker.worked = True
            pool = worker.pool
            _say(Event(event="ready", worker=worker.name, kind=pool.kind, pools=pool.names, pid=worker.pid))

    def _bury(self, worker: _Worker, status: int) -> None:
        os.close(worker.report)
        pid, worker.pid, worker.report = worker.pid, 0, -1
        if self._stopping:
            return
        reason = worker.said.removeprefix("ready\n").strip()
        code = os.waitstatus_to_exitcode(status)
        passing = worker.worked and code == IN_TROUBLE
        if reason and not passing:
            self._stop(reason)
            return
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with status {code}"
        what = f"{worker.pool.kind} worker {pid} {'ended: ' + reason if passing else how}"
        worker.false_starts = 0 if worker.ready or passing else worker.false_starts + 1
        if worker.false_starts >= MAX_FALSE_STARTS:
            raise UsageError(f"{what}; it failed {worker.false_starts} times to get ready: see its log above")
        self._count_death(worker.deaths, what)
        pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(len(worker.deaths) - 1, 7))
        worker.start_at_s = time.monotonic() + pause_s
        _say(
            Event(
                event="restarted",
                worker=worker.name,
                kind=worker.pool.kind,
                pid=pid,
                reason=what,
            )
        )

    def _count_death(self, deaths: deque[float], what: str) -> None:
        now = time.monotonic()
        deaths.append(now)
        while deaths and deaths[0] < now - RESTART_WINDOW_S:
            deaths.popleft()
        if len(deaths) > MAX_RESTARTS:
            raise UsageError(
                f"{what}; it is the {len(deaths)}th time within {RESTART_WINDOW_S:.0f} s: see its log above"
            )

    # -- waiting and stopping -------------------------------------------------------------------------

    def _on_signal(self, number: int, frame: object) -> None:
        if number != signal.SIGCHLD:
            self._stop("")

    def _stop(self, reason: str, patience_s: float | None = None) -> None:
        self._stopping = True
        self._failure = self._failure or reason
        if patience_s is not None:
            self._patience_s = min(self._patience_s, patience_s)

    def _wait(self, limit_s: float | None, *, with_input: bool = True) -> None:
        reports = [worker.report for worker in self._workers if worker.report >= 0]
        sources = [self._wake_read, *reports, *([0] if with_input else [])]
        readable, _, _ = select.select(sources, [], [], limit_s)
        if self._wake_read in readable:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake_read, 4096)
        if 0 in readable:
            self._read_input()

    def _read_input(self) -> None:
        data = os.read(0, 65536)
        self._input += data
        if not data:
            self._stop("", patience_s=HASTY_S)
        elif b"drain\n" in self._input:
            self._stop("")

    def _shut_down(self) -> None:
        """Agents first: what they give back or finish still needs resources, models and the broker."""
        self._stopping = True
        for kind in STOP_ORDER:
            self._end([worker for worker in self._workers if worker.pid and worker.pool.kind == kind])
        self._cut_lifeline()
        if self._broker is not None:
            self._broker.stop()
        if self._system.temporary:
            shutil.rmtree(self._system.state_dir, ignore_errors=True)

    def _end(self, workers: list[_Worker]) -> None:
        for worker in workers:
            if not self._hasty or not worker.ready:
                os.kill(worker.pid, signal.SIGTERM)
        limit = time.monotonic() + self._patience_s + 1.0
        while any(worker.pid for worker in workers):
            if self._hasty:
                # Not a second SIGTERM, which would end a worker before it has given its tasks back.
                self._cut_lifeline()
                limit = min(limit, time.monotonic() + HASTY_KILL_S)
            self._wait(min(0.2, max(0.0, limit - time.monotonic())), with_input=not self._hasty)
            self._reap()
            if time.monotonic() > limit:
                for worker in workers:
                    if worker.pid:
                        os.kill(worker.pid, signal.SIGKILL)
                limit = time.monotonic() + 5.0

    @property
    def _hasty(self) -> bool:
        return self._patience_s <= HASTY_S

    def _cut_lifeline(self) -> None:
        """Have all workers end within a moment."""
        if self._lifeline_write >= 0:
            os.close(self._lifeline_write)
            self._lifeline_write = -1


def _be_worker(system: SystemSpec, pool: PoolSpec, name: str, lifeline: int, report: int) -> int:
    import anyio

    from gym_runtime.workers.process import work

    def ready() -> None:
        os.write(report, b"ready\n")

    async def main() -> None:
        await work(system, pool, name, lifeline=lifeline, ready=ready)

    try:
        anyio.run(main, backend_options={"use_uvloop": sys.platform != "win32"})
    except BaseException as error:
        cause = leaf(error)
        if not isinstance(cause, GymError):
            raise
        os.write(report, str(cause).encode())
        return IN_TROUBLE if isinstance(cause, TransportError) else 2
    return 0


def _say(event: Event) -> None:
    # An owner who is gone hears nothing; one who does not listen must not hold the supervisor up.
    with contextlib.suppress(BrokenPipeError, BlockingIOError):
        os.write(1, encode(event) + b"\n")


def main() -> int:
    """``python -m gym_runtime.workers.supervisor``, with the system on the first line of the input."""
    line = b""
    while not line.endswith(b"\n"):
        data = os.read(0, 1)
        if not data:
            return 2
        line += data
    try:
        system = decode_system(line)
    except msgspec.DecodeError as error:
        _say(Event(event="failed", reason=f"the system cannot be read: {error}"))
        return 2
    import_module("gym_runtime.workers.process")  # once, here, for all forks
    os.set_blocking(1, False)

    return Supervisor(system).run()


if __name__ == "__main__":
    sys.exit(main())

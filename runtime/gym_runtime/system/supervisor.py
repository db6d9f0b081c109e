"""The supervisor: one small synchronous process that starts the broker and the workers and restarts them.

It forks the workers, so each starts in milliseconds and shares the imported code. A process that forks must
have no threads, so the supervisor has neither threads nor an event loop. It reads its `SystemSpec` from
standard input and runs as long as that is open: a line ``drain`` stops it gracefully, and at the end of the
input (its owner died) it stops within seconds. It writes `Event` lines to standard output.

A process that died is started again, unless that has happened too often (`gym_runtime.system.slot`). A worker
that reports why it cannot start is not started again, and the whole system stops with that reason. There is
one exception: if the slot has worked before and the connection to the broker failed, the worker is started
again until it succeeds.

Stopping drains, agents first: what they finish or give back needs resources, models and the broker. It
makes no difference whether a signal reaches the supervisor alone or every process of the system, as from
Slurm or systemd, and how often: a worker reports it, and drains when the supervisor tells it to. A worker
that was asked to leave while the system stays (``gym-runtime drain``, or a signal to it alone) drains and
is not replaced.
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
from importlib import import_module
from pathlib import Path

from msgspec.structs import replace
from setproctitle import setproctitle

from gym_runtime import logs
from gym_runtime.errors import UNREADABLE, GymError
from gym_runtime.plugins import plugins
from gym_runtime.system.private_broker import Broker
from gym_runtime.system.slot import SIGNALS, Deaths, Slot
from gym_runtime.system.spec import Event, Kind, SystemSpec, decode_system, encode, health_file
from gym_runtime.timing import HASTY_KILL_S, STORE_LOOK_S

HASTY_S = 1.0
"""How long workers may drain when the supervisor's owner is gone."""
ALONE_S = 0.5
"""A worker that was asked to leave is taken to be the only one after so long: a signal to all processes
reaches the supervisor sooner."""

BROKER_RESTARTS, BROKER_WINDOW_S = 20, 60.0
"""More restarts of the broker in so long stop the system."""

STOP_ORDER: tuple[Kind, ...] = ("agent", "resource", "model")


class Supervisor:
    """Keeps one system running."""

    def __init__(self, system: SystemSpec) -> None:
        self._system = system
        self._slots = [Slot(pool) for pool in system.pools for _ in range(pool.processes)]
        self._broker: Broker | None = None
        self._broker_deaths = Deaths(BROKER_RESTARTS, BROKER_WINDOW_S)
        self._broker_looked_s = 0.0
        self._stopping = False
        self._limit_s = float("inf")
        self._hasty = False
        self._failure = ""
        self._input = b""
        self._announced = False
        self._awaited: set[str] = set()
        self._lifeline = os.pipe()
        self._lifeline_cut = False
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)

    def run(self) -> int:
        """Keep the system running until it is told to stop; return the process's exit status."""
        # A full pipe wakes `select` all the same.
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        for number in SIGNALS:
            signal.signal(number, self._on_signal)
        try:
            # The broker starts while the workers' code is imported; then it is waited for.
            self._begin_broker()
            _import_workers()
            self._start_broker()
            # Frozen objects are not visited by collections, which would copy their pages in every fork.
            gc.collect()
            gc.freeze()
            while not self._stopping:
                self._fill_slots()
                self._wait(self._next_start_s())
                self._reap()
                self._watch_broker()
                self._retire()
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

    def _begin_broker(self) -> None:
        if not self._system.nats:
            self._broker = Broker(Path(self._system.state_dir))
            self._broker.begin()

    def _start_broker(self) -> None:
        if self._broker is None:
            _say(Event(event="broker", url=",".join(self._system.nats)))
            return
        url = self._broker.start()
        self._system = replace(self._system, nats=(url,))
        _say(Event(event="broker", url=url, pid=self._broker.pid))

    def _watch_broker(self) -> None:
        if self._broker is None:
            return
        what = "the broker died"
        if self._broker.poll() is None:
            if time.monotonic() < self._broker_looked_s + STORE_LOOK_S:
                return
            self._broker_looked_s = time.monotonic()
            why = self._broker.refusal()
            if not why:
                return
            what = f"the broker stored nothing ({why}) and has space again"
        self._broker_deaths.count(what)
        self._broker.restart()
        _say(Event(event="restarted", kind="broker", pid=self._broker.pid, reason=what))

    # -- the workers ----------------------------------------------------------------------------------

    def _fill_slots(self) -> None:
        now = time.monotonic()
        for slot in self._slots:
            # A signal may have come since the loop began.
            if not slot.pid and not slot.retired and slot.start_at_s <= now and not self._stopping:
                slot.fork(self._system, self._lifeline)

    def _next_start_s(self) -> float | None:
        waiting = [slot.start_at_s for slot in self._slots if not slot.pid and not slot.retired]
        waiting += [self._due_s(slot) for slot in self._slots if slot.pid and slot.asked_s]
        return max(0.0, min(waiting) - time.monotonic()) if waiting else (0.5 if self._broker else None)

    def _retire(self) -> None:
        """Drain the workers that were asked to leave; without any worker left the system stops."""
        for slot in self._slots:
            if slot.pid and slot.asked_s and time.monotonic() >= self._due_s(slot) and not self._stopping:
                if slot.told_s:
                    os.kill(slot.pid, signal.SIGKILL)
                    slot.told_s = time.monotonic()  # a killed process needs some time to end
                else:
                    slot.tell()
        # A system with a private broker stays: other workers may use it, or come.
        if self._slots and self._broker is None and all(slot.retired for slot in self._slots):
            self._stop("")

    def _due_s(self, slot: Slot) -> float:
        """When a process that was asked to leave is told to drain; or killed, if it hangs instead."""
        return slot.told_s + self._system.drain_s + HASTY_KILL_S if slot.told_s else slot.asked_s + ALONE_S

    def _reap(self) -> None:
        for slot in self._slots:
            self._hear(slot)
            if slot.pid:
                # Each by its id: the broker is a child, too, and `Popen` waits for that one.
                pid, status = os.waitpid(slot.pid, os.WNOHANG)
                if pid:
                    # Once more: its last words were written between the reading above and its end.
                    self._hear(slot)
                    self._bury(slot, status)
        if not self._announced and self._slots and all(slot.ready for slot in self._slots):
            self._announced = True
            _say(Event(event="all_ready"))

    def _hear(self, slot: Slot) -> None:
        ready = slot.hear()
        if slot.awaits and slot.awaits not in self._awaited:
            # Several workers may wait for the same.
            self._awaited.add(slot.awaits)
            _say(Event(event="waiting", kind=slot.pool.kind, reason=slot.awaits))
        if ready:
            pool = slot.pool
            self._awaited.discard(slot.awaits)
            slot.awaits = ""
            _say(Event(event="ready", worker=slot.name, kind=pool.kind, pools=pool.names, pid=slot.pid))

    def _bury(self, slot: Slot, status: int) -> None:
        end = slot.empty(status)
        # A process that was killed has left it behind; a folder that is gone as well has none.
        if (file := health_file(end.pid)) is not None:
            with contextlib.suppress(OSError):
                file.unlink()
        if self._stopping:
            return
        if slot.retired:
            _say(Event(event="drained", worker=slot.name, kind=slot.pool.kind, pid=end.pid))
            return
        if end.reason:
            self._stop(end.reason)
            return
        slot.put_off(end.what)
        kind = slot.pool.kind
        _say(Event(event="restarted", worker=slot.name, kind=kind, pid=end.pid, reason=end.what))

    # -- waiting and stopping -------------------------------------------------------------------------

    def _on_signal(self, number: int, frame: object) -> None:
        if number != signal.SIGCHLD:
            self._stop("")

    def _stop(self, reason: str, *, hasty: bool = False) -> None:
        self._failure = self._failure or reason
        self._hasty = self._hasty or hasty
        patience_s = HASTY_S if self._hasty else self._system.drain_s
        # A second signal must not put the limit off.
        if not self._stopping or hasty:
            self._limit_s = min(self._limit_s, time.monotonic() + patience_s)
        self._stopping = True

    def _wait(self, limit_s: float | None, *, with_input: bool = True) -> None:
        reports = [slot.report for slot in self._slots if slot.report >= 0]
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
            self._stop("", hasty=True)
        elif b"drain\n" in self._input:
            self._stop("")

    def _shut_down(self) -> None:
        """Drain all workers, those of one kind after those of another, within one limit."""
        self._stop("")
        for kind in STOP_ORDER:
            self._end([slot for slot in self._slots if slot.pid and slot.pool.kind == kind])
        self._cut_lifeline()
        if self._broker is not None:
            self._broker.stop()
        if self._system.temporary:
            shutil.rmtree(self._system.state_dir, ignore_errors=True)

    def _end(self, slots: list[Slot]) -> None:
        kill_at_s = float("inf")
        while any(slot.pid for slot in slots):
            for slot in slots:
                slot.tell()
            if self._hasty or time.monotonic() >= self._limit_s:
                self._cut_lifeline()
                kill_at_s = min(kill_at_s, time.monotonic() + HASTY_KILL_S)
            next_s = min(kill_at_s, self._limit_s) - time.monotonic()
            # At its end the input is always readable, so that `select` would spin.
            self._wait(min(0.2, max(0.0, next_s)), with_input=not self._hasty)
            self._reap()
            if not self._hasty:
                # A signal to all processes ends the broker too; rollouts that finish are stored there.
                self._watch_broker()
            if time.monotonic() > kill_at_s:
                for slot in slots:
                    if slot.pid:
                        os.kill(slot.pid, signal.SIGKILL)
                # Not each time around: a killed process needs some time to end.
                kill_at_s = time.monotonic() + 5.0

    def _cut_lifeline(self) -> None:
        """Close the pipe, at which all workers end within `ORPHAN_DRAIN_S`."""
        if not self._lifeline_cut:
            self._lifeline_cut = True
            os.close(self._lifeline[1])


def _say(event: Event) -> None:
    # The owner may be gone; and an owner that does not read must not block the supervisor.
    with contextlib.suppress(BrokenPipeError, BlockingIOError):
        os.write(1, encode(event) + b"\n")


WORKER_MODULES = (
    *("uvloop", "anyio._backends._asyncio"),
    *(f"gym_runtime.workers.{kind}_worker" for kind in STOP_ORDER),
    "gym_runtime.system.worker_process",
)


def _import_workers() -> None:
    """Import what workers run, and read which packages plug in: once, here, for all forks."""
    for name in WORKER_MODULES:
        import_module(name)
    plugins("environments")


def main() -> int:
    """``python -m gym_runtime.system.supervisor``, with the system on the first line of the input."""
    if not select.select([0], [], [], 0)[0]:
        # It was started early (`gym_runtime.system.early_supervisor`). Otherwise the broker starts meanwhile.
        _import_workers()
    line = b""
    while not line.endswith(b"\n"):
        # One byte at a time: what follows the line is for `_read_input`.
        data = os.read(0, 1)
        if not data:
            return 2
        line += data
    try:
        system = decode_system(line)
    except UNREADABLE as error:
        _say(Event(event="failed", reason=f"the system's description cannot be read: {error}"))
        return 2
    setproctitle("gym-runtime supervisor")
    if system.log_lines:
        os.environ[logs.FORMAT_VARIABLE] = os.environ.get(logs.FORMAT_VARIABLE) or "lines"
    if system.weak_sandbox:
        from gym_sandbox import bubblewrap

        os.environ[bubblewrap.SETTING] = "weak"
    os.set_blocking(1, False)

    return Supervisor(system).run()


if __name__ == "__main__":
    sys.exit(main())

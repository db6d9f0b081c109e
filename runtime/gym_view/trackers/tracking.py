"""Tells a tracker of a run, from its own thread, so that no tracker can hold up a run or break it.

Records are counted where they arrive (`curves`, `examples`); every `TRACK_EVERY_S` a snapshot is handed to
the thread. While the tracker is busy with one, further ones are skipped.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from gym_runtime.client import About
from gym_runtime.errors import UsageError, leaf
from gym_runtime.files import Summary
from gym_runtime.messages import Alarm, RolloutRecord

from gym_view.trackers.curves import Curves, final_numbers
from gym_view.trackers.example_rollouts import COLUMNS, Examples
from gym_view.trackers.tracker import OpenRun

TRACK_EVERY_S = 5.0
"""How often a tracker gets a run's aggregates."""
TABLE_EVERY_S = 60.0
"""How often it gets a new table of examples."""
TRACKER_OPENING_S = 60.0
"""How long a tracker may take to begin a run; then the run is refused."""
TRACKER_CLOSING_S = 60.0
"""How long it may take to store what it was told."""

Said = Callable[[str], None]


class Tracking:
    """One run in one tracker, a `gym_runtime.client.Tracker`.

    Args:
        open_run: begins the run in the tracker; called in the thread.
        say: called, from any thread, with what the user should know; once, if the tracker fails.
        repeats, before: as for `Curves`.
    """

    def __init__(
        self,
        name: str,
        open_run: Callable[[About], OpenRun],
        about: About,
        say: Said,
        *,
        repeats: int = 1,
        before: Summary | None = None,
    ) -> None:
        self._name = name
        self._open_run = open_run
        self._about = about
        self._say = say
        self._curves = Curves(repeats, before)
        self._examples = Examples()
        self._work: queue.Queue[Callable[[OpenRun], None] | None] = queue.Queue()
        self._opened = threading.Event()
        self._refused: BaseException | None = None
        self._broken = False
        self._thread = threading.Thread(target=self._run, name=f"track-{name}", daemon=True)
        self._next_s = time.monotonic() + TRACK_EVERY_S
        self._next_table_s = time.monotonic() + TABLE_EVERY_S

    def open(self) -> None:
        """Begin the run in the tracker; blocks while it does.

        Raises:
            UsageError: the tracker cannot be used, and what to do.
        """
        self._thread.start()
        if not self._opened.wait(TRACKER_OPENING_S):
            self._broken = True
            raise UsageError(f"{self._name} did not begin a run within {TRACKER_OPENING_S:.0f} s")
        if self._refused is not None:
            cause = leaf(self._refused)
            if isinstance(cause, UsageError):
                raise cause
            raise UsageError(f"{self._name} cannot be used: {_said(cause)}") from cause

    def add(self, record: RolloutRecord) -> None:
        """Count a record; never blocks."""
        self._curves.add(record)
        self._examples.add(record)
        now = time.monotonic()
        if now >= self._next_s:
            self._next_s = now + TRACK_EVERY_S
            if self._work.empty() and not self._broken:
                table = now >= self._next_table_s
                if table:
                    self._next_table_s = now + TABLE_EVERY_S
                self._put(table=table)

    def alarm(self, alarm: Alarm) -> None:
        """Show an alarm; never blocks."""
        self._curves.alarms[alarm.environment] += 1
        text = f"{alarm}\nthe clearest rollouts: {', '.join(alarm.rollouts)}"
        self._work.put(lambda tracker: tracker.alarm(alarm.environment, text))

    def close(self, summary: Summary | None = None, *, failed: bool = False) -> None:
        """Tell the rest, and end the run in the tracker; blocks for `TRACKER_CLOSING_S` at most."""
        if not self._thread.is_alive():
            return
        self._put(table=True, exact=final_numbers(summary) if summary is not None else {})
        self._work.put(lambda tracker: tracker.finish(failed=failed))
        self._work.put(None)
        self._thread.join(TRACKER_CLOSING_S)
        if self._thread.is_alive():
            self._say(
                f"{self._name} has not taken everything after {TRACKER_CLOSING_S:.0f} s; the rest is left"
            )

    def _put(self, *, table: bool, exact: Mapping[str, float] | None = None) -> None:
        step, numbers = self._curves.rollouts, {**self._curves.numbers(), **(exact or {})}
        rows: list[list[Any]] = self._examples.rows() if table else []

        def tell(tracker: OpenRun) -> None:
            tracker.log(step, numbers)
            if rows:
                tracker.table(step, COLUMNS, rows)

        self._work.put(tell)

    def _run(self) -> None:
        try:
            tracker = self._open_run(self._about)
        except BaseException as error:  # noqa: BLE001 - not handled: raised by `open`
            self._refused = error
            return
        finally:
            self._opened.set()
        while (work := self._work.get()) is not None:
            if self._broken:
                continue
            try:
                work(tracker)
            except Exception as error:  # noqa: BLE001 - the boundary to a foreign library: the run goes on
                self._broken = True
                self._say(f"{self._name} failed, and the run goes on without it: {_said(error)}")


def _said(error: BaseException) -> str:
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__

"""Experiment trackers: the data of a run that a tracker gets, and how a tracker is found by its name.

A distribution adds a tracker under the entry-point group ``gym_runtime.trackers``: a name, and as
``module:name`` a `MakeTracker`. It is imported when a run names it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import anyio
import msgspec
from anyio import to_thread

from gym_runtime.client.reward_watch import Alarms
from gym_runtime.files.run_metrics import Summary
from gym_runtime.logs import logger
from gym_runtime.messages.alarms import Alarm
from gym_runtime.messages.outcomes import RolloutRecord
from gym_runtime.messages.rollout_settings import RolloutSettings
from gym_runtime.messages.stored_records import RunInfo
from gym_runtime.plugins import load_plugin


class About(msgspec.Struct, frozen=True, kw_only=True):
    """The run that is tracked.

    Attributes:
        settings: what it was asked for; shown with the run.
        folder: for trackers that write files.
    """

    run: str
    folder: Path
    settings: dict[str, Any] = {}


class Tracker(Protocol):
    """One run in one tracker: `open`, `add` each record, `close`."""

    def open(self) -> None:
        """Begin the run in the tracker; may block.

        Raises:
            UsageError: the tracker cannot be used, and what to do.
        """
        ...

    def add(self, record: RolloutRecord) -> None:
        """Take a record in; must not block."""
        ...

    def close(self, summary: Summary | None = None, *, failed: bool = False) -> None:
        """Tell the rest, and end the run in the tracker; may block for a minute at most.

        Args:
            summary: the exact figures of the whole run, if they are known.
            failed: the run did not come to its end.
        """
        ...


@runtime_checkable
class HearsAlarms(Protocol):
    """A tracker that is also told of alarms."""

    def alarm(self, alarm: Alarm) -> None:
        """Rewards are no longer confirmed; must not block."""
        ...


def tell_alarms(tracker: Tracker, alarms: Alarms) -> None:
    """Tell a tracker of the alarms of a connection, if it hears them."""
    if isinstance(tracker, HearsAlarms):
        alarms.listeners.append(tracker.alarm)


class MakeTracker(Protocol):
    """Makes the tracker of a run."""

    def __call__(
        self, about: About, say: Callable[[str], None], *, repeats: int = 1, before: Summary | None = None
    ) -> Tracker:
        """
        Args:
            say: called, from any thread, with what the user should know.
            repeats: rollouts of each task.
            before: the figures of an interrupted part of the run.
        """
        ...


def load_tracker(name: str) -> MakeTracker:
    """The tracker of a name.

    Raises:
        UsageError: there is no such tracker.
    """
    return load_plugin("trackers", name)


async def track_rollouts(
    name: str,
    records: AsyncGenerator[RolloutRecord],
    run: RunInfo,
    settings: RolloutSettings,
    alarms: Alarms,
) -> AsyncGenerator[RolloutRecord]:
    """The same records, each of them told to a tracker before it is passed on.

    Raises:
        UsageError: the tracker cannot be used; no rollout was run.
    """
    asked = {"model": run.model, "environments": run.environments, "sampling": settings.sampling}
    about = About(
        run=run.run,
        folder=Path("runs") / run.run,
        settings={**asked, "repeats": settings.repeats, "rollouts": run.total},
    )
    failed = True
    async with aclosing(records):
        tracker = load_tracker(name)(about, logger().warning, repeats=settings.repeats_of("", 1))
        await to_thread.run_sync(tracker.open)
        before = list(alarms.listeners)
        tell_alarms(tracker, alarms)
        try:
            async for record in records:
                tracker.add(record)
                yield record
            failed = False
        finally:
            alarms.listeners[:] = before
            with anyio.CancelScope(shield=True):  # the tracker's `close` has a limit
                await to_thread.run_sync(partial(tracker.close, failed=failed))

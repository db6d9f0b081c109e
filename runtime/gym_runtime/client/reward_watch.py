"""Second looks at the rewards of what a connection hands over, and where their alarms are counted.

A watch comes from a package beside the engine, by an entry point of ``gym_runtime.alarms``. Each alarm is
counted in one run of the connection: the one with which it began; if that is over, in another one that goes
on, or in the next.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

from gym_runtime.client.status import Counter
from gym_runtime.messages.alarms import Alarm
from gym_runtime.messages.outcomes import RolloutRecord
from gym_runtime.plugins import load_plugin
from gym_runtime.workers.adapter import ModelSettings

AUDITOR = "auditor"
"""The role of a model that looks a second time at rewards."""


class Watch(Protocol):
    """Takes in records, and raises alarms."""

    def add(self, record: RolloutRecord) -> None:
        """Take a record in; must not block."""
        ...


class MakeWatch(Protocol):
    """Makes the watch of a connection, which works while the context lasts."""

    def __call__(
        self,
        environments: Mapping[str, str],
        asked: str,
        second: str,
        path: Path | None,
        tell: Callable[[Alarm | str], None],
        auditor: ModelSettings | None = None,
    ) -> AbstractAsyncContextManager[Watch]:
        """
        Args:
            environments: the name or path of each environment, by its name in records.
            asked: which rollouts are looked at: ``auto``, a share, or so many of each version of the weights.
            second: the environment of the second look; empty for the default.
            path: of a file to which alarms are appended.
            tell: called with each alarm, and with notices.
            auditor: the model of the second look, in the role `AUDITOR`.

        Raises:
            UsageError: what is asked for is not valid.
        """
        ...


def load_watch() -> MakeWatch:
    """
    Raises:
        UsageError: no installed package watches rewards.
    """
    return load_plugin("alarms", "rewards")


class Alarms:
    """The alarms of one connection.

    Attributes:
        watch: looks at the records; None if nothing does.
        raised: all alarms so far.
        listeners: called with each alarm.
    """

    def __init__(self) -> None:
        self.watch: Watch | None = None
        self.raised: list[Alarm] = []
        self.listeners: list[Callable[[Alarm], None]] = []
        self._counters: dict[str, Counter] = {}
        self._uncounted: list[Alarm] = []

    def ring(self, alarm: Alarm) -> None:
        """An alarm was raised."""
        self.raised.append(alarm)
        run = alarm.since_rollout.rsplit(".", 2)[0]
        counter = self._counters.get(run) or next(iter(self._counters.values()), None)
        if counter is None:
            self._uncounted.append(alarm)
        else:
            counter.ring(alarm)
        for listener in self.listeners:
            listener(alarm)

    def take(self, record: RolloutRecord) -> None:
        """A record is handed over."""
        if self.watch is not None:
            self.watch.add(record)

    @asynccontextmanager
    async def counted_in(self, run: str, counter: Counter) -> AsyncGenerator[None]:
        """While this lasts, the alarms of a run are counted here, and those that no run has counted."""
        for alarm in self._uncounted:
            counter.ring(alarm)
        self._uncounted.clear()
        before = self._counters.get(run)
        self._counters[run] = counter
        try:
            yield
        finally:
            if before is None:
                del self._counters[run]
            else:
                self._counters[run] = before

"""Which runs, groups and rollouts are cancelled, for present workers and for those that start later.

A cancellation is a signal (``cancel.<run>[.<task>[.<rollout>]]``), and it is written down with the run
(``runs.<run>.cancelled.<task>[.<rollout>]``, or the run's state), where a new worker finds it. That a run is
closed, so that nothing more is to be stored for it, is said by the same signal.
"""

from __future__ import annotations

from gym_runtime.bus.interface import Bus
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.messages.stored_records import RUNS

REMEMBERED = 65536


class Cancellations:
    """The newest `REMEMBERED` cancellations."""

    def __init__(self) -> None:
        # A dict as an ordered set, from which the oldest is dropped.
        self._prefixes: dict[str, None] = {}
        self._closed: dict[str, None] = {}

    async def load(self, bus: Bus) -> None:
        """Read the stored cancellations."""
        for run in RUNS.read_all(await bus.latest("runs.*")):
            if run.state == "cancelled":
                self.add(run.run)
            if run.closed:
                self.close(run.run)
        for record in await bus.latest("runs.*.cancelled.>"):
            _, run, _, *rest = record.subject.split(".")
            self.add(".".join([run, *rest]))

    def add(self, prefix: str) -> None:
        """``<run>``, ``<run>.<task>`` or ``<run>.<task>.<rollout>``."""
        _remember(self._prefixes, prefix)

    def close(self, run: str) -> None:
        """A run was closed; one of the same name may be opened later."""
        _remember(self._closed, run)

    def closed(self, run: str) -> bool:
        """Whether a run was closed; if so, look whether it still is."""
        return run in self._closed

    def cover(self, task: RolloutSpec) -> bool:
        """Whether a rollout, its group or its run is cancelled."""
        known = self._prefixes
        # Three look-ups, however many cancellations there are.
        return bool(known) and (task.run in known or task.group_id in known or task.rollout_id in known)


def _remember(names: dict[str, None], name: str) -> None:
    names[name] = None
    while len(names) > REMEMBERED:
        del names[next(iter(names))]

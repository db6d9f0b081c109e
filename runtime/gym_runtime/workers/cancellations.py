"""Which runs, groups and rollouts are cancelled, for present workers and for those that start later.

A cancellation is a signal (``cancel.<run>[.<task>[.<rollout>]]``), and is also stored with the run
(``runs.<run>.cancelled.<task>[.<rollout>]``, or the run's state), where a new worker reads it.
"""

from __future__ import annotations

from gym_runtime.bus.interface import Bus
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.messages.run_info import decode_run

REMEMBERED = 65536


class Cancellations:
    """The newest `REMEMBERED` cancellations."""

    def __init__(self) -> None:
        self._prefixes: dict[str, None] = {}

    async def load(self, bus: Bus) -> None:
        """Read the stored cancellations."""
        for record in await bus.latest("runs.*"):
            run = decode_run(record.payload)
            if run.state == "cancelled":
                self.add(run.run)
        for record in await bus.latest("runs.*.cancelled.>"):
            _, run, _, *rest = record.subject.split(".")
            self.add(".".join([run, *rest]))

    def add(self, prefix: str) -> None:
        """``<run>``, ``<run>.<task>`` or ``<run>.<task>.<rollout>``."""
        self._prefixes[prefix] = None
        while len(self._prefixes) > REMEMBERED:
            del self._prefixes[next(iter(self._prefixes))]

    def cover(self, task: RolloutSpec) -> bool:
        """Whether a rollout, its group or its run is cancelled."""
        return any(prefix in self._prefixes for prefix in (task.run, task.group_id, task.rollout_id))

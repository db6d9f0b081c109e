"""How many rollouts of a run may be in flight."""

from __future__ import annotations

import anyio

from gym_runtime.files.keys import KeyCounts
from gym_runtime.messages.outcomes import RolloutRecord


class Window:
    """Places for rollouts that are published and not yet handed over.

    A rollout that waits for others of its group gives its place to them, because they may need it: else a
    window smaller than a group would never see it complete. Once the group is complete its rollouts take
    places again, before any new rollout does, so that memory is bounded while comparisons are slow.

    Args:
        without: rollouts, by task index and rollout index, that have a result already and took no place.
    """

    def __init__(self, places: int, without: KeyCounts | None = None) -> None:
        self._places = anyio.Semaphore(places)
        self._without = KeyCounts() if without is None else without
        self._owed = 0

    async def acquire(self) -> None:
        """Wait for a place and take it."""
        await self._places.acquire()

    def release(self, record: RolloutRecord) -> None:
        """The rollout of this record was handed over, or waits for others of its group."""
        if (record.task_index, record.rollout_index) in self._without:
            return
        if self._owed:
            self._owed -= 1
        else:
            self._places.release()

    def take_again(self, task_index: int, rollout_index: int) -> None:
        """The group that a rollout waited for is complete: the rollout takes the next place that is free."""
        if (task_index, rollout_index) not in self._without:
            self._owed += 1

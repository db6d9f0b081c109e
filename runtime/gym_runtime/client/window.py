"""The places of a run: how many of its rollouts may be published and not yet handed over."""

from __future__ import annotations

import asyncio

from gym_runtime.files.keys import KeyCounts
from gym_runtime.messages.outcomes import RolloutRecord

REFILL_S = 0.02
"""How long free places are gathered until rollouts are published into them (`gym_runtime.client.window`)."""


GROUP_SHARE = 16


class Window:
    """Places that are taken one by one and, once all were taken, given out in groups.

    What is given out at once is a sixteenth of all places, or what became free within `REFILL_S`. If every
    single result led to one new rollout, each would cost this process and the broker a wake-up and a system
    call of its own, a tenth of what a whole rollout costs.

    A rollout that waits for others of its group gives its place to them, because they may need it: else a
    window smaller than a group would never see it complete. Once the group is complete its rollouts take
    places again, before any new rollout does, so that memory is bounded while comparisons are slow.

    Args:
        without: rollouts, by task index and rollout index, that have a result already and took no place.
    """

    def __init__(self, places: int, without: KeyCounts | None = None) -> None:
        self._free = places
        self._share = max(1, places // GROUP_SHARE)
        self._without = KeyCounts() if without is None else without
        self._owed = 0
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._refilled = asyncio.Event()
        self._refilled.set()

    async def take(self) -> None:
        """Take a place; wait while no place is free."""
        # A loop: another waiter may have taken the place.
        while not self._free:
            self._refilled.clear()
            await self._refilled.wait()
        self._free -= 1

    def release(self, record: RolloutRecord) -> None:
        """The rollout of this record was handed over, or waits for others of its group."""
        if (record.task_index, record.rollout_index) in self._without:
            return
        # A rollout whose group is complete gets this place, see `take_again`.
        if self._owed:
            self._owed -= 1
            return
        self._free += 1
        # Nothing waits for a place.
        if self._refilled.is_set():
            return
        if self._free >= self._share:
            self._refill()
        elif self._timer is None:
            self._timer = self._loop.call_later(REFILL_S, self._refill)

    def take_again(self, task_index: int, rollout_index: int) -> None:
        """The group that a rollout waited for is complete: the rollout takes the next place that is free."""
        if (task_index, rollout_index) not in self._without:
            self._owed += 1

    def _refill(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._refilled.set()

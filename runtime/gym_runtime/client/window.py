"""The places of a run: how many of its rollouts may be published and not yet handed over."""

from __future__ import annotations

import asyncio

GROUP_SHARE = 16
GROUP_S = 0.02


class Window:
    """Places that are taken one by one and, once all were taken, given out in groups.

    A group is a sixteenth of all places, or what became free within `GROUP_S`. If every single result led to
    one new rollout, each would cost this process and the broker a wake-up and a system call of its own, a
    tenth of what a whole rollout costs.
    """

    def __init__(self, places: int) -> None:
        self._free = places
        self._group = max(1, places // GROUP_SHARE)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._refilled = asyncio.Event()
        self._refilled.set()

    async def take(self) -> None:
        """Take a place; wait while there is none."""
        while not self._free:
            self._refilled.clear()
            await self._refilled.wait()
        self._free -= 1

    def release(self) -> None:
        """One place is free again."""
        self._free += 1
        if self._refilled.is_set():
            return
        if self._free >= self._group:
            self._refill()
        elif self._timer is None:
            self._timer = self._loop.call_later(GROUP_S, self._refill)

    def _refill(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._refilled.set()

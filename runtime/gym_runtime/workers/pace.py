"""How often a model worker may ask its engine."""

from __future__ import annotations

import anyio


class Pace:
    """Turns at even distances, in the order of arrival: at most ``per_minute``, and one, in any minute.

    Even, not a full minute's worth at once: engines count over shorter spans, too.
    """

    def __init__(self, per_minute: float) -> None:
        self._distance_s = 60.0 / per_minute
        self._next_s = 0.0
        # Queues those who wait; one that is cancelled gives up its place and no turn is lost.
        self._queue = anyio.Lock()

    async def turn(self) -> None:
        """Wait for a turn."""
        async with self._queue:
            await anyio.sleep(max(0.0, self._next_s - anyio.current_time()))
            # `max`: turns that were not used are not saved up.
            self._next_s = max(self._next_s, anyio.current_time()) + self._distance_s

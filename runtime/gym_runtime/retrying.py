"""How long to wait before something is tried again: pauses as data, jittered, in one place.

What may be tried again, and how often, is decided where it is tried: by a budget of retries, a deadline, or
both.
"""

from __future__ import annotations

import random

import anyio
import msgspec


class Pauses(msgspec.Struct, frozen=True):
    """Pauses that double, from the first to the longest, in seconds."""

    first_s: float
    longest_s: float


class Backoff:
    """The pauses of one sequence of tries.

    Each pause is jittered to between half and one and a half of its length, so that callers which failed at
    the same moment do not try again at the same moment.
    """

    def __init__(self, pauses: Pauses) -> None:
        self._pauses = pauses
        self._next_s = pauses.first_s

    def next_s(self) -> float:
        """The seconds to wait now; the next pause is twice as long."""
        pause_s = self._next_s * random.uniform(0.5, 1.5)
        self._next_s = min(self._next_s * 2, self._pauses.longest_s)
        return pause_s

    async def wait(self) -> None:
        """Wait `next_s` seconds."""
        await anyio.sleep(self.next_s())

    def reset(self) -> None:
        """Begin again with the first pause, because a try succeeded."""
        self._next_s = self._pauses.first_s

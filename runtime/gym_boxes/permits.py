"""Permits: how often all workers together ask a provider for a box.

One record at the broker per account. A worker that wants to create a box reads it, waits for the time
between two creates, and replaces the record that was read: only one of those that read the same record
succeeds. So two permits are at least that time apart, whatever the clocks of the machines say.
"""

from __future__ import annotations

import anyio
import msgspec
from gym_runtime.bus import Bus
from gym_runtime.errors import UNREADABLE


class _Permit(msgspec.Struct, frozen=True):
    """The last permit.

    Attributes:
        pause_s: how long the next one waits, because the provider has refused.
    """

    pause_s: float = 0.0


_decode = msgspec.json.Decoder(_Permit).decode
LONGEST_S = 60.0


def _pause_s(record: bytes) -> float:
    """How long to wait; 0 for a record that cannot be read, which the next permit replaces."""
    try:
        return _decode(record).pause_s
    except UNREADABLE:
        return 0.0


class Permits:
    """The permits of one account, as one worker takes them: one at a time.

    Args:
        per_s: how many permits all workers together get in a second.
    """

    def __init__(self, bus: Bus, subject: str, per_s: float) -> None:
        self._bus, self._subject, self._apart_s = bus, subject, 1.0 / per_s
        self._one = anyio.Lock()

    async def take(self) -> None:
        """Return when a box may be created."""
        async with self._one:
            while True:
                found = await self._bus.latest(self._subject)
                sequence = found[0].sequence if found else 0
                pause_s = _pause_s(found[0].payload) if found else 0.0
                if found:
                    await anyio.sleep(max(self._apart_s, min(pause_s, LONGEST_S)))
                if await self._store(_Permit(), sequence):
                    return

    async def refused(self, after_s: float | None) -> None:
        """The provider has refused one: all workers wait, by default twice as long as usual."""
        found = await self._bus.latest(self._subject)
        pause = _Permit(min(2 * self._apart_s if after_s is None else after_s, LONGEST_S))
        await self._store(pause, found[0].sequence if found else 0)

    async def _store(self, permit: _Permit, sequence: int) -> bool:
        stored = await self._bus.append(self._subject, msgspec.json.encode(permit), expect=sequence)
        return stored is not None

"""Which keys were seen, in 24 bytes or less each: for the rows of streams, which may be millions."""

from __future__ import annotations

from array import array

PARTS = 64
"""Each part grows by itself: growing one table of a million keys would hold the event loop for 0.3 s."""
FIRST_SLOTS = 16
"""A power of two, as every later number of slots is."""
_EMPTY = -1
_MIX = 0x9E3779B97F4A7C15
"""Knuth's multiplicative hashing: keys that follow each other must not share a run of slots."""


class KeyTable:
    """A dictionary from 64-bit integers to numbers from 0 on.

    A dictionary of Python's takes 100 bytes and more for each key, because each key and number is an object.

    >>> table = KeyTable()
    >>> table.setdefault(-7, 3), table.setdefault(-7, 4)
    (None, 3)
    """

    def __init__(self) -> None:
        self._parts = [_Part() for _ in range(PARTS)]

    def setdefault(self, key: int, number: int) -> int | None:
        """The number of a key that is known; else None, and the key has this number from now on."""
        # Other bits than those that choose the slot (below), or each part would use a few slots only.
        return self._parts[((key * _MIX) >> 52) % PARTS].setdefault(key, number)


class _Part:
    """Some of the keys: two arrays with open addressing."""

    def __init__(self) -> None:
        self._count = 0
        self._make(FIRST_SLOTS)

    def setdefault(self, key: int, number: int) -> int | None:
        slot = self._slot(key)
        if self._numbers[slot] != _EMPTY:
            return self._numbers[slot]
        self._keys[slot], self._numbers[slot] = key, number
        self._count += 1
        # At most two thirds full: beyond that, searches in open addressing become long.
        if 3 * self._count > 2 * len(self._keys):
            self._grow()
        return None

    def _slot(self, key: int) -> int:
        slot = ((key * _MIX) >> 20) & self._mask
        while self._numbers[slot] != _EMPTY and self._keys[slot] != key:
            slot = (slot + 1) & self._mask
        return slot

    def _grow(self) -> None:
        keys, numbers = self._keys, self._numbers
        self._make(2 * len(keys))
        for key, number in zip(keys, numbers, strict=True):
            if number != _EMPTY:
                slot = self._slot(key)
                self._keys[slot], self._numbers[slot] = key, number

    def _make(self, slots: int) -> None:
        self._mask = slots - 1
        self._keys = array("q", bytes(8 * slots))
        self._numbers = array("i", [_EMPTY]) * slots

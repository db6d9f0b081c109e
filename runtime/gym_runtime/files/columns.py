"""Columns of numbers that grow with a run, and wait on the disk until its end, when they are read."""

from __future__ import annotations

import tempfile
import weakref
from array import array
from typing import IO

BLOCK = 1024
"""How many values of a column are in memory."""
_NAN = float("nan")


class Spill:
    """An unnamed temporary file for the columns of one table. Where the disk has no room, memory takes it."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._size = 0

    def keep(self, block: array[float]) -> int | array[float]:
        """Put a block away; returns what `load` wants to have."""
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 closed below
                # Closed before the collector finds it open, which would be a warning.
                weakref.finalize(self, self._file.close)
            self._file.seek(self._size)
            written = self._file.write(block)
        except OSError:
            written = 0
        # A full disk may take a part of it, without an error.
        if written < len(block) * block.itemsize:
            # A copy, because the caller empties its block.
            return array(block.typecode, block)
        self._size += written
        return self._size - written

    def load(self, kept: int | array[float], into: array[float]) -> None:
        """Append a block to ``into``."""
        if isinstance(kept, array):
            into.extend(kept)
            return
        assert self._file is not None
        self._file.seek(kept)
        into.frombytes(self._file.read(BLOCK * into.itemsize))


class Column:
    """Numbers that are appended; a column that begins late has NaN before. Its typecode is one of `array`."""

    def __init__(self, spill: Spill, typecode: str, *, missing: int = 0) -> None:
        self._spill = spill
        self._missing = missing
        self._kept: list[int | array[float]] = []
        self._end: array[float] = array(typecode)

    def __len__(self) -> int:
        return self._missing + BLOCK * len(self._kept) + len(self._end)

    def append(self, value: float) -> None:
        """Add one at the end."""
        self._end.append(value)
        if len(self._end) == BLOCK:
            self._kept.append(self._spill.keep(self._end))
            del self._end[:]

    def values(self) -> array[float]:
        """All of them, from the disk."""
        found: array[float] = array(self._end.typecode)
        if self._missing:
            found.extend(array(found.typecode, [_NAN]) * self._missing)
        for kept in self._kept:
            self._spill.load(kept, found)
        found.extend(self._end)
        return found

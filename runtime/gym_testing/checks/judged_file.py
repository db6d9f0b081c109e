"""A file whose rows are judged: read by parts, its groups compared once."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import BinaryIO
from weakref import WeakValueDictionary

import anyio
from gym_runtime.errors import GymError

from gym_testing.checks.stored_groups import StoredGroups
from gym_testing.checks.stored_row import ReverifiedRow

_byte_position = re.compile(r"\(byte (\d+)\)")


class JudgedFile:
    """A file whose rows are judged.

    Attributes:
        judged: rows whose group was compared before their turn came, by their lines.
        wants: whether the row of a line is to be judged.
    """

    def __init__(self, path: Path, wants: Callable[[int], bool]) -> None:
        self.path = path
        self.wants = wants
        self.groups = StoredGroups(path)
        self.judged: dict[int, ReverifiedRow | GymError] = {}
        self._locks: WeakValueDictionary[bytes, anyio.Lock] = WeakValueDictionary()

    def lock(self, group: bytes) -> anyio.Lock:
        """What is held while a group is compared."""
        return self._locks.setdefault(group, anyio.Lock())


def skip_lines(file: BinaryIO, count: int) -> None:
    """Read some lines, and nothing of them."""
    for _ in islice(file, count):
        pass


def next_lines(file: BinaryIO, count: int) -> list[bytes]:
    """The next lines; fewer at the end."""
    return list(islice(file, count))


def column_of(line: bytes, message: str) -> int:
    """The column of the JSON error, in characters from 1."""
    match = _byte_position.search(message)
    end = int(match[1]) if match else math.inf
    return len(line.rstrip()[: int(min(end, len(line)))].decode(errors="replace")) + 1

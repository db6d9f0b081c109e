"""A file whose rows are judged: read by parts, and its groups, each of which is compared once.

A row says under ``_gym`` which rollouts it was compared with. Rows without that, such as NeMo Gym's, belong
together if they have the same task, or the same input where no task is numbered.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import anyio
import msgspec
from anyio import to_thread
from gym_runtime.errors import UNREADABLE, GymError
from gym_runtime.files import KeyCounts
from msgspec import Raw

from gym_testing.checks.stored_row import ReverifiedRow


class _Numbers(msgspec.Struct, frozen=True):
    ref: dict[str, Any] | None = msgspec.field(name="agent_ref", default=None)
    task_index: int = msgspec.field(name="_ng_task_index", default=-1)
    rollout_index: int = msgspec.field(name="_ng_rollout_index", default=-1)


_decode_numbers = msgspec.json.Decoder(_Numbers).decode


class DoubledRows:
    """Finds rows of a rollout that a file has had before. A row that lacks a number is never doubled."""

    def __init__(self) -> None:
        self._known: dict[str, KeyCounts] = {}

    def again(self, line: bytes) -> bool:
        """Whether an earlier row was of the same rollout: the first counts."""
        try:
            row = _decode_numbers(line)
        except UNREADABLE:  # it is refused when its turn comes
            return False
        if row.task_index < 0 or row.rollout_index < 0:
            return False
        known = self._known.setdefault(str((row.ref or {}).get("name")), KeyCounts())
        return known.increase(row.task_index, row.rollout_index) > 1


def doubled_lines(path: Path) -> set[int]:
    """The numbers of a file's lines whose rollouts have a row before."""
    had = DoubledRows()
    with path.open("rb") as file:
        return {number for number, line in enumerate(file, 1) if had.again(line)}


class StoredLine(NamedTuple):
    """A line of a file and where it stands."""

    number: int
    offset: int
    rollout_index: int


class _About(msgspec.Struct, frozen=True):
    rollout_id: str = ""
    compared: list[int] = []


class _Row(msgspec.Struct, frozen=True):
    params: Raw = msgspec.field(name="responses_create_params", default=Raw(b"null"))
    task_index: int | None = msgspec.field(name="_ng_task_index", default=None)
    rollout_index: int = msgspec.field(name="_ng_rollout_index", default=0)
    about: _About = msgspec.field(name="_gym", default=_About())


_decode = msgspec.json.Decoder(_Row).decode


class StoredGroups:
    """Which lines of a file belong to one group. The file is read when it is first asked."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = anyio.Lock()
        self._groups: dict[bytes, list[StoredLine]] | None = None

    @staticmethod
    def key(line: bytes) -> bytes:
        """What the rows of a group have in common.

        Raises:
            msgspec.DecodeError, RecursionError, UnicodeError: the line is no row.
        """
        row = _decode(line)
        run = row.about.rollout_id.partition(".")[0]
        if row.about.compared:
            named = f"{run} {row.task_index} {row.about.compared}".encode()
        else:
            named = bytes(row.params) if row.task_index is None else f"{run} {row.task_index}".encode()
        return blake2b(named, digest_size=16).digest()

    async def of(self, line: bytes) -> list[tuple[StoredLine, bytes]]:
        """The lines of a row's group, in the order of their rollouts, with their places."""
        async with self._lock:
            if self._groups is None:
                self._groups = await to_thread.run_sync(self._read)
        places = sorted(self._groups[self.key(line)], key=lambda one: (one.rollout_index, one.number))
        return await to_thread.run_sync(self._lines, places)

    def _read(self) -> dict[bytes, list[StoredLine]]:
        found: dict[bytes, list[StoredLine]] = {}
        offset, had = 0, DoubledRows()
        with self._path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    key = self.key(line)
                except UNREADABLE:
                    pass  # it is refused when its turn comes
                else:
                    if not had.again(line):
                        place = StoredLine(number, offset, _decode(line).rollout_index)
                        found.setdefault(key, []).append(place)
                offset += len(line)
        return found

    def _lines(self, places: list[StoredLine]) -> list[tuple[StoredLine, bytes]]:
        with self._path.open("rb") as file:
            found: list[tuple[StoredLine, bytes]] = []
            for place in places:
                file.seek(place.offset)
                found.append((place, file.readline()))
            return found


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


def column_of(line: bytes, message: str) -> int:
    """The column of the JSON error, in characters from 1."""
    match = _byte_position.search(message)
    end = int(match[1]) if match else math.inf
    return len(line.rstrip()[: int(min(end, len(line)))].decode(errors="replace")) + 1

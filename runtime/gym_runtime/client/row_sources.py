"""Which row of the caller each task of a run comes from, and the order of the results."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, Generic, TypeVar

import msgspec

from gym_runtime.errors import UsageError
from gym_runtime.messages.rollout_spec import RolloutSpec

AnyRow = Mapping[str, Any] | bytes | str
T = TypeVar("T")


class RowSources:
    """Rows on their way into rollouts, remembered until their group is complete.

    Args:
        keys: the caller's name for each row; None for no names.

    Attributes:
        listed: all rows are there already.
        apart: each row is a task of its own.
    """

    def __init__(self, rows: Iterable[AnyRow], keys: Iterable[Any] | None = None) -> None:
        self.listed = isinstance(rows, Sequence)
        self.apart = keys is not None
        self._rows = rows
        self._keys = keys
        self._present: tuple[AnyRow, Any] = b"", None
        self._of_task: dict[int, tuple[AnyRow, Any]] = {}
        self._latest = -1

    def lines(self) -> Iterator[bytes]:
        """The rows as JSON.

        Raises:
            UsageError: there are fewer keys than rows.
        """
        keys = repeat(None) if self._keys is None else iter(self._keys)
        for row in self._rows:
            try:
                self._present = row, next(keys)
            except StopIteration:
                raise UsageError("keys has fewer entries than rows: give one for each row") from None
            yield line(row)

    def noting(self, specs: Iterable[RolloutSpec]) -> Iterator[RolloutSpec]:
        """The specs made of the lines, each row's before the next row is read."""
        for spec in specs:
            self._latest = spec.task_index
            self._of_task.setdefault(spec.task_index, self._present)
            yield spec

    def take(self, task_index: int) -> tuple[AnyRow, Any]:
        """The row of a task whose group is complete, and its key; it is forgotten now.

        The row that was read last is kept: it may have come again, and begin the next group of its task.
        """
        source = self._of_task[task_index]
        if task_index != self._latest:
            del self._of_task[task_index]
        return source


class _Place(Generic[T]):
    """A result's place in the order."""

    __slots__ = ("results", "settled")

    def __init__(self) -> None:
        self.results: list[T] = []
        self.settled = False


class InputOrder(Generic[T]):
    """Holds back results that overtook others, so that they are handed over in the order of the input."""

    def __init__(self) -> None:
        self._due: deque[_Place[T]] = deque()
        self._waiting: dict[Hashable, list[_Place[T]]] = {}

    def expecting(
        self, specs: Iterable[RolloutSpec], name: Callable[[RolloutSpec], Hashable]
    ) -> Iterator[RolloutSpec]:
        """The specs, whose results are expected in this order, by name, from when they are passed on."""
        last: Hashable = None
        for spec in specs:
            if name(spec) != last or last not in self._waiting:
                last = name(spec)
                place = _Place[T]()
                self._due.append(place)
                self._waiting.setdefault(last, []).append(place)
            yield spec

    def arrived(self, name: Hashable, result: T) -> Iterator[T]:
        """The results that can be handed over now.

        A row that came again before its group was complete has joined it: all places of the name are settled.
        """
        places = self._waiting.pop(name)
        places[0].results.append(result)
        for place in places:
            place.settled = True
        while self._due and self._due[0].settled:
            yield from self._due.popleft().results

    def rest(self) -> Iterator[T]:
        """What is still held back when no more results come: those before them never came."""
        for place in self._due:
            yield from place.results


def line(row: AnyRow) -> bytes:
    """A row as JSON."""
    if isinstance(row, bytes):
        return row
    return row.encode() if isinstance(row, str) else msgspec.json.encode(row)

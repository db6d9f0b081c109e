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
    """Rows on their way into rollouts.

    Args:
        keys: the caller's name for each row; None for no names.
        remembered: keep each row until `take` is called for its task. Without it a stream of rows takes no
            memory, and `take` may not be called.

    Attributes:
        listed: all rows are there already.
        apart: each row is a task of its own.
    """

    def __init__(
        self, rows: Iterable[AnyRow], keys: Iterable[Any] | None = None, *, remembered: bool
    ) -> None:
        self.listed = isinstance(rows, Sequence)
        self.apart = keys is not None
        self._rows = rows
        self._keys = keys
        self._remembered = remembered
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
                # Set before the line is yielded: `noting` reads it while this generator is suspended there.
                self._present = row, next(keys)
            except StopIteration:
                raise UsageError("keys has fewer entries than rows: give one for each row") from None
            yield line(row)

    def noting(self, specs: Iterable[RolloutSpec]) -> Iterator[RolloutSpec]:
        """The specs made of the lines, each row's before the next row is read."""
        for spec in specs:
            if self._remembered:
                self._latest = spec.task_index
                # `setdefault`: rows with the same text are one task, whose first row counts.
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
        self._early: dict[Hashable, list[T]] = {}

    def expecting(
        self, specs: Iterable[RolloutSpec], name: Callable[[RolloutSpec], Hashable]
    ) -> Iterator[RolloutSpec]:
        """The specs, whose results are expected in this order, by name, from when they are passed on."""
        last: Hashable = None
        for spec in specs:
            # Repeats of one row share a place, until its results have come.
            if name(spec) != last or last not in self._waiting:
                last = name(spec)
                place = _Place[T]()
                self._due.append(place)
                if last in self._early:
                    place.results, place.settled = self._early.pop(last), True
                else:
                    self._waiting.setdefault(last, []).append(place)
            yield spec

    def arrived(self, name: Hashable, result: T) -> Iterator[T]:
        """The results that can be handed over now.

        A row that came again before its group was complete has joined it: all places of the name are settled.
        A result that an earlier part of the run has left may come before its row is read.
        """
        places = self._waiting.pop(name, None)
        if places is None:
            self._early.setdefault(name, []).append(result)
            return
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

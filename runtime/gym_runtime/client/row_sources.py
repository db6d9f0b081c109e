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
            self._of_task.setdefault(spec.task_index, self._present)
            yield spec

    def take(self, task_index: int) -> tuple[AnyRow, Any]:
        """The row of a task, which is forgotten now, and its key."""
        return self._of_task.pop(task_index)


class InputOrder(Generic[T]):
    """Holds back results that overtook others, so that they are handed over in the order of the input."""

    def __init__(self) -> None:
        self._due: deque[Hashable] = deque()
        self._early: dict[Hashable, deque[T]] = {}

    def expecting(
        self, specs: Iterable[RolloutSpec], name: Callable[[RolloutSpec], Hashable]
    ) -> Iterable[RolloutSpec]:
        """The specs, whose results are expected in this order.

        Specs of one name have one result: all of a list, the neighbours of a stream.
        """
        if isinstance(specs, Sequence):
            self._due.extend(dict.fromkeys(map(name, specs)))
            return specs
        return self._naming(specs, name)

    def _naming(
        self, specs: Iterable[RolloutSpec], name: Callable[[RolloutSpec], Hashable]
    ) -> Iterator[RolloutSpec]:
        last: Hashable = None
        for spec in specs:
            if name(spec) != last:
                last = name(spec)
                self._due.append(last)
            yield spec

    def arrived(self, name: Hashable, result: T) -> Iterator[T]:
        """The results that can be handed over now."""
        self._early.setdefault(name, deque()).append(result)
        while self._due and (waiting := self._early.get(self._due[0])):
            yield waiting.popleft()
            if not waiting:
                del self._early[self._due[0]]
            self._due.popleft()

    def rest(self) -> Iterator[T]:
        """What is still held back when no more results come: those before them never came."""
        for name in self._due:
            yield from self._early.pop(name, ())


def line(row: AnyRow) -> bytes:
    """A row as JSON."""
    if isinstance(row, bytes):
        return row
    return row.encode() if isinstance(row, str) else msgspec.json.encode(row)

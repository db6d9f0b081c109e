"""Which rollouts of a file become training data, chosen by their index alone: no row is read for it.

Only rollouts with a verdict are taken. Of a choice among equal rewards the earliest rollout wins, so the same
file gives the same data each time.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gym_view.index import IndexedRow


class Place(NamedTuple):
    """Where a row is in its file, in bytes."""

    offset: int
    size: int


class Pair(NamedTuple):
    """The best and the worst rollout of a task."""

    chosen: Place
    rejected: Place


class Places:
    """Many places in twelve bytes each, in the order in which they were added."""

    def __init__(self) -> None:
        self._offsets = array("Q")
        self._sizes = array("I")

    def add(self, row: IndexedRow) -> None:
        self._offsets.append(row.offset)
        self._sizes.append(row.size)

    def __len__(self) -> int:
        return len(self._offsets)

    def __iter__(self) -> Iterator[Place]:
        return map(Place, self._offsets, self._sizes)


def judged(
    rows: Iterable[IndexedRow], *, best_of: int | None = None, min_reward: float | None = None
) -> Places:
    """The rollouts with a reward of at least ``min_reward``, in the order of the file.

    With ``best_of`` only the best of the first ``best_of`` rollouts of each task, by their index, in the
    order of the tasks' first rows.
    """
    if best_of is not None:
        best: dict[tuple[str, int], IndexedRow] = {}
        for row in rows:
            entry = row.entry
            if entry.reward == entry.reward and entry.rollout < best_of:
                task = entry.environment, entry.task
                known = best.get(task)
                if known is None or _rank(row) > _rank(known):
                    best[task] = row
        rows = best.values()
    found = Places()
    for row in rows:
        reward = row.entry.reward
        if reward == reward and (min_reward is None or reward >= min_reward):
            found.add(row)
    return found


def pairs(
    rows: Iterable[IndexedRow], *, best_of: int | None = None, min_reward: float | None = None
) -> Iterator[Pair]:
    """Of each task its best and its worst rollout, if their rewards differ; of the first ``best_of`` only.

    With ``min_reward`` the best must have at least that.
    """
    found: dict[tuple[str, int], tuple[IndexedRow, IndexedRow]] = {}
    for row in rows:
        entry = row.entry
        if entry.reward != entry.reward or (best_of is not None and entry.rollout >= best_of):
            continue
        task = entry.environment, entry.task
        best, worst = found.get(task, (row, row))
        if _rank(row) > _rank(best):
            best = row
        if (entry.reward, entry.rollout) < (worst.entry.reward, worst.entry.rollout):
            worst = row
        found[task] = best, worst
    for best, worst in found.values():
        reward = best.entry.reward
        if reward > worst.entry.reward and (min_reward is None or reward >= min_reward):
            yield Pair(Place(best.offset, best.size), Place(worst.offset, worst.size))


def _rank(row: IndexedRow) -> tuple[float, int]:
    return row.entry.reward, -row.entry.rollout

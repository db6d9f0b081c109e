"""Small counters by ``(task_index, rollout_index)``, for millions of rollouts.

A page holds one byte for each of 128 neighbouring tasks at one rollout index, so a complete run costs
about three bytes per rollout, and a single key some 300.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

_PAGE = 128
_MOST = 255


class KeyCounts:
    """How often each key was seen, up to 255.

    >>> counts = KeyCounts()
    >>> counts.increase(7, 0), counts.increase(7, 0), counts.get(7, 1)
    (1, 2, 0)
    """

    def __init__(self) -> None:
        self._pages: dict[tuple[int, int], bytearray] = {}
        self._keys = 0

    def get(self, task_index: int, rollout_index: int) -> int:
        page = self._pages.get((rollout_index, task_index // _PAGE))
        return page[task_index % _PAGE] if page is not None else 0

    def put(self, task_index: int, rollout_index: int, count: int) -> None:
        """Set a key's count; more than 255 counts as 255."""
        where = (rollout_index, task_index // _PAGE)
        page = self._pages.get(where)
        if page is None:
            page = self._pages[where] = bytearray(_PAGE)
        slot = task_index % _PAGE
        # Two booleans: +1, 0 or -1.
        self._keys += (count > 0) - (page[slot] > 0)
        page[slot] = min(count, _MOST)

    def increase(self, task_index: int, rollout_index: int) -> int:
        """Count a key once more; returns its new count."""
        count = min(self.get(task_index, rollout_index) + 1, _MOST)
        self.put(task_index, rollout_index, count)
        return count

    def __len__(self) -> int:
        """How many keys have a count."""
        return self._keys

    def __contains__(self, key: tuple[int, int]) -> bool:
        return self.get(*key) > 0

    def items(self) -> Iterator[tuple[tuple[int, int], int]]:
        """``((task_index, rollout_index), count)`` of every key that has one, in no particular order."""
        for (rollout_index, page_index), page in self._pages.items():
            for slot, count in enumerate(page):
                if count:
                    yield (page_index * _PAGE + slot, rollout_index), count


def repeated(keys: array[int]) -> dict[int, int]:
    """The keys that occur more than once, and how often each does."""
    found: dict[int, int] = {}
    last: int | None = None
    for key in sorted(keys):
        if key == last:
            found[key] = found.get(key, 1) + 1
        last = key
    return found

"""Staleness kept by pacing: when a group may start, and when a batch may be taken.

A version is an update of the weights; versions count from 0. A group is born at the version that is installed
when it starts, and trained in batch number ``t``; its age is ``t - born``. No group gets older than
``staleness``, and nothing is thrown away for it. Two rules keep that:

* a group starts only while fewer than ``(born + staleness + 1 - next batch) * batch`` groups are outstanding:
  running, or finished and not in a batch yet;
* a batch is taken only if it holds each outstanding group that is due now, and if afterwards, for each ``j``
  below ``staleness``, at most ``(j + 1) * batch`` groups are due within the next ``j`` batches.

By the second rule at most ``batch`` groups are ever due at once, so they fit into one batch. The price is
waiting: the engine idles while the oldest group finishes. `free_staleness` says which bound costs nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence


class Deadlines:
    """The groups that are outstanding, by the version at which they were born.

    Args:
        batch: how many groups the trainer takes at a time.
        staleness: the oldest age at which a group may be trained; None for no bound.

    Attributes:
        version: of the installed weights.
        taken: how many batches were taken: the number of the next one.
    """

    def __init__(self, batch: int, staleness: int | None) -> None:
        self.version = self.taken = 0
        self._batch, self._staleness = batch, staleness
        self._outstanding = Counter[int]()
        self._count = 0

    def may_start(self) -> bool:
        """Whether one more group may start now."""
        if self._staleness is None:
            return True
        return self._count < (self.version + self._staleness + 1 - self.taken) * self._batch

    def start(self) -> int:
        """A group starts; returns the version at which it is born."""
        self._outstanding[self.version] += 1
        self._count += 1
        return self.version

    def leave(self, born: int) -> None:
        """A group will be in no batch: it has no signal, has failed, or was stopped."""
        self._outstanding[born] -= 1
        self._count -= 1
        if not self._outstanding[born]:
            del self._outstanding[born]

    def may_take(self, births: Sequence[int]) -> bool:
        """Whether the next batch may hold the groups born then, and no others."""
        if self._staleness is None:
            return True
        chosen = Counter(births)
        left = {born: count - chosen[born] for born, count in self._outstanding.items()}
        due = 0
        # From the earliest deadline on, so that ``due`` counts all groups due up to that batch.
        for born in sorted(left):
            due += left[born]
            batches = born + self._staleness - self.taken
            if due > max(0, batches) * self._batch:
                return False
        return True

    def take(self, births: Sequence[int]) -> None:
        """A batch is taken."""
        for born in births:
            self.leave(born)
        self.taken += 1

    def installed(self) -> None:
        """The weights trained on all batches taken so far are installed."""
        self.version = self.taken


def free_staleness(lengths: Sequence[float], in_flight: int, batch: int) -> int:
    """The smallest bound under which the engine does not wait for the trainer, by Little's law.

    Args:
        lengths: how long groups took, in any unit; not empty.
        in_flight: how many groups keep the engine busy.
    """
    average = math.fsum(lengths) / len(lengths)
    return max(0, math.ceil(in_flight * max(lengths) / (average or 1.0) / batch) - 1)

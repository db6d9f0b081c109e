"""Slots that several pulls share: how many tasks each may hold or ask the broker for.

A credit at the broker reserves a slot, because a task may come for it. So an idle queue would cost a slot for
as long as it is asked, and a busy one could take them all. The laws:

1. Over all pulls, tasks in progress plus credits never exceed the slots.
2. A pull that got a task lately, or used up its credits with tasks, is keen: it may ask for one more credit
   than it has tasks in progress, so that it has all slots after a few answers. Any other pull asks for one
   credit.
3. A free slot goes to a keen pull that holds fewer slots than the pull which freed it. So queues that all
   have tasks share the slots evenly.
4. While slots are scarce, a pull that is not keen asks every `PROBE_S` only, and does not wait for a task:
   the slot is gone for one round trip. So every queue is served, and an idle one costs nothing.
5. Behind a slow link only a part of the slots is used: other workers could run the rollouts that would wait
   there.

A pull that does not share its slots asks for all of them.
"""

from __future__ import annotations

from collections.abc import Callable

from gym_runtime.timing import SLOW_LINK_S

PROBE_S = 1.0
"""How often a queue that was empty is asked again, while other queues use the worker's slots."""
KEEN_S = 0.5
"""Without a task for so long, unused credits say that the queue is empty."""


class Share:
    """One pull's share of the slots.

    Args:
        wake: makes the pull ask for as much as it may.

    Attributes:
        busy: tasks in progress.
        asked: credits at the broker.
        is_open: it asks for tasks at all.
        brief: its next request must be answered at once, with a task or without.
    """

    def __init__(self, slots: Slots, wake: Callable[[], None]) -> None:
        self.busy = self.asked = 0
        self.is_open = False
        self.brief = False
        self._slots = slots
        self._wake = wake
        self._fed = False
        self._fed_s = 0.0
        # A new pull may ask at once.
        self._probed_s = -PROBE_S

    @property
    def held(self) -> int:
        return self.busy + self.asked

    @property
    def alone(self) -> bool:
        """Whether no other pull uses these slots."""
        return len(self._slots.shares) == 1

    def keen(self, now_s: float) -> bool:
        """Whether there are probably more tasks for it."""
        return self._fed and (not self.asked or now_s - self._fed_s < KEEN_S)

    def fed(self, now_s: float) -> None:
        """A task came."""
        self._fed, self._fed_s = True, now_s

    def went_without(self, now_s: float) -> None:
        """A request for tasks ended before it was used up."""
        self._fed, self._probed_s = False, now_s

    def limit(self, now_s: float) -> int:
        """How much it may hold now; never less than it does."""
        others = [share for share in self._slots.shares if share is not self]
        if not others:
            return self._slots.usable
        free = self._slots.free
        scarce = free <= len(others)
        if self.keen(now_s):
            self.brief = False
            # A slot that another pull must get first is not taken.
            owed = sum(share._is_owed(self, now_s) for share in others)
            return self.held + max(0, min(free - owed, self.busy + 1 - self.asked))
        self.brief = scarce
        earlier = sum(share._probed_s < self._probed_s for share in others if share._may_probe(now_s))
        if self.asked or free <= earlier or (scarce and not self._may_probe(now_s)):
            return self.held
        return self.held + 1

    def _may_probe(self, now_s: float) -> bool:
        idle = self.is_open and not self.asked and not self.keen(now_s)
        return idle and now_s - self._probed_s >= PROBE_S

    def _is_owed(self, other: Share, now_s: float) -> bool:
        if not self.is_open:
            return False
        return self.held < other.held if self.keen(now_s) and not self.asked else self._may_probe(now_s)

    def released(self) -> None:
        """Slots became free: the other pulls may ask for them, the pull with the fewest slots first."""
        for share in sorted(self._slots.shares, key=lambda share: share.held):
            if share is not self and self._slots.free > 0:
                share._wake()

    def leave(self) -> None:
        """The pull is over."""
        self.busy = self.asked = 0
        self._slots.shares.remove(self)
        self.released()


class Slots:
    """A number of tasks that may be in progress at once, over all pulls that are given the same slots.

    Attributes:
        usable: how many slots are used now; tasks in progress beyond that number are finished.
    """

    def __init__(self, total: int) -> None:
        self.total = self.usable = total
        self.shares: list[Share] = []

    @property
    def free(self) -> int:
        """Slots that are neither busy nor reserved by a credit."""
        return self.usable - sum(share.held for share in self.shares)

    def fit(self, round_trip_s: float) -> None:
        """Use as many as the link's round trip allows: half of the slots at twice `SLOW_LINK_S`."""
        slowness = max(1.0, round_trip_s / SLOW_LINK_S)
        # At least one: a system whose only worker is behind a slow link must go on.
        self.usable = max(1, int(self.total / slowness))

    def join(self, wake: Callable[[], None]) -> Share:
        """One more pull uses them."""
        share = Share(self, wake)
        self.shares.append(share)
        return share


def own_or_shared(slots: int | Slots) -> Slots:
    """Slots for a pull: a number is for this pull alone."""
    return Slots(slots) if isinstance(slots, int) else slots

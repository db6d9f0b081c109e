"""Credit: how many tasks a worker may be sent. A pure machine for one pull, and the slots that pulls share.

A slot is busy with a delivery, asked for (a credit at the broker), or free. The laws of one pull:

1. ``busy`` never exceeds the slots; a delivery beyond that is refused at once.
2. It asks only while ``busy`` plus the credits asked for are fewer than the slots.
3. While the worker is open and no pause is running, free slots become credits, of which at most
   `MOST_ASKED` are at the broker: as soon as nothing is asked for, or an eighth of what could be. Thousands
   of tasks at once would keep a worker's loop from everything else, keeping its deliveries alive included.
4. A credit ends by a delivery, or by a status that ends its request, or it is written off when the
   connection broke or nothing was heard for `SILENCE` heartbeats. Written-off credits may still be alive at
   the broker, so their inbox is given up and a new one opened.

The laws of slots that several pulls share. A credit reserves a slot, because a task may come for it; so an
idle queue would cost a slot for as long as it is asked, and a busy one could take them all.

5. Over all pulls, tasks in progress plus credits never exceed the slots.
6. A pull that got a task lately, or used up its credits with tasks, is keen: it may ask for one more credit
   than it has tasks in progress, so that it has all slots after a few answers. Any other pull asks for one
   credit.
7. A free slot goes to a keen pull that holds fewer slots than the pull which freed it. So queues that all
   have tasks share the slots evenly.
8. While slots are scarce, a pull that is not keen asks every `PROBE_S` only, and does not wait for a task:
   the slot is gone for one round trip. So every queue is served, and an idle one costs nothing.
9. Where pulls that are keen differ in `Rank`, a pull asks for no more than its part: nothing while a pull
   of a higher priority is keen, else its share of the slots among the keen ones of its priority. Slots that a
   pull cannot use, because the broker limits it, are the others'.
10. Behind a slow link only a part of the slots is used: other workers could run the rollouts that would wait
   there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

import msgspec
from msgspec.structs import replace

from gym_runtime.timing import SLOW_LINK_S

PULL_PAUSE_S = 0.25
"""After a refusal that is not the ordinary end of a pull: asking at once would spin."""
SILENCE = 2.5
"""In heartbeats: two may be lost or late."""
MOST_ASKED = 256
PROBE_S = 1.0
"""How often a queue that was empty is asked again, while other queues use the worker's slots."""
KEEN_S = 0.5
"""Without a task for so long, unused credits say that the queue is empty."""


class Phase(StrEnum):
    """Where the worker is with the broker."""

    DOWN = "down"
    """No connection, or no consumer."""
    OPEN = "open"
    CLOSING = "closing"
    """Asks for nothing more and finishes what it has."""


class Credit(msgspec.Struct, frozen=True, kw_only=True):
    """The state. Times are in seconds of any steadily growing clock; ``asked`` are credits at the broker."""

    heartbeat_s: float
    phase: Phase = Phase.DOWN
    busy: int = 0
    asked: int = 0
    heard_s: float = 0.0
    paused_until_s: float = 0.0


class Ended(msgspec.Struct, frozen=True):
    """A status ended a request that had ``left`` credits.

    ``refused``: it is not the ordinary end of a request that has waited long enough.
    """

    left: int
    refused: bool = False


Event = (
    Ended
    | Literal[
        "opened", "broke", "stopped", "delivered", "stray", "heartbeat", "vanished", "finished", "ticked"
    ]
)
"""``opened``: the connection and the consumer exist, and so does a new inbox; ``broke``: the connection did;
``stopped``: nothing new is to be taken; ``delivered``: a task arrived, ``stray``: on an inbox that was given
up; ``vanished``: the consumer is gone; ``finished``: a slot is free again; ``ticked``: time has passed."""
Command = Literal["start", "refuse", "reopen", "leave", "restore"]
"""``start`` or ``refuse`` the delivery at hand; ``reopen``: give up the inbox and open a new one;
``leave``: give up the inbox; ``restore``: create the consumer and a new inbox, then ``opened``."""


def step(state: Credit, event: Event, now_s: float, slots: int) -> tuple[Credit, Command | None]:
    """What an event changes, and what is to be done; `ask` follows."""
    closing = state.phase is Phase.CLOSING
    match event:
        case "opened":
            # The inbox was opened before the stop was known; the pull must not use it.
            if closing:
                return state, "leave"
            return replace(state, phase=Phase.OPEN, asked=0, heard_s=now_s), None
        case "broke":
            # The broker drops the requests of a connection that it has lost.
            return replace(state, phase=state.phase if closing else Phase.DOWN, asked=0), None
        case "stopped":
            return (state, None) if closing else (replace(state, phase=Phase.CLOSING, asked=0), "leave")
        case "delivered" | "stray":
            asked = state.asked - (event == "delivered" and state.asked > 0)
            # More than was asked for comes from requests that were written off, and are still alive at the
            # broker.
            if state.busy >= slots or closing:
                return replace(state, heard_s=now_s, asked=asked), "refuse"
            return replace(state, heard_s=now_s, asked=asked, busy=state.busy + 1), "start"
        case "heartbeat":
            return replace(state, heard_s=now_s), None
        case Ended(left, refused):
            until_s = now_s + PULL_PAUSE_S if refused else state.paused_until_s
            asked = max(0, state.asked - left)
            return replace(state, heard_s=now_s, asked=asked, paused_until_s=until_s), None
        case "vanished":
            # Each open request is answered so, and one restoration is enough.
            if state.phase is not Phase.OPEN:
                return state, None
            until_s = now_s + PULL_PAUSE_S
            return replace(state, phase=Phase.DOWN, asked=0, paused_until_s=until_s), "restore"
        case "finished":
            return replace(state, busy=state.busy - 1), None
        case "ticked":
            if state.asked and now_s - state.heard_s > SILENCE * state.heartbeat_s:
                # `heard_s` starts again, or the next tick would give up the new inbox as well.
                return replace(state, asked=0, heard_s=now_s), "reopen"
            return state, None


def ask(state: Credit, now_s: float, limit: int) -> tuple[Credit, int]:
    """How many tasks to ask the broker for now, where ``limit`` may be busy or asked for in all."""
    most = min(limit, MOST_ASKED)
    free = min(limit - state.busy, MOST_ASKED) - state.asked
    if state.phase is not Phase.OPEN or now_s < state.paused_until_s or free <= 0:
        return state, 0
    # A request for each slot that becomes free would cost a message for each task.
    if state.asked and free < most // 8:
        return state, 0
    # A silent broker is one from which nothing came since it was asked, not since it last had tasks.
    heard_s = state.heard_s if state.asked else now_s
    return replace(state, asked=state.asked + free, heard_s=heard_s), free


@dataclass
class Rank:
    """How a pull stands to the others that use the same slots; it may be changed at any time.

    Attributes:
        share: its weight among pulls of the same priority; they get slots in this proportion.
        priority: pulls of a lower one get no slot that it can use.
        most: how many of its tasks are in progress at most, over all workers; 0 for no limit.
    """

    share: float = 1.0
    priority: int = 0
    most: int = field(default=0, compare=False)


class Share:
    """One pull's share of the slots.

    Args:
        wake: makes the pull ask for as much as it may.
        wants: whether there are tasks for it, where that is known.

    Attributes:
        busy: tasks in progress.
        asked: credits at the broker.
        is_open: it asks for tasks at all.
        brief: its next request must be answered at once, with a task or without.
    """

    def __init__(
        self, slots: Slots, wake: Callable[[], None], rank: Rank, wants: Callable[[], bool] | None = None
    ) -> None:
        self.rank, self._wants = rank, wants
        self.busy = self.asked = 0
        self.is_open = self.brief = self._fed = False
        self._slots, self._wake = slots, wake
        self._fed_s = 0.0
        self._probed_s = -PROBE_S  # a new pull may ask at once

    @property
    def held(self) -> int:
        return self.busy + self.asked

    @property
    def most(self) -> int:
        """How many tasks may be in progress: all slots but those that the other pulls hold."""
        return self._slots.total - sum(share.held for share in self._slots.shares if share is not self)

    def keen(self, now_s: float) -> bool:
        """Whether there are probably more tasks for it."""
        if self._wants is not None:
            return self._wants()
        return self._fed and (not self.asked or now_s - self._fed_s < KEEN_S)

    def fed(self, now_s: float) -> None:
        """A task came."""
        self._fed, self._fed_s = True, now_s

    def went_without(self, now_s: float) -> None:
        """A request for tasks ended before it was used up."""
        self._fed, self._probed_s = False, now_s

    def part(self, now_s: float) -> int | None:
        """How many slots it may hold at most because of its rank; None if no other rank wants some."""
        return self._part(self._slots.keen(now_s))

    def _part(self, keen: list[Share]) -> int | None:
        rivals = keen if self in keen else [*keen, self]
        if all(share.rank == self.rank for share in rivals):
            return None
        own = self.rank
        left = self._slots.usable - sum(one._room for one in rivals if one.rank.priority > own.priority)
        if left <= 0:
            return 0
        alike = [one for one in rivals if one.rank.priority == own.priority]
        weights, part = sum(one.rank.share for one in alike), left
        # First those that cannot use all of their part: the others divide the rest.
        for one in sorted(alike, key=lambda one: one._room / one.rank.share):
            part = left * one.rank.share / weights
            if one is self:
                break
            left -= min(part, one._room)
            weights -= one.rank.share
        return max(1, round(part))

    @property
    def _room(self) -> float:
        """How many slots it can use: if the broker limits it, not many more than it has here."""
        most = self.rank.most
        return min(most, max(self.held, 2 * self.busy + 1)) if most else math.inf

    def limit(self, now_s: float) -> int:
        """How much it may hold now; never less than it does where slots are shared."""
        others = [share for share in self._slots.shares if share is not self]
        if not others:
            return self._slots.usable
        keen = self._slots.keen(now_s)
        free, part = self._slots.free, self._part(keen)
        if part is not None:
            free = min(free, part - self.held)
            if free <= 0:
                return self.held
        scarce = free <= len(others)
        if self.keen(now_s):
            self.brief = False
            # A slot that another pull must get first is not taken.
            owed = sum(share._is_owed(self, now_s, keen) for share in others)
            return self.held + max(0, min(free - owed, self.busy + 1 - self.asked))
        self.brief = scarce
        earlier = sum(share._probed_s < self._probed_s for share in others if share._may_probe(now_s, keen))
        if self.asked or free <= earlier or (scarce and not self._may_probe(now_s, keen)):
            return self.held
        return self.held + 1

    def _may_probe(self, now_s: float, keen: list[Share]) -> bool:
        idle = self.is_open and not self.asked and not self.keen(now_s)
        if not idle or now_s - self._probed_s < PROBE_S:
            return False
        # One that its rank keeps from asking keeps no slot from others: they would wait for each other.
        part = self._part(keen)
        return part is None or self.busy < part

    def _is_owed(self, other: Share, now_s: float, keen: list[Share]) -> bool:
        if self.is_open and self.keen(now_s) and not self.asked:
            part = self._part(keen)
            return self.held < (other.held if part is None else part)
        return self._may_probe(now_s, keen)

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

    def keen(self, now_s: float) -> list[Share]:
        """The pulls that ask for tasks and probably find some."""
        return [share for share in self.shares if share.is_open and share.keen(now_s)]

    @property
    def free(self) -> int:
        """Slots that are neither busy nor reserved by a credit."""
        return self.usable - sum(share.held for share in self.shares)

    def fit(self, round_trip_s: float) -> None:
        """Use as many as the link's round trip allows: half of the slots at twice `SLOW_LINK_S`."""
        # At least one: a system whose only worker is behind a slow link must go on.
        self.usable = max(1, int(self.total / max(1.0, round_trip_s / SLOW_LINK_S)))

    def join(
        self,
        wake: Callable[[], None],
        rank: Rank | None = None,
        wants: Callable[[], bool] | None = None,
    ) -> Share:
        """One more pull uses them; the arguments are those of `Share`."""
        self.shares.append(Share(self, wake, rank or Rank(), wants))
        return self.shares[-1]

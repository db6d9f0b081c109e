"""Credit: how many tasks a worker may be sent, as a pure function ``(state, event) -> (state, commands)``.

A worker has ``slots``. Each is busy with a delivery, asked for (a credit at the broker), or free. The laws:

1. ``busy`` never exceeds ``slots``; a delivery beyond that is refused at once.
2. ``busy`` plus the credits asked for never exceed ``slots``.
3. While the worker is open and no pause is running, free slots become credits, of which at most
   `MOST_ASKED` are at the broker: as soon as nothing is asked for, or an eighth of what could be. Thousands
   of tasks at once would keep a worker's loop from everything else, keeping its deliveries alive included.
4. A credit ends by a delivery, or by a status that says how many were left, or it is written off when the
   connection broke or nothing was heard for `SILENCE` heartbeats. Written-off credits may still be alive at
   the broker, so their inbox is given up and a new one opened.

Deliveries do not say which of several pulls they answer. The broker serves pulls in order, so they are
booked on the oldest; the status that ends a pull corrects the booking.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec

PULL_PAUSE_S = 0.25
"""After a refusal that is not the ordinary end of a pull: asking at once would spin."""


# In heartbeats: two may be lost or late.
SILENCE = 2.5
MOST_ASKED = 256


class Phase(StrEnum):
    """Where the worker is with the broker."""

    DOWN = "down"
    """No connection, or no consumer."""
    OPEN = "open"
    CLOSING = "closing"
    """Asks for nothing more and finishes what it has."""


class Pull(msgspec.Struct, frozen=True):
    """A request for tasks: its number, and the credits left in it."""

    number: int
    left: int


class Credit(msgspec.Struct, frozen=True, kw_only=True):
    """The state. Times are in seconds of any steadily growing clock.

    ``limit`` is how many deliveries and credits there may be for now, where slots are shared
    (`gym_runtime.bus.slots`); None for as many as there are slots.
    """

    slots: int
    heartbeat_s: float
    limit: int | None = None
    phase: Phase = Phase.DOWN
    busy: int = 0
    pulls: tuple[Pull, ...] = ()
    next_number: int = 1
    heard_s: float = 0.0
    paused_until_s: float = 0.0

    @property
    def asked(self) -> int:
        """Credits at the broker."""
        return _credits(self.pulls)


class Opened(msgspec.Struct, frozen=True):
    """The connection and the consumer are there, and so is a new inbox."""

    now_s: float


class Broke(msgspec.Struct, frozen=True):
    """The connection broke."""


class Stopped(msgspec.Struct, frozen=True):
    """Nothing new is to be taken."""


class Delivered(msgspec.Struct, frozen=True):
    """A task arrived; ``expected`` is False on an inbox that was given up."""

    now_s: float
    expected: bool = True


class Beat(msgspec.Struct, frozen=True):
    """A heartbeat of the broker arrived."""

    now_s: float


class Ended(msgspec.Struct, frozen=True):
    """A status ended a pull; ``left`` are the credits it had, None if the broker did not say.

    ``refused``: it is not the ordinary end of a pull that has waited long enough.
    """

    now_s: float
    number: int
    left: int | None = None
    refused: bool = False


class Vanished(msgspec.Struct, frozen=True):
    """The consumer is gone."""

    now_s: float


class Finished(msgspec.Struct, frozen=True):
    """A slot is free again."""

    now_s: float


class Ticked(msgspec.Struct, frozen=True):
    """Time has passed."""

    now_s: float


Event = Opened | Broke | Stopped | Delivered | Beat | Ended | Vanished | Finished | Ticked


class Ask(msgspec.Struct, frozen=True):
    """Ask the broker for ``batch`` tasks; ``number`` is part of the reply subject."""

    number: int
    batch: int


Command = Ask | Literal["start", "refuse", "reopen", "leave", "restore"]
"""``start`` or ``refuse`` the delivery at hand; ``reopen``: give up the inbox and open a new one;
``leave``: give up the inbox; ``restore``: create the consumer and a new inbox, then `Opened`."""


def step(state: Credit, event: Event) -> tuple[Credit, list[Command]]:
    """What happens next."""
    match event:
        case Opened(now_s):
            # The inbox was opened before the stop was known; the pull must not use it.
            if state.phase is Phase.CLOSING:
                return state, ["leave"]
            state = msgspec.structs.replace(state, phase=Phase.OPEN, pulls=(), heard_s=now_s)
            return _ask(state, now_s)
        case Broke():
            phase = Phase.DOWN if state.phase is Phase.OPEN else state.phase
            # The broker drops the pulls of a connection that it has lost.
            return msgspec.structs.replace(state, phase=phase, pulls=()), []
        case Stopped():
            if state.phase is Phase.CLOSING:
                return state, []
            return msgspec.structs.replace(state, phase=Phase.CLOSING, pulls=()), ["leave"]
        case Delivered(now_s, expected):
            pulls = _book(state.pulls) if expected else state.pulls
            # More than was asked for comes from pulls that were written off, and are still alive at the
            # broker.
            if state.busy >= state.slots or state.phase is Phase.CLOSING:
                return msgspec.structs.replace(state, heard_s=now_s, pulls=pulls), ["refuse"]
            busy = state.busy + 1
            state = msgspec.structs.replace(
                state, heard_s=now_s, busy=busy, pulls=_fit(pulls, state.slots - busy)
            )
            state, commands = _ask(state, now_s)
            return state, ["start", *commands]
        case Beat(now_s):
            return msgspec.structs.replace(state, heard_s=now_s), []
        case Ended(now_s, number, left, refused):
            state = msgspec.structs.replace(state, heard_s=now_s, pulls=_end(state.pulls, number, left))
            if refused:
                state = msgspec.structs.replace(state, paused_until_s=now_s + PULL_PAUSE_S)
            return _ask(state, now_s)
        case Vanished(now_s):
            # Each open pull is answered so, and one restoration is enough.
            if state.phase is not Phase.OPEN:
                return state, []
            state = msgspec.structs.replace(
                state, phase=Phase.DOWN, pulls=(), paused_until_s=now_s + PULL_PAUSE_S
            )
            return state, ["restore"]
        case Finished(now_s):
            return _ask(msgspec.structs.replace(state, busy=state.busy - 1), now_s)
        case Ticked(now_s):
            if state.pulls and now_s - state.heard_s > SILENCE * state.heartbeat_s:
                # `heard_s` starts again, or the next tick would give up the new inbox as well.
                state = msgspec.structs.replace(state, pulls=(), heard_s=now_s)
                state, commands = _ask(state, now_s)
                return state, ["reopen", *commands]
            return _ask(state, now_s)


def _credits(pulls: tuple[Pull, ...]) -> int:
    count = 0
    for pull in pulls:  # a generator would cost twice as much, three times for each rollout
        count += pull.left
    return count


def _ask(state: Credit, now_s: float) -> tuple[Credit, list[Command]]:
    asked = state.asked
    limit = state.slots if state.limit is None else state.limit
    free = min(limit - state.busy, MOST_ASKED) - asked
    if state.phase is not Phase.OPEN or now_s < state.paused_until_s or free <= 0:
        return state, []
    # A pull for each slot that becomes free would cost a message for each task.
    if asked and free < max(1, min(state.slots, MOST_ASKED) // 8):
        return state, []
    # A silent broker is one from which nothing came since it was asked, not since it last had tasks.
    heard_s = state.heard_s if state.pulls else now_s
    pull = Pull(state.next_number, free)
    state = msgspec.structs.replace(
        state, pulls=(*state.pulls, pull), next_number=pull.number + 1, heard_s=heard_s
    )
    return state, [Ask(pull.number, free)]


def _book(pulls: tuple[Pull, ...]) -> tuple[Pull, ...]:
    """One credit of the oldest pull is used up."""
    if not pulls:
        return ()
    first, *others = pulls
    return (Pull(first.number, first.left - 1), *others) if first.left > 1 else tuple(others)


def _fit(asked: tuple[Pull, ...], free: int) -> tuple[Pull, ...]:
    """An unexpected delivery took a slot that had been asked for; the newest pull loses a credit."""
    over = _credits(asked) - free
    if over <= 0:
        return asked
    pulls = list(asked)
    while over > 0:
        last = pulls.pop()
        if last.left > over:
            pulls.append(Pull(last.number, last.left - over))
        over -= last.left
    return tuple(pulls)


def _end(pulls: tuple[Pull, ...], number: int, left: int | None) -> tuple[Pull, ...]:
    """A pull is over. What was booked wrongly on it is moved to the oldest of the others."""
    ours = next((pull for pull in pulls if pull.number == number), None)
    others = [pull for pull in pulls if pull.number != number]
    booked = 0 if ours is None else ours.left
    surplus = 0 if left is None else booked - left
    # Deliveries of this pull were booked on others (surplus > 0), or theirs on this one (surplus < 0).
    while surplus < 0 and others:
        taken = min(-surplus, others[0].left)
        surplus += taken
        others[0] = Pull(others[0].number, others[0].left - taken)
        if others[0].left == 0:
            others.pop(0)
    if surplus > 0 and others:
        others[0] = Pull(others[0].number, others[0].left + surplus)
    return tuple(others)

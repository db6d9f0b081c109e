"""Which call is it that ends its workers, when many were in progress at each of them?

A worker process that ends without notice (a crash in a verifier, memory, a kill from outside) takes all of
its calls with it. One of them may be the cause, and would end the next worker too; the others are innocent
and must not fail for it. So the calls that were in progress are asked again, and each counts the workers that
it lost in a row (`Budget.died`); an answer sets its count back to 0. From the second on it is a suspect:

====== ==================================================================================
deaths how the call is executed
====== ==================================================================================
0, 1   as any other: most workers that end were ended from outside
2      beside others, but only `GROUP` such calls at once at one worker
3      alone: the worker takes nothing new, and executes it when all else is finished
4      not at all: the last worker ended while it did nothing else, so the call is the cause
====== ==================================================================================

A suspect asks the worker for a place before it is sent (`Request.place`), and is refused with `Busy` until
there is one. Only a call that was given a place counts the end of its worker: what waits is not suspected
for what others do.

A call that ends every worker costs four of them. An innocent one is answered on the way, however many causes
there are: it fails only if a worker that works on it alone is ended from outside, after three others were.
Waiting for all else to finish holds a worker up for as long as its longest call; another death would cost
the same calls more.
"""

from __future__ import annotations

import anyio

from gym_runtime.errors import GymError, ModelError, ResourceError

GROUP_AT = 2
ALONE_AT = 3
MAX_DEATHS = 4
GROUP = 16
HELD_S = 5.0
"""For how long a place is kept for a call that has not come, and a worker for one that is to be alone there.
Longer than the longest pause of one who asks again."""


def quarantined(kind: str, pool: str) -> GymError:
    """Why a call is not asked again; never retried."""
    message = (
        f"{MAX_DEATHS} workers of {kind} '{pool}' ended one after the other while they worked on the same "
        "call of this rollout, the last one on nothing else: the call ends them (a crash, or more memory "
        "than there is); see their logs"
    )
    return ModelError(message, stage=kind) if kind == "model" else ResourceError(message, stage=kind)


class Suspects:
    """The places at one worker. Pure but for the event loop's time."""

    def __init__(self) -> None:
        self._places: dict[str, tuple[int, float]] = {}
        self._kept_until_s = 0.0

    @property
    def closed(self) -> bool:
        """Whether the worker is kept for a call that is to be alone; nothing else is taken then."""
        return bool(self._kept_until_s) and (
            anyio.current_time() < self._kept_until_s
            or any(deaths >= ALONE_AT for deaths, _ in self._places.values())
        )

    def admit(self, key: str, deaths: int, in_use: int) -> bool:
        """Give a place to a suspect if there is one; ``in_use`` is how many calls are in progress."""
        now_s = anyio.current_time()
        self._places = {name: place for name, place in self._places.items() if place[1] > now_s}
        if key in self._places:
            return True
        if deaths >= ALONE_AT:
            self._kept_until_s = now_s + HELD_S
            free = not in_use and not self._places
        else:
            free = not self.closed and len(self._places) < GROUP
        if free:
            self._places[key] = (deaths, now_s + HELD_S)
        return free

    def begin(self, key: str) -> bool:
        """A suspect is to be executed; False if it has no place."""
        if key not in self._places:
            return False
        deaths, _ = self._places[key]
        self._places[key] = (deaths, float("inf"))
        return True

    def end(self, key: str) -> None:
        """A suspect was executed."""
        self._places.pop(key, None)

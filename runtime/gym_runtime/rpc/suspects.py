"""Finds the call that ends its workers, when many calls were in progress at each of them.

A worker process that ends without notice (a crash in a verifier, memory, a kill from outside) loses all of
its calls. One of them may be the cause, and would end the next worker too; the others must not fail for it.
So all calls that were in progress are sent again, and each counts the workers that it lost in a row
(`Budget.died`); an answer resets its count to 0. From the second lost worker on, a call is a suspect:

====== ==================================================================================
deaths how the call is executed
====== ==================================================================================
0, 1   like any other: most workers that end were ended from outside
2      beside others, but only `GROUP` such calls at once at one worker
3      alone: the worker takes no new calls, and executes it when all others are finished
4      not at all: the last worker ended while it executed only this call, so the call is the cause
====== ==================================================================================

Before a suspect is sent, the router asks the worker for a place (`Request.place`), and gets `Busy` until
there is one. Only a call that has a place counts the end of its worker, so a waiting call is not suspected
for what others do.

A call that ends every worker costs four of them. Any other call is answered on the way, however many causes
there are: it fails only if a worker that executes it alone is ended from outside, after three others were.
Waiting for all others to finish delays a worker by its longest call; another death would cost those calls
more.
"""

from __future__ import annotations

import anyio

from gym_runtime.errors import GymError, ModelError, ResourceError
from gym_runtime.timing import PLACE_KEPT_S

GROUP_AT = 2
ALONE_AT = 3
MAX_DEATHS = 4
GROUP = 16


def quarantined(kind: str, pool: str) -> GymError:
    """The error for a call that is not sent again; never retried."""
    message = (
        f"{MAX_DEATHS} workers of {kind} '{pool}' ended one after the other while they worked on the same "
        "call of this rollout, and the last one worked on nothing else: the call ends them (a crash, or too "
        "little memory); see their logs"
    )
    return ModelError(message, stage=kind) if kind == "model" else ResourceError(message, stage=kind)


class Suspects:
    """The places at one worker. Pure except for the event loop's time."""

    def __init__(self) -> None:
        self._places: dict[str, tuple[int, float]] = {}
        self._kept_until_s = 0.0

    @property
    def closed(self) -> bool:
        """Whether the worker is kept for a call that must be alone; it then takes no other calls."""
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
            self._kept_until_s = now_s + PLACE_KEPT_S
            free = not in_use and not self._places
        else:
            free = not self.closed and len(self._places) < GROUP
        if free:
            self._places[key] = (deaths, now_s + PLACE_KEPT_S)
        return free

    def begin(self, key: str) -> bool:
        """Start a suspect; False if it has no place."""
        if key not in self._places:
            return False
        deaths, _ = self._places[key]
        self._places[key] = (deaths, float("inf"))
        return True

    def end(self, key: str) -> None:
        """Free a suspect's place."""
        self._places.pop(key, None)

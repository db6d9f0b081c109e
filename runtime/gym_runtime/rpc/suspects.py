"""Finds the call that ends its workers, when many calls were in progress at each of them.

A worker process that ends without notice (a crash in a verifier, memory, a kill from outside), or is silent
for long (frozen, or a call keeps the interpreter's lock), loses all of its calls. One of them may be the
cause, and would end the next worker too; the others must not fail for it. So all calls that were in progress
are sent again, and each counts the workers that it lost in a row (`RetryBudget.died`); an answer resets its
count to 0:

====== ==================================================================================
deaths how the call is executed
====== ==================================================================================
0, 1   like any other: most workers that end were ended from outside
2      alone: the worker takes no new calls, and executes it when all others are finished
3      not at all: the last worker ended while it executed only this call, so the call is the cause
====== ==================================================================================

Before a call is sent to be alone, the router asks the worker for a place (`Request.place`), and gets `Busy`
until there is one. Only a call that has a place counts the end of its worker, so a waiting call is not
suspected for what others do. When a cause is found, the other calls of the same router that lost only workers
that it ended go on like any other (`RetryBudget.explain`).

A call that ends every worker costs three of them, or one more beside other causes. Any other call is
answered on the way, however many causes there are: it fails only if a worker that executes it alone is ended
from outside, after two others were. Waiting for all others to finish delays a worker by its longest call;
another death would cost those calls more.
"""

from __future__ import annotations

from gym_runtime import clock
from gym_runtime.errors import GymError, ModelError, ResourceError
from gym_runtime.timing import PLACE_KEPT_S

ALONE_AT = 2
MAX_DEATHS = 3


def quarantined(kind: str, pool: str) -> GymError:
    """The error for a call that is not sent again; never retried."""
    message = (
        f"{MAX_DEATHS} workers of {kind} '{pool}' ended one after the other while they worked on the same "
        "call of this rollout, and the last one worked on nothing else: the call ends them (a crash, or too "
        "little memory), or it keeps the interpreter's lock, so that they do not answer; see their logs"
    )
    return ModelError(message, stage=kind) if kind == "model" else ResourceError(message, stage=kind)


class Suspects:
    """The place at one worker for a call that must be alone. Pure except for the clock."""

    def __init__(self) -> None:
        self._key = ""
        self._held_until_s = 0.0
        self._kept_until_s = 0.0

    @property
    def closed(self) -> bool:
        """Whether the worker is kept for a call that must be alone; it then takes no other calls."""
        now_s = clock.monotonic()
        return now_s < self._kept_until_s or (bool(self._key) and now_s < self._held_until_s)

    def admit(self, key: str, in_use: int) -> bool:
        """Give the place to a call if it is free; ``in_use`` is how many calls are in progress."""
        now_s = clock.monotonic()
        if self._held_until_s <= now_s:
            self._key = ""
        # It asks again when the answer to its first question was lost.
        if key == self._key:
            return True
        # Also when it is refused: new calls would otherwise keep the worker from becoming free.
        self._kept_until_s = now_s + PLACE_KEPT_S
        if in_use or self._key:
            return False
        self._key, self._held_until_s = key, now_s + PLACE_KEPT_S
        return True

    def begin(self, key: str) -> bool:
        """Start a call that must be alone; False if it does not have the place."""
        if key != self._key:
            return False
        # While it is executed the place does not expire.
        self._held_until_s = float("inf")
        return True

    def end(self, key: str) -> None:
        """Free a call's place."""
        if key == self._key:
            self._key = ""

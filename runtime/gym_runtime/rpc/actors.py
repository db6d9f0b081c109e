"""How one actor asks another: an agent asks models and environments, an environment asks models in roles.

Agents, environments and the layers between them depend on `Actors` alone, not on where the asked actor runs.
`gym_runtime.rpc.ask.Router` reaches it over the bus. Every implementation keeps these laws:

============  ============================================================================================
deadline      the caller waits until ``request.deadline_s`` at most, and then gets a `DeadlineExceeded` that
              names what it waited for
budget        every repetition, lost session and dead worker counts in the caller's `RetryBudget`, also the
              retries that the asked actor made itself
cancellation  when the caller is cancelled, the work on its request ends, if the request has a key
repetition    a request may be delivered several times, always with the same key, and is answered once per
              key; from the second delivery on ``repeated`` is set
fault         an error of the asked actor reaches the caller as that error, with the stage at which it arose
span          the asked actor's span is a child of the caller's
============  ============================================================================================
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec
from msgspec import Raw

from gym_runtime.messages.calls import Request
from gym_runtime.rpc.meter import Meter
from gym_runtime.rpc.retry_budget import RetryBudget


class RoutedReply(msgspec.Struct, frozen=True):
    """An answer's body and the worker that gave it."""

    body: Raw
    worker: str


class Actors(Protocol):
    """How one actor asks the others."""

    @property
    def meter(self) -> Meter:
        """The meter of the asking worker."""
        ...

    async def ask(
        self,
        kind: str,
        pool: str,
        request: Request[Any],
        budget: RetryBudget,
        *,
        asked: set[str] | None = None,
        prefer: str = "",
    ) -> RoutedReply:
        """Ask any actor of a pool; each worker that is asked is added to ``asked``.

        Args:
            kind: ``model`` or ``resource``.
            prefer: the worker to ask first, if it is alive and takes new work.

        Raises:
            GymError: the fault of the asked actor, or the last error on the way to it.
        """
        ...

    async def ask_session(
        self, pool: str, worker: str, request: Request[Any], budget: RetryBudget
    ) -> RoutedReply:
        """Ask the worker that holds a session.

        Raises:
            SessionLost: that worker is gone.
            GymError: as `ask`.
        """
        ...

    async def close_session(self, pool: str, worker: str, session: str) -> None:
        """Tell a worker that a session is over, without waiting for an answer."""
        ...

    def weight_versions(self, pool: str) -> list[str]:
        """The versions of the weights that a model's workers have announced; empty texts for unknown ones."""
        ...

    def held(self, pool: str) -> str:
        """Why no worker of a model should be asked now: its engines are too busy. Empty if one may be."""
        ...

    async def room(self, pool: str) -> None:
        """Return when a worker of a model may be asked (`held`)."""
        ...

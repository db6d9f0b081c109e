"""One replica as its worker sees it: the calls that are there, and its signs of life.

What is learnt goes into its `ReplicaState`; what follows from that is `routing`'s to say.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import anyio
from gym_runtime import DeadlineExceeded, ModelUnavailable, clock

from gym_models.wire import load, routing
from gym_models.wire.engine import Engine
from gym_models.wire.routing import ReplicaState

HEALTH = "/health"
METRICS_LIMIT_S = 5.0

E = TypeVar("E", bound=Engine)
T = TypeVar("T")


class Replica(Generic[E]):
    """One engine, its state, its calls, and the event that has it looked at before its time."""

    def __init__(self, engine: E) -> None:
        self.engine = engine
        self.state = ReplicaState(url=engine.endpoint.url)
        self.reason = "it has not been asked yet"
        self.has_metrics = engine.endpoint.private
        self.look = anyio.Event()
        self._root = engine.endpoint.url.removesuffix("/v1")
        self._calls: set[anyio.CancelScope] = set()

    async def ask(self, question: Callable[[E], Awaitable[T]]) -> T:
        """Put a question to the engine; its answer is a sign of life.

        Raises:
            ModelUnavailable: `end_calls` came first.
            GymError: what ``question`` raises.
        """
        with anyio.CancelScope() as scope:
            self._calls.add(scope)
            try:
                answer = await question(self.engine)
            finally:
                self._calls.remove(scope)
            self.state.missed = 0
            return answer
        raise ModelUnavailable(
            f"{self.state.url} left {self.state.missed} health checks in a row without an answer; "
            "another replica can have the call",
            stage="model",
        )

    def end_calls(self) -> int:
        """End every call that is there, which closes its connection; how many there were."""
        for scope in self._calls:
            scope.cancel()
        return len(self._calls)

    async def poll(self, limit_s: float) -> None:
        """Ask whether it is there. Whatever it answers within the limit is a sign of life.

        Raises:
            ModelError: nobody listens, or the connection broke.
        """
        try:
            await self.engine.pool.get(self._root + HEALTH, deadline_s=clock.now() + limit_s)
        except DeadlineExceeded:
            self.state.missed += 1
        else:
            self.state.missed = 0

    async def measure(self) -> None:
        """Read its metrics, and adapt its limit. An engine under load may have no time for this.

        Raises:
            ModelError: nobody listens, or the connection broke.
        """
        try:
            answer = await self.engine.pool.get(
                self._root + load.PATH, deadline_s=clock.now() + METRICS_LIMIT_S
            )
        except DeadlineExceeded:
            return
        found = load.read(answer.body) if answer.status == 200 else None
        if found is None:
            self.has_metrics = False
            return
        self.state.load = found
        self.state.limit = routing.adapted(self.state, found)

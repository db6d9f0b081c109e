"""One replica from its worker's side: its calls, and its health.

The findings go into its `ReplicaState`; `routing` draws the conclusions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import anyio
from gym_runtime import clock
from gym_runtime.errors import DeadlineExceeded, ModelUnavailable
from gym_runtime.logs import logger
from gym_runtime.retrying import Backoff, Pauses

from gym_models.wire import load, routing
from gym_models.wire.engine import Engine
from gym_models.wire.routing import ReplicaState

HEALTH = "/health"
RESTS = Pauses(first_s=1.0, longest_s=30.0)
"""How long a replica rests whose calls fail, see `routing`."""
SILENT_S = 10.0
"""A call that was given up after less time says nothing about its replica."""

E = TypeVar("E", bound=Engine)
T = TypeVar("T")


class Replica(Generic[E]):
    """One engine, its state, its calls, and the event that triggers an early check."""

    def __init__(self, engine: E) -> None:
        self.engine = engine
        self.state = ReplicaState(url=engine.endpoint.url)
        self.reason = "it has not been asked yet"
        self.absent = False
        self.has_metrics = engine.endpoint.private
        self.look = anyio.Event()
        self.rests = Backoff(RESTS)
        self._answered_s = 0.0
        self._root = engine.endpoint.url.removesuffix("/v1")
        self._calls: dict[asyncio.Task[object], bool] = {}  # whether it was ended

    async def ask(self, question: Callable[[E], Awaitable[T]]) -> T:
        """Send a call to the engine; an answer counts as a passed health check.

        Raises:
            ModelUnavailable: `end_calls` came first.
            GymError: what ``question`` raises.
        """
        # A cancel scope of anyio would take 5 µs.
        task = asyncio.current_task()
        assert task is not None
        self._calls[task] = False
        began_s = clock.monotonic()
        try:
            answer = await question(self.engine)
        except asyncio.CancelledError:
            # `uncancel` counts what is left: a cancellation from outside may have come as well.
            if not self._calls[task] or task.uncancel():
                self._given_up(began_s)
                raise
            raise ModelUnavailable(
                f"{self.state.url} left {self.state.missed} health checks in a row without an answer; "
                "another replica can have the call",
                stage="model",
            ) from None
        finally:
            del self._calls[task]
        self.state.missed = 0
        self._answered_s = clock.monotonic()
        if self.state.failed:
            self.state.failed, self.state.refused = 0, False
            self.rests.reset()
        return answer

    def _given_up(self, began_s: float) -> None:
        """A call was cancelled, by its limit or with its rollout. If no other call was answered in all that
        time, the replica rests, as its checks may succeed while its calls hang.
        """
        state, now_s = self.state, clock.monotonic()
        took_s = now_s - began_s
        if took_s < SILENT_S or self._answered_s > began_s or state.rests_until_s > now_s:
            return
        state.failed += 1
        # In proportion, since the next calls may take as long; and bounded, since a client may have cancelled
        # a long call of a sound engine.
        state.rests_until_s = now_s + min(took_s * state.failed, RESTS.longest_s)
        logger().info("a replica answers no calls", url=state.url, for_s=round(took_s))

    def end_calls(self) -> int:
        """Cancel every call in flight, which closes its connection; returns their number."""
        going_on = [task for task, ended in self._calls.items() if not ended]
        for task in going_on:
            self._calls[task] = True
            task.cancel()
        return len(going_on)

    async def poll(self, limit_s: float) -> None:
        """Check its health: any answer within the limit passes.

        Raises:
            ModelError: the connection was refused or broke.
        """
        try:
            await self.engine.pool.get(self._root + HEALTH, deadline_s=clock.monotonic() + limit_s)
        except DeadlineExceeded:
            self.state.missed += 1
        else:
            self.state.missed = 0

    async def measure(self, limit_s: float) -> None:
        """Read its metrics, and adapt its limit. An engine under load may have no time for this.

        Until ``limit_s`` seconds have passed, a replica that was frozen meanwhile counts as one that answers.

        Raises:
            ModelError: the connection was refused or broke.
        """
        try:
            answer = await self.engine.pool.get(
                self._root + load.PATH, deadline_s=clock.monotonic() + limit_s
            )
        except DeadlineExceeded:
            return
        found = load.read(answer.body) if answer.status == 200 else None
        # It has no metrics that are known: it is not asked for them again.
        if found is None:
            self.has_metrics, self.state.load = False, None
            return
        self.state.load = found
        self.state.limit = routing.adapted(self.state, found)

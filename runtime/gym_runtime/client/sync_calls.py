"""Calls of a `SyncClient` that last: loops over results, a standing run, a session."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping
from typing import Any, TypeVar

from gym_runtime.client.environment_session import EnvironmentSession, Observation, Said
from gym_runtime.client.loop_thread import LoopThread
from gym_runtime.client.row_sources import AnyRow
from gym_runtime.client.standing_run import StandingRun
from gym_runtime.environment.verdict import Verdict
from gym_runtime.messages.outcomes import RolloutRecord

T = TypeVar("T")
_END: Any = object()


def read(thread: LoopThread, made: AsyncGenerator[T]) -> Generator[T]:
    """What an async generator yields; leaving it early closes the other one."""

    async def following() -> T:
        return await anext(made, _END)

    try:
        while (item := thread.call(following)) is not _END:
            yield item
    finally:
        thread.finish(made.aclose)


class SyncRun:
    """`StandingRun` with methods that block; several threads may call them."""

    def __init__(self, thread: LoopThread, run: StandingRun) -> None:
        self.run = run.run
        self._thread = thread
        self._standing = run

    def rollout(self, row: AnyRow, **sampling: Any) -> RolloutRecord:
        """As `StandingRun.rollout`."""

        async def rollout() -> RolloutRecord:
            return await self._standing.rollout(row, **sampling)

        return self._thread.call(rollout)


class SyncSession:
    """`EnvironmentSession` with methods that block.

    Attributes:
        environment, tools, observation: as those of `EnvironmentSession`.
    """

    def __init__(self, thread: LoopThread, session: EnvironmentSession) -> None:
        self.environment = session.environment
        self.tools = session.tools
        self.observation = session.observation
        self._thread = thread
        self._session = session

    def call(self, name: str, arguments: str | Mapping[str, Any] = "{}") -> str:
        """As `EnvironmentSession.call`."""
        return self._thread.call(self._session.call, name, arguments)

    def step(self, response: Said) -> Observation:
        """As `EnvironmentSession.step`."""
        return self._thread.call(self._session.step, response)

    def verify(self, response: Said) -> Verdict:
        """As `EnvironmentSession.verify`."""
        return self._thread.call(self._session.verify, response)

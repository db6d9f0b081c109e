"""Tells workers which sessions are over: one message for those that end within `CLOSED_TOGETHER_S`.

A message for each session would cost a resource worker a fifth more CPU time per rollout.
"""

from __future__ import annotations

from collections.abc import Mapping

import anyio

from gym_runtime import clock
from gym_runtime.bus.interface import Bus
from gym_runtime.errors import GymError
from gym_runtime.logs import logger
from gym_runtime.messages.calls import CloseSession, Request, encode_request
from gym_runtime.messages.names import token
from gym_runtime.rpc.registry import WorkerRegistry

CLOSED_TOGETHER_S = 0.02
"""Workers are told of sessions that ended within so long in one message."""
SESSION_CLOSED_S = 60.0
"""How long the request that closes a session counts. The rollout's own deadline may have passed."""


AT_ONCE = 256
"""Sessions in one message at most."""
LAST_S = 2.0


class Closings:
    """The sessions that are over, and whose workers are still to be told. ``views`` lists these workers."""

    def __init__(self, bus: Bus, views: Mapping[str, WorkerRegistry]) -> None:
        self._bus = bus
        self._views = views
        self._waiting: dict[tuple[str, str], list[str]] = {}
        self._some = anyio.Event()
        self._running = False

    async def run(self) -> None:
        """Send until cancelled; then what waits is sent at once."""
        self._running = True
        try:
            while True:
                await self._some.wait()
                await anyio.sleep(CLOSED_TOGETHER_S)
                await self._send()
        finally:
            self._running = False
            with anyio.move_on_after(LAST_S, shield=True):
                await self._send()

    async def add(self, environment: str, worker: str, session: str) -> None:
        """Tell a worker that a session is over, without waiting for an answer."""
        if not self._running or not self._views["resource"].closes_many(worker):
            return await self._tell(environment, worker, [session])
        waiting = self._waiting.setdefault((environment, worker), [])
        waiting.append(session)
        self._some.set()
        return None

    async def _send(self) -> None:
        self._some = anyio.Event()
        for place, sessions in list(self._waiting.items()):
            while told := sessions[:AT_ONCE]:
                try:
                    await self._tell(*place, told)
                except GymError as error:
                    logger().info(
                        "sessions were not closed; their time limit will close them", error=str(error)
                    )
                # Only now: where the telling was cancelled, they are told of again.
                del sessions[: len(told)]
            del self._waiting[place]

    async def _tell(self, environment: str, worker: str, sessions: list[str]) -> None:
        first, *more = sessions
        request = Request(
            body=CloseSession(session=first, more=more),
            deadline_s=clock.monotonic() + SESSION_CLOSED_S,  # not the rollouts', which may have passed
        )
        subject = f"resource.{token(environment, 'environment')}.{token(worker, 'worker')}"
        await self._bus.publish(subject, encode_request(request))

"""How a resource worker learns which sessions are over: several in one message, without an answer."""

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
"""Sessions that end within this time are closed with one message. A message for each of them would cost a
resource worker a fifth more CPU time per rollout."""
CLOSED_AT_ONCE = 256
"""The most sessions in one such message."""
SESSION_CLOSED_S = 60.0
"""How long such a message is valid."""
CLOSED_LAST_S = 2.0
"""How long a stopping router may take to send the last such messages."""


class Closings:
    """Tells workers which sessions are over; ``views`` lists the workers."""

    def __init__(self, bus: Bus, views: Mapping[str, WorkerRegistry]) -> None:
        self._bus = bus
        self._views = views
        self._waiting: dict[tuple[str, str], list[str]] = {}
        self._some = anyio.Event()
        self._running = False

    async def run(self) -> None:
        """Send until cancelled, then send the waiting messages at once."""
        self._running = True
        try:
            while True:
                await self._some.wait()
                await anyio.sleep(CLOSED_TOGETHER_S)
                await self._send()
        finally:
            self._running = False
            with anyio.move_on_after(CLOSED_LAST_S, shield=True):
                await self._send()

    async def add(self, environment: str, worker: str, session: str) -> None:
        heartbeat = self._views["resource"].get(worker)
        if not self._running or heartbeat is None or not heartbeat.closes_many:
            return await self._tell(environment, worker, [session])
        waiting = self._waiting.setdefault((environment, worker), [])
        waiting.append(session)
        self._some.set()
        return None

    async def _send(self) -> None:
        self._some = anyio.Event()
        for place, sessions in list(self._waiting.items()):
            while told := sessions[:CLOSED_AT_ONCE]:
                try:
                    await self._tell(*place, told)
                except GymError as error:
                    logger().info(
                        "sessions were not closed; their time limit will close them", error=str(error)
                    )
                # Removed only now: if sending was cancelled, the sessions are sent again.
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

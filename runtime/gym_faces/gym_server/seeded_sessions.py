"""The sessions that ``/seed_session`` opens: each is known by a cookie, and ends with its verdict.

A cookie is a secret that cannot be guessed. The verdict is kept for a while after the session has ended, so
that a client that lost its connection gets the same one when it asks again.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from secrets import token_urlsafe

import anyio
import msgspec
from gym_runtime import clock
from gym_runtime.client import Client, EnvironmentSession
from gym_runtime.errors import Busy, SessionLost, TaskError
from gym_runtime.timing import RUN_KEPT_S

from gym_faces.gym_server.answers import Answer
from gym_faces.gym_server.served_environments import Asked

SEEDED_SWEPT_S = 15.0
"""How often expired sessions are released."""

COOKIE = "gym_session"
MOST = 65_536


class SeededSession(msgspec.Struct, eq=False):
    """A session and its cookie.

    Attributes:
        verdict: of a session that has ended, with the hash of the request for it.
        judging: the lock while it is judged, so that it is judged once.
    """

    session: EnvironmentSession
    stack: AsyncExitStack
    expires_s: float
    verdict: tuple[bytes, Answer] | None = None
    judging: anyio.Lock = msgspec.field(default_factory=anyio.Lock)


class SeededSessions:
    """All sessions of a server."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: dict[str, SeededSession] = {}

    def __len__(self) -> int:
        return len(self._known)

    async def open(self, asked: Asked) -> tuple[str, SeededSession]:
        """A new session and its cookie.

        Raises:
            GymError: as `Client.session`; or there are `MOST` already.
        """
        if len(self._known) >= MOST:
            raise Busy(f"{MOST} sessions are open; a session ends with /verify")
        async with AsyncExitStack() as stack:
            opened = self._client.session(asked.row, environment=asked.environment.name)
            session = await stack.enter_async_context(opened)
            cookie = token_urlsafe(24)
            expires_s = clock.monotonic() + asked.environment.definition.timeout_s
            seeded = self._known[cookie] = SeededSession(session, stack.pop_all(), expires_s)
        return cookie, seeded

    def get(self, cookie: str | None, environment: str | None = None) -> SeededSession:
        """
        Args:
            environment: as the request's path names it.

        Raises:
            TaskError: there is no cookie, or it is another environment's.
            SessionLost: the session has ended.
        """
        if not cookie:
            raise TaskError("there is no session: send the cookie that POST /seed_session has set")
        seeded = self._known.get(cookie)
        if seeded is None:
            raise SessionLost("the session has ended, or the server was started again: seed another one")
        if environment is not None and seeded.session.environment != environment:
            raise TaskError(f"the session is one of environment '{seeded.session.environment}'")
        return seeded

    async def end(self, seeded: SeededSession, request: bytes, answer: Answer) -> None:
        """Release a session that has its verdict."""
        seeded.verdict = request, answer
        seeded.expires_s = clock.monotonic() + RUN_KEPT_S
        await seeded.stack.aclose()

    async def sweep(self) -> None:
        """Release expired sessions, until cancelled; then release all."""
        try:
            while True:
                await anyio.sleep(SEEDED_SWEPT_S)
                now_s = clock.monotonic()
                await self._release([name for name, one in self._known.items() if one.expires_s < now_s])
        finally:
            with anyio.CancelScope(shield=True):  # each release has a limit
                await self._release(list(self._known))

    async def _release(self, cookies: list[str]) -> None:
        async with anyio.create_task_group() as tasks:
            for cookie in cookies:
                tasks.start_soon(self._known.pop(cookie).stack.aclose)

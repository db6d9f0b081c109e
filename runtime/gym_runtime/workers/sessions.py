"""A resource worker's sessions: opened by their first call, executing each call once, always closed.

A repeated call (same key) gets the first one's answer, also while the first one is still running. A session
is closed when its rollout closes it, when its worker finds that its rollout is over
(`ResourceWorker.close_settled`), or when its worker stops.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio
from msgspec import Raw

from gym_runtime import clock
from gym_runtime.environment.resource import close_session, releases
from gym_runtime.environment.roles import RoleLog
from gym_runtime.environment.shapes import Session
from gym_runtime.errors import GymError, SessionLost
from gym_runtime.logs import logger

# A later attempt repeats only the calls since the last recorded turn, which are far fewer.
REMEMBERED_ANSWERS = 256


class _Answer:
    """The answer to one key, or the call in progress."""

    def __init__(self) -> None:
        self.over = False
        self.body: Raw | None = None
        self.error: GymError | None = None
        self._waited_for: anyio.Event | None = None  # made when needed: nearly no call is repeated

    async def wait(self) -> None:
        """Return when the call is over."""
        if not self.over:
            self._waited_for = self._waited_for or anyio.Event()
            await self._waited_for.wait()

    def end(self) -> None:
        """The call is over."""
        self.over = True
        if self._waited_for is not None:
            self._waited_for.set()


class HeldSession:
    """One session and its answers.

    Attributes:
        row: its task's row, where judging needs it again.
        calls: how many calls are in progress, also those that wait for the answer to an equal one.
        working: how many of them are executed.
        used_s: when the last call began.
        rollout: the rollout that owns it; empty if its calls do not say.
        known: some call has been answered, so its rollout knows where the session is.
        asked: the answers of models in roles to its calls.
    """

    def __init__(self, session: Session[Any], expires_s: float) -> None:
        self.session = session
        self.expires_s = expires_s
        self.row: Raw | None = None
        self.calls = self.working = 0
        self.used_s = clock.monotonic()
        self.rollout = ""
        self.known = False
        self.asked = RoleLog()
        self._answers: dict[str, _Answer] = {}
        self._half_done = set[str]()

    async def once(self, key: str, work: Callable[[], Awaitable[Raw]], *, again: bool = True) -> Raw:
        """Do the work of a key, or return the earlier answer to this key.

        Without a key nothing is remembered. A retryable failure is not remembered either, so that a retry
        does the work again.

        Args:
            again: work that was cancelled in its middle may be done again.

        Raises:
            SessionLost: it may not, and was cancelled: the session's state is unknown.
        """
        if not key:
            return await work()
        known = self._answers.get(key)
        # A loop: if the first call fails and may be retried, one of the waiting calls does the work.
        while known is not None:
            await known.wait()
            if known.error is not None:
                raise known.error
            if known.body is not None:
                return known.body
            known = self._answers.get(key)
        if key in self._half_done:
            raise SessionLost(
                "a call was cancelled in its middle, and its effect is unknown", stage="resource"
            )
        answer = self._answers[key] = _Answer()
        try:
            answer.body = await work()
            return answer.body
        except Exception as error:
            answer.body = None
            if isinstance(error, GymError) and not error.retryable:
                answer.error = error
            raise
        except anyio.get_cancelled_exc_class():
            if answer.body is None and not again:
                self._half_done.add(key)
            raise
        finally:
            # Retryable, cancelled before `note`, or a bug: the key is free again.
            if answer.body is None and answer.error is None:
                del self._answers[key]
            answer.end()
            self._forget_oldest()

    def note(self, key: str, body: Raw) -> None:
        """The work of a key has had its effect: if it is cancelled from here on, this is its answer."""
        if key:
            self._answers[key].body = body

    def _forget_oldest(self) -> None:
        if len(self._answers) > REMEMBERED_ANSWERS:
            # Never a call in progress: its repetition would do the work a second time.
            finished = (key for key, answer in self._answers.items() if answer.over)
            self._answers.pop(next(finished, ""), None)


class Sessions:
    """The sessions of one worker, by id."""

    def __init__(self) -> None:
        self._entries: dict[str, HeldSession] = {}
        self._opening: dict[str, anyio.Event] = {}
        self._empty = anyio.Event()

    def __len__(self) -> int:
        return len(self._entries)

    async def get(
        self, name: str, expires_s: float, opener: Callable[[], Awaitable[Session[Any]]] | None
    ) -> HeldSession:
        """A session; opened now if this call carries the task and no earlier call has opened it.

        Raises:
            SessionLost: it is not on this worker and this call does not open it.
        """
        # A loop: if the opening failed, another call that waited may have begun one.
        while name in self._opening:
            await self._opening[name].wait()
        entry = self._entries.get(name)
        if entry is not None:
            return entry
        if opener is None:
            raise SessionLost(f"session {name} is not on this worker", stage="resource")
        opened = self._opening[name] = anyio.Event()
        try:
            entry = self._entries[name] = HeldSession(await opener(), expires_s)
            return entry
        finally:
            del self._opening[name]
            opened.set()

    async def close_each(self, names: Sequence[str]) -> None:
        """End sessions; unknown ones are closed already."""
        slow: list[str] = []
        for name in names:
            entry = self._entries.get(name)
            if name in self._opening or (entry is not None and releases(entry.session)):
                slow.append(name)
            else:
                await self.close(name)
        # Few have anything to release, and a task costs as much as closing ten of the others.
        if slow:
            async with anyio.create_task_group() as tasks:
                for name in slow:
                    tasks.start_soon(self.close, name)

    async def close(self, name: str) -> None:
        """End one session, as `close_each` does."""
        # Wait for an opening session first, or it would stay open for ever.
        while name in self._opening:
            await self._opening[name].wait()
        entry = self._entries.pop(name, None)
        if entry is not None:
            await _close(name, entry.session)
        if not self._entries:
            self._empty.set()

    def idle(self, idle_s: float) -> list[tuple[str, HeldSession]]:
        """The sessions without a call for ``idle_s`` seconds, or without one and with no time left."""
        now_s = clock.monotonic()
        return [
            (name, entry)
            for name, entry in self._entries.items()
            if not entry.calls and (entry.used_s <= now_s - idle_s or entry.expires_s < now_s)
        ]

    async def emptied(self) -> None:
        """Return when no session is open."""
        while self._entries:
            self._empty = anyio.Event()
            await self._empty.wait()

    async def close_all_of(self, rollout: str) -> None:
        """Close the sessions that the attempts of a rollout left open."""
        # Session names begin with their rollout's id; the dot keeps rollout 1 from 10.
        await self.close_each([name for name in self._entries if name.startswith(f"{rollout}.")])

    async def close_all(self) -> None:
        """End every session; part of a worker's shutdown."""
        await self.close_each(list(self._entries))


async def _close(name: str, session: Session[Any]) -> None:
    try:
        await close_session(session)
    # The session is over either way; the others must be closed, too.
    except GymError:
        logger().exception("a session's close() raised", session=name)

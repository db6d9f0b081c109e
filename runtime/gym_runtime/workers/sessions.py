"""A resource worker's sessions: opened by their first call, executing each call once, always closed.

A repeated call (same key) gets the first one's answer, also while the first one is still running. A session
is closed when its rollout closes it, `SESSION_KEPT_S` after its rollout's deadline, or when its worker stops.
A rollout's deadline moves while it is paused or waits for an engine with room, so that is asked first.
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
from gym_runtime.timing import SESSIONS_SWEPT_S

# A later attempt repeats only the calls since the last recorded turn, which are far fewer.
REMEMBERED_ANSWERS = 256
LOOKED_AGAIN_S = 60.0
"""How long a session is kept whose rollout goes on after its first deadline, until that is asked again."""


class _Answer:
    """The answer to one key, or the call in progress."""

    def __init__(self) -> None:
        self.done = False
        self.body: Raw | None = None
        self.error: GymError | None = None
        self._waited_for: anyio.Event | None = None  # made when needed: nearly no call is repeated

    async def wait(self) -> None:
        """Return when the call is over."""
        if not self.done:
            self._waited_for = self._waited_for or anyio.Event()
            await self._waited_for.wait()

    def end(self) -> None:
        """The call is over."""
        self.done = True
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
            finished = (key for key, answer in self._answers.items() if answer.done)
            oldest = next(finished, None)
            if oldest is not None:
                del self._answers[oldest]


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
        # Few sessions have anything to release, and a task costs as much as closing ten of the others.
        slow = [name for name in names if not self._dropped(name)]
        if slow:
            async with anyio.create_task_group() as tasks:
                for name in slow:
                    tasks.start_soon(self.close, name)

    def _dropped(self, name: str) -> bool:
        """End a session that has nothing to release; False if ending it takes longer."""
        entry = self._entries.get(name)
        if name in self._opening or (entry is not None and releases(entry.session)):
            return False
        self._entries.pop(name, None)
        if not self._entries:
            self._empty.set()
        return True

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

    def idle(self, idle_s: float) -> list[tuple[str, str]]:
        """The sessions without a call for ``idle_s`` seconds, with their rollouts; the longest idle first."""
        before_s = clock.monotonic() - idle_s
        idle = [
            (entry.used_s, name, entry.rollout)
            for name, entry in self._entries.items()
            # A session without a rollout has no record to look up; only its time limit ends it.
            if entry.rollout and not entry.calls and entry.used_s <= before_s
        ]
        return [(name, rollout) for _, name, rollout in sorted(idle)]

    async def emptied(self) -> None:
        """Return when no session is open."""
        while self._entries:
            self._empty = anyio.Event()
            await self._empty.wait()

    async def sweep(self, goes_on: Callable[[str], Awaitable[bool]] | None = None) -> None:
        """Close sessions whose rollout's deadline has passed, until cancelled.

        Args:
            goes_on: whether a rollout is still in progress; then its session is kept.
        """
        while True:
            await anyio.sleep(SESSIONS_SWEPT_S)
            now_s = clock.monotonic()
            overdue: list[str] = []
            for name, entry in list(self._entries.items()):
                if entry.expires_s >= now_s:
                    continue
                if goes_on is not None and entry.rollout and await goes_on(entry.rollout):
                    entry.expires_s = now_s + LOOKED_AGAIN_S
                else:
                    overdue.append(name)
            for name in overdue:
                logger().warning("a session outlived its rollout and is closed", session=name)
            await self.close_each(overdue)

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

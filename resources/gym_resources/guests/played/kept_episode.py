"""The worker's side of a guest whose rollouts have a process each, which stays while the model thinks.

The process runs in the sandbox, without a network. It asks one question at a time, and goes on with the
answer. If it is lost, so is the session.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, ClassVar

import anyio
from anyio import CapacityLimiter
from anyio.lowlevel import RunVar
from gym_runtime import Episode, Reply, ResourceError, SessionLost, Step, Task, TaskError, Verdict
from gym_runtime.errors import UNREADABLE
from gym_sandbox import Limits, Sandbox, Script
from gym_sandbox.frames import decoded
from gym_sandbox.processes import Child, EndOfProcess
from gym_sandbox.readable_files import import_path
from msgspec import Raw

from gym_resources.guests.played.kept_messages import End, Question, Said, decode_said, encode
from gym_resources.guests.played.played_episode import after_last_step

KEPT_AT_MOST = 64
"""Processes of one worker; further sessions wait until their deadline."""
MAX_BYTES = 32 * 2**20
WORDS_S, WORDS_CHARS = 20.0, 500
"""Of a process that ends before it has said anything."""
_kept: RunVar[CapacityLimiter] = RunVar("gym_kept_processes")


class KeptEpisode(Episode[Task]):
    """A rollout of a guest.

    Attributes:
        program: what is started; it gets `start` and the row in its first frame. A script is imported once
            in each worker, and its processes share that memory.
        start: what the user has named.
        readable: the files and folders that the user has named.
        asks: which of our roles stands for each of the guest's.
    """

    program: ClassVar[tuple[str, ...] | Script]
    start: ClassVar[Any]
    readable: ClassVar[tuple[str, ...]] = ()
    asks: ClassVar[Mapping[str, str]] = {}
    _child: Child | None = None
    _heard = False
    _seen: list[dict[str, Any]] = []  # noqa: RUF012 - replaced, never changed
    _offered: frozenset[str] = frozenset()
    _end: End | None = None

    async def open(self) -> None:
        self._stack = AsyncExitStack()
        try:
            limiter = _limiter()
            await limiter.acquire_on_behalf_of(self)
            self._stack.callback(limiter.release_on_behalf_of, self)
            folders = (*filter(os.path.exists, import_path()), sys.prefix, *self.readable)
            self._sandbox = Sandbox(Limits(memory_bytes=4 << 30), folders=folders)
            await self._stack.enter_async_context(self._sandbox)
            self._child = await self._stack.enter_async_context(self._sandbox.start(self.program))
        except BaseException:
            await self._stack.aclose()
            raise

    async def close(self) -> None:
        await self._stack.aclose()

    async def reset(self) -> list[dict[str, Any]]:
        said = await self._ask(encode({"start": self.start, "row": Raw(self.row)}))
        if isinstance(said, End):
            raise TaskError(said.problem or "the task ends before it has asked the model anything")
        self.offered_tools = self._new_tools(said)
        self._seen = said.items
        return said.items

    async def step(self, reply: Reply) -> Step:
        said = await self._ask(bytes(reply.raw))
        if isinstance(said, End):
            self._end = said
            return Step(terminated=not said.limit, truncated=bool(said.limit))
        # The conversation so far, and the reply as the guest repeats it: one message, then the calls.
        calls = len(reply.function_calls)
        before = len(self._seen) + calls + (bool(reply.all_text) or not calls)
        if len(said.items) <= before or said.items[: len(self._seen)] != self._seen:
            raise ResourceError(
                "the task's solver asks in a conversation that does not continue the one before: only "
                "solvers that go on in one conversation can be played"
            )
        self._seen = said.items
        return Step(observation=said.items[before:], tools=self._new_tools(said))

    async def verify(self, reply: Reply) -> Verdict:
        if self._end is None:
            # A limit has ended the rollout: the guest scores what is there, an answer cut short included.
            said = await self._ask(after_last_step(reply) or b"null")
            if not isinstance(said, End):
                said = await self._ask(b"null")
            if not isinstance(said, End):
                raise ResourceError("the task asks the model although the rollout is over")
            self._end = said
        end = self._end
        if end.problem:
            raise ResourceError(end.problem, stage="verify")
        return Verdict(end.reward, components=end.components, fields=end.fields)

    def _new_tools(self, said: Question) -> list[dict[str, Any]]:
        new = [one for one in said.tools if one["name"] not in self._offered]
        self._offered |= {one["name"] for one in new}
        return new

    async def _ask(self, frame: bytes) -> Said:
        """What the process says next to the policy, or its end; models in roles are asked meanwhile."""
        while True:
            said = await self._exchange(frame)
            if isinstance(said, End) or not said.role:
                return said
            role = self.asks.get(said.role, "")
            model = self.models.get(role) if role else None
            if model is None:
                how = (
                    "--judge PROVIDER/NAME"
                    if role == "judge"
                    else f"--role {role or said.role}=PROVIDER/NAME"
                )
                raise ResourceError(
                    f"the task asks a model in the role '{said.role}', and none is given: {how}", stage=role
                )
            more = {"tools": said.tools} if said.tools else {}
            answer = await model.ask(said.items, system="", whole=role == "judge", **more)
            frame = bytes(answer.raw)

    async def _exchange(self, frame: bytes) -> Said:
        assert self._child is not None
        try:
            await self._child.send(frame)
            said = decoded(decode_said, await self._child.receive(MAX_BYTES))
            self._heard = True
            return said
        except EndOfProcess as error:
            if not self._heard and (words := await self._last_words(frame)):
                raise ResourceError(f"the rollout's process does not start: {words}") from error
            raise SessionLost(f"the rollout's process has ended: {error}") from error
        except UNREADABLE as error:
            raise ResourceError(f"the rollout's process said what is no message: {error}") from error

    async def _last_words(self, frame: bytes) -> str:
        """Why it does not start, in its own words: it is run once more, as they were not read.

        Empty if it starts then, because something else has ended it.
        """
        sent = len(frame).to_bytes(8, "big") + frame
        ended = await self._sandbox.run(self.program, stdin=sent, timeout_s=WORDS_S)
        words = "" if ended.stdout else ended.stderr.decode(errors="replace").strip()
        return words.rpartition("\n")[2][-WORDS_CHARS:]


def _limiter() -> CapacityLimiter:
    try:
        return _kept.get()
    except LookupError:
        _kept.set(limiter := anyio.CapacityLimiter(KEPT_AT_MOST))
        return limiter

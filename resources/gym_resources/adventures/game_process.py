"""The worker's side of a game: its process in the sandbox, and the command that an answer means."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import TracebackType

import msgspec
from gym_runtime import ResourceError, SessionLost
from gym_runtime.errors import UNREADABLE
from gym_sandbox import Limits, Sandbox
from gym_sandbox.processes import Child, EndOfProcess
from gym_sandbox.readable_files import import_path

from gym_resources.adventures.game_play import Game, Scene
from gym_resources.judging.thoughts import without_thoughts

PROGRAM = [sys.executable, "-m", "gym_resources.adventures.game_play"]
MAX_BYTES, MOST_CHARACTERS = 1 << 20, 200
_decode = msgspec.json.Decoder(Scene).decode


class GameProcess:
    """A game that is being played; entered, it has begun.

    Args:
        folders: what it may read besides Python's own.

    Attributes:
        first: what the player sees at the beginning.
    """

    first: Scene
    _child: Child

    def __init__(self, game: Game, folders: Sequence[str]) -> None:
        self._game, self._folders = game, folders
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> GameProcess:
        folders = (*filter(os.path.exists, import_path()), sys.prefix, *self._folders)
        async with AsyncExitStack() as stack:
            sandbox = Sandbox(Limits(memory_bytes=2 << 30, reserves=True), folders=folders)
            await stack.enter_async_context(sandbox)
            self._child = await stack.enter_async_context(sandbox.start(PROGRAM))
            self.first = await self._ask(msgspec.json.encode(self._game))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def play(self, command: str) -> Scene:
        """What a command leads to.

        Raises:
            SessionLost: the process has ended.
            ResourceError: the game failed.
        """
        return await self._ask(msgspec.json.encode(command))

    async def _ask(self, frame: bytes) -> Scene:
        try:
            await self._child.send(frame)
            scene = _decode(await self._child.receive(MAX_BYTES))
        except EndOfProcess as error:
            raise SessionLost(f"the game's process has ended: {error}") from error
        except UNREADABLE as error:
            raise ResourceError(f"the game's process said what is no scene: {error}") from error
        if scene.problem:
            raise ResourceError(f"the game failed: {scene.problem}")
        return scene


def command(text: str) -> str:
    """The command of an answer: its last line that says something, without marks around it.

    >>> command("I need light.\\n> `take lamp`")
    'take lamp'
    """
    lines = (line.strip(" \t`>*'\"") for line in reversed(without_thoughts(text).splitlines()))
    return next(filter(None, lines), "")[:MOST_CHARACTERS]

"""Small environments of each shape."""

from __future__ import annotations

from typing import Literal

import anyio
import msgspec
from gym_runtime import Session, Task, Text, ToolError, tool
from gym_runtime.environment.verdict import make_response

ROW = b'{"responses_create_params": {"input": "hi"}, "goal": 2}'


SILENCE = make_response()


class GoalTask(Task):
    goal: int
    hint: str = ""


class Place(msgspec.Struct):
    city: str
    country: str = "PT"


class Desk(Session[Task]):
    @tool
    def add(self, left: int, right: int = 1) -> dict[str, int]:
        """Add two numbers.

        More that the model does not see.
        """
        return {"sum": left + right}

    @tool
    async def travel(self, to: Place, how: Literal["train", "boat"]) -> Place:
        await anyio.lowlevel.checkpoint()
        return to

    @tool
    def text(self) -> Text:
        return Text('as "it" is')

    @tool
    def nothing(self) -> None: ...

    @tool
    def scold(self) -> str:
        raise ToolError("you may not do that")

    @tool
    def crash(self) -> str:
        raise RuntimeError("a bug")

    @tool
    def unspeakable(self) -> object:
        return object()

    def helper(self) -> str:
        return "no tool"

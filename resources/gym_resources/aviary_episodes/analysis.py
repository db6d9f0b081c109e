"""What environments share whose model analyses a capsule's data with a notebook's kernel, step by step.

The calls of an answer are executed one after another, up to the one that submits. What was submitted is read
from the transcript, which says all that a verdict needs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

import msgspec
from gym_runtime import Episode, Reply, Step, Task
from gym_runtime.environment import collect_tools
from gym_runtime.errors import UNREADABLE
from gym_runtime.messages import FunctionCall

from gym_resources.aviary_episodes.notebook_kernel import Kernel

NO_CALL = "Your answer has no call of a tool. Call one to go on; to finish, call {finish}."

T = TypeVar("T", bound=Task)
S = TypeVar("S")


class Analysis(Episode[T], ABC):
    """An episode whose tools are its methods.

    Attributes:
        finish: the name of the tool that submits.
        finished: it was called.
    """

    judged_by_transcript = True
    finish: ClassVar[str]
    finished: bool = False

    @abstractmethod
    def capsule(self) -> Path:
        """The folder with the data."""

    def observation(self) -> str | None:
        """What the model reads after each step, besides what the tools answer."""
        return None

    async def open(self) -> None:
        self.kernel = Kernel(self.capsule())
        self.tools = _tools(type(self))

    async def step(self, reply: Reply) -> Step:
        if not reply.function_calls:
            return Step(observation=NO_CALL.replace("{finish}", self.finish))
        outputs: dict[str, str] = {}
        for call in reply.function_calls:
            outputs[call.call_id] = await self._answer(call)
            if self.finished:
                return Step(tool_outputs=outputs, terminated=True)
        return Step(tool_outputs=outputs, observation=self.observation())

    async def _answer(self, call: FunctionCall) -> str:
        tool = self.tools.get(call.name)
        if tool is None:
            return f"There is no tool '{call.name[:100]}'. There are: {', '.join(self.tools)}."
        return cast("str", await tool.call(self, call.arguments))  # these tools return no images

    async def close(self) -> None:
        await self.kernel.close()


_tools = cache(collect_tools)


def answered(reply: Reply) -> Iterator[tuple[FunctionCall, str]]:
    """The calls of a transcript that were executed, with what was answered."""
    outputs: dict[str, Any] = {output.call_id: output.output for output in reply.tool_outputs}
    for call in reply.function_calls:
        answer = outputs.get(call.call_id)
        if isinstance(answer, str):
            yield call, answer


def arguments(call: FunctionCall, kind: type[S]) -> S | None:
    """The arguments of a call, as its tool reads them; None if it does not take them."""
    try:
        return msgspec.json.decode(call.arguments, type=kind, strict=False)
    except UNREADABLE:
        return None

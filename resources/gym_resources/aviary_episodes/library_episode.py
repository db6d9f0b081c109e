"""An environment of the library as an episode: its tools, observations and step rewards.

The tools come from the library when the episode starts. The calls of an answer are one step, up to the first
one that submits: the library would add up what several submissions are worth. A call whose arguments are not
a JSON object, or do not fit the tool, counts as a call of the tool ``INVALID``, as arguments that cannot be
parsed do in the library; it never breaks the environment. After an answer without a call the observation asks
for one; the reward stays as it was.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import anyio.to_thread
import msgspec
from gym_runtime import Episode, Reply, Step, Task, TaskError
from gym_runtime.errors import UNREADABLE
from gym_runtime.messages import FunctionCall

if TYPE_CHECKING:
    from aviary.core import Environment, Message, Tool, ToolCall

T = TypeVar("T", bound=Task)
E = TypeVar("E", covariant=True)
SUBMIT = "submit_answer"
_reading = threading.Lock()
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


class AviaryEpisode(Episode[T], ABC):
    """Plays the environment that `make` returns."""

    environment: Environment[Any]

    @abstractmethod
    def make(self) -> Environment[Any]:
        """The library's environment for the task. Runs in a thread: it may import, read and download.

        Raises:
            TaskError: the task does not exist.
        """

    async def open(self) -> None:
        self.environment = await anyio.to_thread.run_sync(self.make, abandon_on_cancel=True)

    async def reset(self) -> list[dict[str, Any]]:
        messages, tools = await self.environment.reset()
        self.offered_tools = [definition(tool) for tool in tools]
        return [_item(message) for message in messages]

    async def step(self, reply: Reply) -> Step:
        from aviary.core import ToolResponseMessage

        messages, reward, done, truncated = await self.environment.step(self._action(reply))
        answers = {
            message.tool_call_id: message.content
            for message in messages
            if isinstance(message, ToolResponseMessage)
        }
        calls = [call.call_id for call in reply.function_calls]
        return Step(
            tool_outputs={call_id: answers[call_id] for call_id in calls if call_id in answers},
            observation=[_item(message) for message in messages if message.role != "tool"],
            reward=float(reward),
            terminated=done,
            truncated=truncated,
        )

    def _action(self, reply: Reply) -> Message:
        from aviary.core import Message, ToolRequestMessage

        if not reply.function_calls:
            return Message(role="assistant", content=reply.text)
        takes = {tool.info.name: tool for tool in self.environment.tools}
        calls = [_call(call, takes.get(call.name)) for call in _first_submission(reply.function_calls)]
        return ToolRequestMessage(content=reply.text or None, tool_calls=calls)


def _first_submission(calls: list[FunctionCall]) -> list[FunctionCall]:
    """The calls up to the first one that submits an answer."""
    place = next((n for n, call in enumerate(calls, 1) if call.name == SUBMIT), len(calls))
    return calls[:place]


def _call(call: FunctionCall, tool: Tool | None) -> ToolCall:
    from aviary.core import INVALID_TOOL_NAME, ToolCall, ToolCallFunction

    arguments = None if tool is None else _arguments(call.arguments, tool)
    function = (
        ToolCallFunction(name=INVALID_TOOL_NAME if tool else call.name, arguments={})
        if arguments is None
        else ToolCallFunction(name=call.name, arguments=arguments)
    )
    return ToolCall(id=call.call_id, function=function)


def _arguments(text: str, tool: Tool) -> dict[str, Any] | None:
    """The arguments of a call, numbers as texts (every tool here takes texts); None if they do not fit."""
    try:
        given = _decode_object(text)
    except UNREADABLE:
        return None
    parameters = tool.info.parameters
    known, required = (parameters.properties, parameters.required) if parameters else ({}, [])
    if not set(required) <= set(given) <= set(known):
        return None
    if not all(isinstance(value, str | int | float) for value in given.values()):
        return None
    return {name: str(value) for name, value in given.items()}


class Dataset(Protocol[E]):
    """A data set of the library."""

    def __len__(self) -> int: ...
    def get_new_env_by_idx(self, idx: int) -> E: ...


def chosen(dataset: Callable[[str], Dataset[E]], split: str, index: int) -> E:
    """The environment of a task; the data set is read once, also where many sessions open together.

    Raises:
        TaskError: the data set has no such task.
    """
    with _reading:
        tasks = dataset(split)
    if index >= len(tasks):
        raise TaskError(f"task_idx is {index}; '{split}' has {len(tasks)} tasks, from 0 on")
    return tasks.get_new_env_by_idx(index)


def definition(tool: Tool) -> dict[str, Any]:
    """A tool of the library as a Responses API function tool."""
    return {"type": "function", **tool.info.model_dump(exclude_none=True), "strict": False}


def _item(message: Message) -> dict[str, Any]:
    return {"role": message.role, "content": message.content or ""}

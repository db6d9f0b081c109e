"""An environment of OpenEnv behind a server: ``openenv:http://HOST:PORT``.

A rollout is one connection to the server's ``/ws``: ``reset`` with the row's ``reset`` (such as a seed), a
``step`` for each action. The model acts by calling a function: those of an environment that offers tools over
MCP, else one function, ``act``, whose parameters are the environment's action. Where an action is one text,
the model's plain answer is that text. The reward is the sum of the steps' rewards; an episode that the server
ends without any has failed. One that the model leaves, by an answer that is no action, has those so far.

Rows without a file are seeds: ``--limit N`` gives 0 to N-1. With ``?split=NAME`` they are the tasks of that
split, by the server's Task API: a reset with the split and the task's number, and a digest of the task. The
server keeps the state, so a rollout whose connection is lost starts again. A server that has no free session
is asked again until the deadline.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from gym_runtime import Environment, Episode, Reply, ResourceError, Step, Task, UsageError, Verdict
from gym_runtime.errors import UNREADABLE
from gym_runtime.messages import FunctionCall

from gym_resources.guests.played import named_code
from gym_resources.open_env.openenv_connection import Connection, InvalidAction, Seen
from gym_resources.open_env.task_list import tasks

ACT = "act"
_MCP = frozenset({"Action", "CallToolAction", "ListToolsAction"})
"""The titles of the schemas of environments that offer tools over MCP."""
_NOT_SHOWN = frozenset({"metadata", "reward", "done"})
"""The fields that every observation of OpenEnv has beside the environment's own."""
_encode = msgspec.json.Encoder().encode


class OpenEnvTask(Task):
    """A row; ``reset`` is what the environment's reset gets, such as ``{"seed": 1}``."""

    reset: dict[str, Any] = {}  # noqa: RUF012 - a msgspec field, copied for each


class _Offered(msgspec.Struct):
    name: str
    description: str | None = None
    input_schema: dict[str, Any] | None = None


class _Tools(msgspec.Struct):
    tools: list[_Offered]


class OpenEnvEpisode(Episode[OpenEnvTask]):
    """An episode of the environment at `url`."""

    url = ""

    async def open(self) -> None:
        self._rewarded = self._ended = False
        self._connection = Connection(self.url)
        self._schema = await self._connection.action_schema()
        self._tools_only = str(self._schema.get("title", "")) in _MCP

    async def close(self) -> None:
        await self._connection.close()

    async def reset(self) -> str:
        seen = await self._connection.reset(self.task.reset)
        if self._tools_only:
            self.offered_tools = await self._listed()
        else:
            said = self._schema.get("description") or "Act in the environment."
            self.offered_tools = [_function(ACT, str(said), _parameters(self._schema))]
        return _text(seen.observation)

    async def step(self, reply: Reply) -> Step:
        outputs: dict[str, str] = {}
        results: list[Seen] = []
        for call in reply.function_calls:
            if results and results[-1].done:
                outputs[call.call_id] = "The episode has ended."
                continue
            try:
                result = await self._connection.step(self._called(call))
            except InvalidAction as error:
                outputs[call.call_id] = str(error)
            else:
                outputs[call.call_id] = _text(result.observation)
                results.append(result)
        observation = None
        if not reply.function_calls:
            action = self._said(reply.all_text.strip())
            if action is None:
                return self._step([], outputs, None, over=True)
            try:
                results.append(await self._connection.step(action))
                observation = _text(results[-1].observation)
            except InvalidAction as error:
                observation = str(error)
        return self._step(results, outputs, observation, over=bool(results and results[-1].done))

    async def verify(self, reply: Reply) -> Verdict:
        if self._ended and not self._rewarded:
            raise ResourceError(f"{self.url} gave no reward in an episode that has ended")
        return Verdict(self.total_reward)

    def _step(
        self, results: list[Seen], outputs: dict[str, str], observation: str | None, *, over: bool
    ) -> Step:
        rewards = [float(one.reward) for one in results if one.reward is not None]
        self._rewarded = self._rewarded or bool(rewards)
        self._ended = bool(results and results[-1].done)
        return Step(
            observation=None if over else observation,
            reward=sum(rewards),
            terminated=over,
            tool_outputs=outputs,
        )

    def _called(self, call: FunctionCall) -> dict[str, Any]:
        """The action of a function call."""
        try:
            arguments = msgspec.json.decode(call.arguments or "{}", type=dict[str, Any])
        except UNREADABLE as error:
            raise InvalidAction(f"the arguments are not a JSON object: {error}") from error
        if self._tools_only:
            return {"type": "call_tool", "tool_name": call.name, "arguments": arguments}
        if call.name != ACT:
            raise InvalidAction(f"there is no function '{call.name}'; call '{ACT}'")
        return arguments

    def _said(self, text: str) -> dict[str, Any] | None:
        """The action of a plain answer; None for any other answer."""
        required: list[str] = self._schema.get("required") or []
        if not text or self._tools_only:
            return None
        if len(required) == 1 and self._schema["properties"].get(required[0], {}).get("type") == "string":
            return {required[0]: text}
        try:
            return msgspec.json.decode(text, type=dict[str, Any])
        except UNREADABLE:
            return None

    async def _listed(self) -> list[dict[str, Any]]:
        """The tools that the environment offers over MCP."""
        seen = await self._connection.step({"type": "list_tools"})
        try:
            offered = msgspec.convert(seen.observation, _Tools).tools
        except msgspec.ValidationError as error:
            raise ResourceError(f"{self.url} lists no tools: {error}") from error
        return [_function(one.name, one.description or "", one.input_schema or {}) for one in offered]


def _parameters(schema: dict[str, Any]) -> dict[str, Any]:
    """An action's schema without the field that every action has."""
    properties = {name: value for name, value in schema.get("properties", {}).items() if name != "metadata"}
    return {**schema, "properties": properties}


def _function(name: str, description: str, parameters: dict[str, Any]) -> dict[str, Any]:
    said = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", **said, "strict": False}


def _text(observation: dict[str, Any]) -> str:
    """What the model reads: the fields that the environment declares, without OpenEnv's own.

    Since 0.4 servers put ``metadata`` among them, which is for the trainer and may hold the answer.
    """
    return _encode({name: value for name, value in observation.items() if name not in _NOT_SHOWN}).decode()


def _split_rows(url: str, split: str, size: int | None, seed: int) -> Iterator[dict[str, Any]]:
    for number, digest in tasks(url, split, seed, size):
        # With the digest a run is not resumed on other tasks.
        reset = {"split": split, "index": number}
        yield {"responses_create_params": {"input": []}, "reset": reset, "openenv_task": digest}


def _rows(size: int | None, seed: int) -> Iterator[dict[str, Any]]:
    if size is None:
        raise UsageError(
            "an environment of OpenEnv has no rows of its own but seeds: --limit N, or --input FILE; "
            "or ?split=NAME, if its server has tasks"
        )
    for number in range(seed, seed + size):
        yield {"responses_create_params": {"input": []}, "reset": {"seed": number}}


def environment(address: str) -> Environment:
    """The environment behind an address, which is asked when its first session opens.

    Raises:
        UsageError: it is no address.
    """
    form = "openenv:http://HOST:PORT or …?split=NAME"
    parts = named_code.http(address, form)
    settings = dict(parse_qsl(parts.query, keep_blank_values=True))
    split = settings.pop("split", "")
    if settings or parts.fragment:
        raise UsageError(f"openenv:{address} is not of the form {form}")
    url = address.partition("?")[0].rstrip("/")
    return Environment(
        resource=type("OpenEnvEpisode", (OpenEnvEpisode,), {"url": url}),
        description=f"The environment of OpenEnv at {url}",
        replayable=False,
        generate=partial(_split_rows, url, split) if split else _rows,
    )

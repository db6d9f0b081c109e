# verifiers is not there where types are checked, since it needs more than all other packages together.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false
"""The conversation of a seat of verifiers' in the fork: ask, run the tools, ask again.

It stands for verifiers' harness ``null`` and its interception server. What they check between two turns (the
limits, ``@stop``, ``@intercept``) is asked of verifiers' own `RolloutSession`; its `Rollout` prepares, ends
and scores.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import verifiers.v1 as vf
from gym_runtime import ResourceError
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from verifiers.v1 import graph
from verifiers.v1.harnesses.null.harness import NullHarness, NullHarnessConfig
from verifiers.v1.harnesses.utils.compaction import bound_tool_message
from verifiers.v1.harnesses.utils.mcp import mcp_content_to_chat_content

from gym_resources.guests.played import verifiers_items as items
from gym_resources.guests.played.fork_messages import POLICY, Asked
from gym_resources.guests.played.script import Script


class LocalInterception:
    """Stands for verifiers' interception server: it keeps the sessions of rollouts, and listens nowhere."""

    def __init__(self) -> None:
        self.sessions: dict[str, Any] = {}

    @asynccontextmanager
    async def acquire(self, session: Any) -> AsyncGenerator[tuple[str, str, str]]:
        self.sessions[session.trace.id] = session
        yield "http://127.0.0.1:9", "", ""


@asynccontextmanager
async def no_servers(*_: object, **__: object) -> AsyncGenerator[dict[str, str]]:
    """Instead of ``serve_tools``: the tools run in this process."""
    yield {}


class Tools:
    """The tools of some toolsets, in this process, on one rollout's state."""

    def __init__(self) -> None:
        self.offered: list[Any] = []
        self._servers: dict[str, tuple[Any, str]] = {}

    async def add(self, toolset: Any, trace: Any, task: Any = None) -> None:
        """Set a toolset up as its server would."""
        if toolset.config.url:
            raise ResourceError(f"toolset {type(toolset).__name__} is at a URL, and guests have no network")
        toolset._with_state = lambda tool: tool  # no other process has the state, so none is asked for it
        toolset._inert_state = trace.state
        await toolset.setup()
        if task is not None:
            await toolset.setup_task(task)
        prefix = f"{toolset.server_name}_" if toolset.server_name else ""
        server = MCPServer(toolset.server_name or type(toolset).__name__)
        toolset.register(server)
        for tool in await server.list_tools():
            name = f"{prefix}{tool.name}"
            if name in self._servers:
                raise ResourceError(f"two toolsets have a tool '{name}'")
            self._servers[name] = (server, tool.name)
            said = tool.description or ""
            self.offered.append(vf.Tool(name=name, description=said, parameters=tool.input_schema))

    async def call(self, call: Any) -> str:
        """What the model reads; also if the call is wrong or the tool raised."""
        try:
            arguments = json.loads(call.arguments or "{}")
        except (ValueError, RecursionError) as error:
            return f"error: invalid JSON in tool arguments ({error}); resend the call with valid JSON"
        if not isinstance(arguments, dict):
            return "error: tool arguments must be a JSON object; resend as an object"
        if call.name not in self._servers:
            return f"error: unknown tool {call.name!r}"
        server, name = self._servers[call.name]
        try:
            result = await server.call_tool(name, arguments)
        except ToolError as error:
            return str(error)
        return items.text_of(mcp_content_to_chat_content(result.content))


class Loop(NullHarness):
    """The harness of all seats: it hands each rollout a `Conversation`.

    Args:
        role: who answers.
        task: the row's, which has tools; tasks that the environment makes have none.
        shared: makes the toolsets that all tasks share.
    """

    def __init__(
        self,
        script: Script,
        interception: LocalInterception,
        role: str,
        task: Any,
        shared: Callable[[], list[Any]],
    ) -> None:
        super().__init__(NullHarnessConfig(id="null"))
        self.script, self.interception = script, interception
        self.role, self.task, self.shared = role, task, shared
        self.conversations = 0

    async def setup(self, runtime: Any) -> None:
        """Nothing has to be installed."""

    async def session(
        self,
        ctx: Any,
        trace: Any,
        runtime: Any,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: Any,
        tool_interception_url: str | None = None,
    ) -> Conversation:
        self.conversations += 1
        if self.role == POLICY and self.conversations > 1:
            raise ResourceError("the environment has the policy play more than one conversation in a rollout")
        tools = Tools()
        if isinstance(trace.task.data, type(self.task.data)):  # else a task that the environment has made
            for toolset in self.shared():
                await tools.add(toolset, trace)
            for toolset in type(self.task).toolsets(self.task.config):
                await tools.add(toolset, trace, trace.task.data)
        return Conversation(self, trace, data, tools)


class Conversation:
    """One seat's conversation; a segment ends with an answer without tool calls."""

    def __init__(self, loop: Loop, trace: Any, data: Any, tools: Tools) -> None:
        self._loop, self._trace, self._data, self._tools = loop, trace, data, tools
        self._session = loop.interception.sessions[trace.id]
        self._messages: list[Any] = []
        self._told = 0

    async def turn(self, messages: Sequence[Any] | None = None) -> None:
        """Run one segment; verifiers calls it."""
        if not self._messages and self._data.system_prompt is not None:
            self._messages.append(vf.SystemMessage(content=self._data.system_prompt))
        if messages is None:
            prompt = self._data.prompt
            messages = [vf.UserMessage(content=prompt)] if isinstance(prompt, str) else prompt
        self._messages += messages or ()
        while (message := await self._sample()) is not None:
            self._messages.append(message)
            for call in message.tool_calls or ():
                self._messages.append(await self._result(call))
            if not message.tool_calls:
                return

    async def _result(self, call: Any) -> Any:
        session = self._session
        content = None
        if session.request_interceptors or session.request_stops:
            decision = await session.decide_tool(call.id, call.name, call.arguments)
            if decision["action"] == "deny":
                content = decision["message"]["content"]
        if content is None:
            content = await self._tools.call(call)
        bounded = bound_tool_message({"role": "tool", "tool_call_id": call.id, "content": content})
        return vf.ToolMessage.model_validate(bounded)

    async def _sample(self) -> Any | None:
        """The next answer; None if verifiers refuses the turn or no answer comes."""
        session, trace, tools = self._session, self._trace, self._tools.offered
        if await session.refused() is not None:
            return None
        request = vf.Request(messages=list(self._messages), tools=tools or None)
        request, records, stopped = await session.rewrite_request(request)
        trace.request_rewrites.extend(records)
        turn = graph.prepare_turn(trace, request.messages, request.tools)
        if stopped is None:
            if session.on_turn_input is not None:
                acknowledge, session.on_turn_input = session.on_turn_input, None
                acknowledge()
            response = self._answer(request)
            stopped = "max_turns" if response is None else None
        else:
            response = None
        if response is None:
            turn.commit_prompt()
            trace.stop(stopped)
            return None
        response, records, stopped = await session.rewrite_response(response)
        node = turn.commit(response)
        session.consume_prepared(turn.tail)
        trace.response_rewrites.extend(records)
        now = time.time()
        span = vf.TimeSpan(start=now, end=now)
        trace.calls.append(vf.ModelCall(node=node, finish_reason=response.finish_reason, time=span))
        stopped = stopped or await session.gate_tool_calls(node)
        if stopped is not None:
            trace.stop(stopped)
            return None
        return response.message

    def _answer(self, request: Any) -> Any | None:
        """What the policy or the model in the seat's role answers to a request."""
        policy = self._loop.role == POLICY
        new = request.messages[self._told :] if policy else request.messages
        self._told = len(request.messages) + 1  # the answer itself is nothing new
        tools = [items.tool(one) for one in request.tools or ()]
        reply = self._loop.script.answer(Asked(role=self._loop.role, items=items.of(new), tools=tools))
        return None if reply is None else items.response(reply)

    async def steer(self, message: str, *, message_id: str | None = None) -> dict[str, Any]:
        """No message can reach a turn that runs."""
        return {"outcome": "promptRequired", "reason": "noRunningTurn"}

    async def close(self) -> None:
        """Nothing is held."""

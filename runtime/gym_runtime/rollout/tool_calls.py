"""Tool calls, executed by the worker of the session: in order, or at once where the environment allows it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal

import anyio
import msgspec
from msgspec import Raw

from gym_runtime import tracing
from gym_runtime.environment.tools import NOT_FOUND, SERVER_ERROR, VALIDATION
from gym_runtime.errors import UNREADABLE, leaf
from gym_runtime.messages import calls
from gym_runtime.messages.responses import NULL, FunctionCall
from gym_runtime.rollout.remote_session import RemoteSession

ToolFailure = Literal["arguments", "exception", "timeout", "unknown_tool"]

# A name is what a model wrote, of any length.
NAME_CHARS = 100
_NOT_JSON = "Invalid tool call arguments: "
_GAVE_UP = " did not answer within "
_decode_any = msgspec.json.Decoder().decode


class ToolCalls:
    """Executes the tool calls of one session.

    Args:
        parallel: the calls of one turn run at once.

    Attributes:
        begun: how many so far, also those that failed.
    """

    def __init__(self, session: RemoteSession, *, parallel: bool) -> None:
        self.begun = 0
        self._session = session
        self._parallel = parallel

    async def execute(
        self, function_calls: Sequence[FunctionCall], limit_s: float | None = None
    ) -> list[str]:
        """The calls' outputs, in the calls' order; of a call that failed, the error as the model is told it.

        A call that takes longer than ``limit_s`` seconds is given up.

        Raises:
            SessionLost: the worker that holds the session is gone.
        """
        # Places are filled by index: parallel calls end in any order.
        outputs = [""] * len(function_calls)

        async def one(index: int) -> None:
            outputs[index] = await self._execute(function_calls[index], limit_s)

        if self._parallel and len(function_calls) > 1:
            if not self._session.worker:
                # Else each of the first calls would carry the task, and open a session on another worker.
                await self._session.ask(calls.OpenSession())
            try:
                async with anyio.create_task_group() as tasks:
                    for index in range(len(function_calls)):
                        tasks.start_soon(one, index)
            except BaseExceptionGroup as group:
                # The caller handles single errors, as if the calls had come one after the other.
                raise leaf(group) from group
        else:
            for index in range(len(function_calls)):
                await one(index)
        return outputs

    async def _execute(self, call: FunctionCall, limit_s: float | None) -> str:
        self.begun += 1
        problem = _json_problem(call.arguments)
        if problem is not None:
            return json.dumps({"error": f"{_NOT_JSON}{problem}"})
        request = calls.CallTool(name=call.name, arguments=call.arguments)
        about = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.name,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": call.call_id,
        }
        with tracing.span(f"execute_tool {call.name[: tracing.NAME_CHARS]}", about):
            # Made before the call: the session compares the answer with it to know that the call was given
            # up.
            instead = NULL if limit_s is None else _given_up(call.name, limit_s)
            answer = await self._session.ask(request, limit_s=limit_s, instead=instead)
            return calls.decode_tool_answer(answer).output


def _given_up(name: str, limit_s: float) -> Raw:
    said = json.dumps({"error": f"The tool '{name[:NAME_CHARS]}'{_GAVE_UP}{limit_s:g} s."})
    return calls.pack(calls.ToolAnswer(output=said))


def tool_failure(output: str) -> ToolFailure | None:
    """How the call failed whose output this is, by the texts that the runtime itself writes.

    None if it did not fail, or if the tool said in its own words that it cannot do it.
    """
    if output == NOT_FOUND:
        return "unknown_tool"
    if output == SERVER_ERROR:
        return "exception"
    if output.startswith((VALIDATION, f'{{"error": "{_NOT_JSON}')):
        return "arguments"
    # Only the beginning: a tool's output may be megabytes.
    return "timeout" if output.startswith('{"error": "The tool ') and _GAVE_UP in output[:1000] else None


def _json_problem(arguments: str) -> str | None:
    """Why tool arguments are not JSON, in the words of Python's json module; None if they are."""
    try:
        _decode_any(arguments)
    # Deeply nested arguments from the model must not end the rollout.
    except UNREADABLE:
        # json is asked for its words. What only json accepts (NaN) is accepted, as NeMo Gym accepts it.
        try:
            json.loads(arguments)
        except (ValueError, RecursionError) as error:
            return str(error)
    return None

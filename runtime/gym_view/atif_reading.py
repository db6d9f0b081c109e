"""ATIF documents of any program as rows: what is read of them, what is wrong with them.

Unknown fields are ignored; wrong ones are errors that name the step. Nothing that a document names is opened.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from gym_runtime.messages import as_object

PROMPT, COMPLETION, LOG_PROBS = "prompt_token_ids", "generation_token_ids", "generation_log_probs"
"""Where a row keeps the tokens of a model call, in the call's last item."""
_STEP = re.compile(r"steps\[(\d+)\]")
_encode = msgspec.json.Encoder().encode


class BadDocument(Exception):
    """A document is not of the format; the text says where."""


class _Call(msgspec.Struct):
    tool_call_id: str
    function_name: str
    arguments: dict[str, Any] | str
    extra: dict[str, Any] | None = None


class _Source(msgspec.Struct):
    path: str


class _Part(msgspec.Struct):
    type: str
    text: str | None = None
    source: _Source | None = None


_Content = str | list[_Part] | None


class _Result(msgspec.Struct):
    source_call_id: str | None = None
    content: _Content = None


class _Observation(msgspec.Struct):
    results: list[_Result]


class _Metrics(msgspec.Struct):
    prompt_token_ids: list[int] | None = None
    completion_token_ids: list[int] | None = None
    logprobs: list[float] | None = None
    extra: dict[str, Any] | None = None


class _Step(msgspec.Struct):
    source: str
    message: str | list[_Part]
    reasoning_content: str | None = None
    tool_calls: list[_Call] | None = None
    observation: _Observation | None = None
    metrics: _Metrics | None = None
    is_copied_context: bool | None = None


class _Agent(msgspec.Struct):
    name: str
    model_name: str | None = None
    tool_definitions: list[dict[str, Any]] | None = None


class _Final(msgspec.Struct):
    total_prompt_tokens: int | None = None
    total_completion_tokens: int | None = None


class _Document(msgspec.Struct):
    agent: _Agent
    steps: list[_Step]
    schema_version: str = "ATIF-v1.8"
    trajectory_id: str | None = None
    session_id: str | None = None
    final_metrics: _Final | None = None
    extra: dict[str, Any] | None = None


def checked(document: Mapping[str, Any]) -> _Document:
    """A document that is of the format.

    Raises:
        BadDocument: it is not.
    """
    try:
        found = msgspec.convert(document, _Document)
    except msgspec.ValidationError as error:
        raise BadDocument(_with_step(str(error))) from error
    if not found.schema_version.startswith("ATIF-v1."):
        raise BadDocument(f"schema_version is '{found.schema_version:.40}'; ATIF-v1.0 to ATIF-v1.8 are known")
    if not found.steps:
        raise BadDocument("it has no steps")
    for number, step in enumerate(found.steps, 1):
        if problem := _problem(step):
            raise BadDocument(f"step {number}: {problem}")
    return found


def _with_step(said: str) -> str:
    """msgspec's words with the step's number, which counts from 1."""
    place = _STEP.search(said)
    return f"step {int(place[1]) + 1}: {said}" if place else said


def _problem(step: _Step) -> str:
    metrics, calls = step.metrics or _Metrics(), step.tool_calls or []
    completion, logs = metrics.completion_token_ids, metrics.logprobs
    if step.source != "agent" and (calls or step.metrics or step.reasoning_content):
        return f"calls, metrics and reasoning are an agent's, and the source is '{step.source:.40}'"
    if logs is not None and completion is not None and len(logs) != len(completion):
        return f"there are {len(logs)} logprobs of {len(completion)} completion_token_ids"
    if any(not math.isfinite(one) for one in logs or ()):
        return "a logprob is no finite number"
    names = {call.tool_call_id for call in calls}
    for result in step.observation.results if step.observation else ():
        if result.source_call_id is not None and result.source_call_id not in names:
            return (
                f"an observation answers the call '{result.source_call_id:.80}', which the step does not have"
            )
    return ""


def read(document: Mapping[str, Any]) -> dict[str, Any]:
    """A document as a row, by its steps.

    Raises:
        BadDocument: it is not of the format.
    """
    found = checked(document)
    given: list[dict[str, Any]] = []
    output: list[dict[str, Any]] = []
    for number, step in enumerate(found.steps, 1):
        if step.source == "agent" and not step.is_copied_context:
            output += _items(step, number)
        else:  # before the agent's first step it is what the agent was given
            (output or given).extend(_items(step, number))
    gym = as_object((found.extra or {}).get("gym"))
    usage = found.final_metrics or _Final()
    name = found.trajectory_id or found.session_id or "trajectory"
    params: dict[str, Any] = {"input": given}
    if found.agent.tool_definitions:
        params["tools"] = [_function(one) for one in found.agent.tool_definitions]
    response: dict[str, Any] = {
        "id": name,
        "created_at": 0,
        "model": found.agent.model_name or "",
        "object": "response",
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    counts = usage.total_prompt_tokens, usage.total_completion_tokens
    if None not in counts:
        names = ("input_tokens", "output_tokens")
        response["usage"] = dict(zip(names, counts, strict=True))
    row: dict[str, Any] = {"responses_create_params": params, "response": response}
    reward = gym.get("reward")
    if isinstance(reward, int | float) and not isinstance(reward, bool) and math.isfinite(reward):
        row["reward"] = reward
    if isinstance(gym.get("environment"), str):
        row["agent_ref"] = {"name": gym["environment"]}
    return row


def _items(step: _Step, number: int) -> Iterator[dict[str, Any]]:
    if step.source != "agent":
        role = "system" if step.source == "system" else "user"
        yield {"type": "message", "role": role, "content": _parts(step.message)}
        yield from _results(step)
        return
    items: list[dict[str, Any]] = []
    if step.reasoning_content:
        thought = {"type": "summary_text", "text": step.reasoning_content}
        items.append({"type": "reasoning", "id": f"rs_{number}", "summary": [thought]})
    calls = step.tool_calls or []
    if step.message or not (calls or items):
        said = step.message if isinstance(step.message, str) else "".join(p.text or "" for p in step.message)
        part = {"type": "output_text", "text": said, "annotations": list[Any]()}
        about = {"id": f"msg_{number}", "type": "message", "role": "assistant", "status": "completed"}
        items.append({**about, "content": [part]})
    for call in calls:
        raw = (call.extra or {}).get("raw_arguments")
        text = call.arguments if isinstance(call.arguments, str) else _encode(call.arguments).decode()
        about = {"type": "function_call", "call_id": call.tool_call_id, "name": call.function_name}
        items.append({**about, "arguments": raw if isinstance(raw, str) else text})
    metrics = step.metrics
    if metrics and metrics.completion_token_ids is not None and not step.is_copied_context:
        values = metrics.prompt_token_ids, metrics.completion_token_ids, metrics.logprobs
        names = zip((PROMPT, COMPLETION, LOG_PROBS), values, strict=True)
        items[-1] |= {name: value for name, value in names if value is not None}
    yield from items
    yield from _results(step)


def _results(step: _Step) -> Iterator[dict[str, Any]]:
    for result in step.observation.results if step.observation else ():
        content = _parts(result.content or "")
        if result.source_call_id is None:
            yield {"type": "message", "role": "user", "content": content}
        else:
            yield {"type": "function_call_output", "call_id": result.source_call_id, "output": content}


def _parts(content: str | list[_Part]) -> Any:
    """A text, or input parts; a medium other than an image is its path, as text. Nothing is read."""
    if isinstance(content, str):
        return content
    found: list[dict[str, Any]] = []
    for part in content:
        if part.type == "image" and part.source:
            found.append({"type": "input_image", "image_url": part.source.path, "detail": "auto"})
        else:
            text = (
                part.text if part.text is not None else f"[{part.type}: {part.source and part.source.path}]"
            )
            found.append({"type": "input_text", "text": text})
    return found


def _function(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = as_object(tool.get("function"))
    return (
        {"type": "function", **function, "strict": bool(function.get("strict"))} if function else dict(tool)
    )

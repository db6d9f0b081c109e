"""The Responses API: requests and answers pass nearly unchanged; streams are made of whole answers.

The gateway stores no responses, so it refuses a request that refers to an earlier one. Tools in namespaces
get longer names (`namespaces`). An engine may leave out hosted tools that it does not have. Source:
OpenAI's API reference, "Create a model response" and "Streaming events".
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Annotated, Any
from uuid import uuid4

import msgspec
from gym_runtime.errors import UNREADABLE, TaskError
from gym_runtime.messages.calls import HOSTED_TOOLS, OPTIONAL, ModelCall
from gym_runtime.messages.responses import (
    FunctionCall,
    OtherItem,
    Response,
    decode_item,
    decode_response,
    user_message,
)
from msgspec import Meta, Raw

from gym_faces.gateway import openai_errors, tool_namespaces
from gym_faces.gateway.dialect import (
    MAX_ITEMS,
    ApiDialect,
    Asked,
    Fields,
    Kind,
    Problem,
    encode,
    event,
    side_channel,
)

_SAME = (
    *("include", "instructions", "max_output_tokens", "max_tool_calls", "parallel_tool_calls", "reasoning"),
    *("safety_identifier", "prompt_cache_key", "service_tier", "store", "temperature", "text", "tool_choice"),
    *("top_logprobs", "top_p", "truncation", "user"),
)
_NOT_STORED = "responses are not stored here; send the whole conversation as 'input'"
_REFUSED = {
    "previous_response_id": _NOT_STORED,
    "conversation": _NOT_STORED,
    "prompt": "prompt templates are not stored here; send their text",
}

# A failed response has one of a few codes. ``invalid_prompt`` tells a client that a retry would not help.
_CODES: dict[Kind, str] = {"invalid": "invalid_prompt", "rate_limit": "rate_limit_exceeded"}


class _Tool(msgspec.Struct):
    type: str


_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_items = msgspec.json.Decoder(list[Raw]).decode
_decode_tool = msgspec.json.Decoder(_Tool).decode


def read(body: bytes) -> Asked:
    """A body of ``POST /responses``.

    Raises:
        TaskError: it is invalid, or has a field that cannot be carried; the message names the field.
    """
    fields = Fields(body)
    fields.refuse(_REFUSED)
    if fields.take("background", bool, False):
        raise TaskError("background: answers are given at once or as a stream")
    model = fields.take("model", str, "")
    stream = fields.take("stream", bool, False)
    # Taken out, because engines refuse what they do not know.
    fields.take("stream_options", dict[str, Any])
    fields.take("client_metadata", dict[str, Any])  # Codex sends it, different in each turn
    said: str | list[Raw] = fields.require("input", str | Annotated[list[Raw], Meta(max_length=MAX_ITEMS)])
    items = [user_message(said)] if isinstance(said, str) else said
    for place, raw in enumerate(items):
        try:
            match decode_item(raw):
                case OtherItem(type="item_reference"):
                    raise TaskError(_NOT_STORED)
                case FunctionCall():
                    items[place] = tool_namespaces.flat_call(raw)
                case _:
                    pass
        except (TaskError, *UNREADABLE) as error:
            raise TaskError(f"input[{place}]: {error}") from error
    metadata: dict[str, str] = fields.take("metadata", dict[str, str], {})
    params = fields.take_raw(*_SAME)
    names: tool_namespaces.Names = {}
    if (tools := fields.take("tools", list[Raw])) is not None:
        params["tools"], names = _tools(tools)
        if any(_decode_tool(tool).type != "function" for tool in params["tools"]):
            metadata = {HOSTED_TOOLS: OPTIONAL, **metadata}
    params |= side_channel(metadata, fields.rest())
    call = ModelCall(params=Raw(encode(params)), input=items)
    return Asked(call=call, model=model, stream=stream, namespaces=names)


def _tools(tools: list[Raw]) -> tuple[list[Raw], tool_namespaces.Names]:
    try:
        return tool_namespaces.flatten(tools)
    except UNREADABLE as error:
        raise TaskError(f"tools: {error}") from error


def answer(raw: Raw, asked: Asked) -> bytes:
    """A response object with all fields: the model's, else the request's, else defaults."""
    return encode(_fields(raw, asked))


def events(raw: Raw, asked: Asked) -> Iterator[bytes]:
    """The response as a stream: start events, each item in pieces, and an end event."""
    fields = _fields(raw, asked)
    output: list[dict[str, Any]] = msgspec.json.decode(fields["output"])
    # The items of the last event must have the ids of the events before it.
    fields["output"] = Raw(encode(output := [_with_id(one) for one in output]))
    numbers = itertools.count()

    def say(name: str, /, **more: Any) -> bytes:
        return event({"type": name, "sequence_number": next(numbers), **more}, name)

    nothing: dict[str, Any] = {"output": [], "usage": None, "incomplete_details": None}
    begun = {**fields, **nothing, "status": "in_progress"}
    yield say("response.created", response=begun)
    yield say("response.in_progress", response=begun)
    for index, one in enumerate(output):
        yield say("response.output_item.added", output_index=index, item=_begun(one))
        for name, more in _pieces(one):
            yield say(f"response.{name}", item_id=one["id"], output_index=index, **more)
        yield say("response.output_item.done", output_index=index, item=one)
    incomplete = decode_response(raw).status == "incomplete"
    yield say("response.incomplete" if incomplete else "response.completed", response=fields)


def error_event(problem: Problem) -> bytes:
    """A failed response, which ends the stream.

    Clients expect a response's first event before all others, and some do not know the ``error`` event.
    """
    begun = Response(id=f"resp_{uuid4().hex}", created_at=int(time.time()), status="in_progress")
    said = {"code": _CODES.get(problem.kind, "server_error"), "message": problem.message}
    failed = msgspec.structs.replace(begun, status="failed", error=Raw(encode(said)))
    stages = (("response.created", begun), ("response.failed", failed))
    return b"".join(
        event({"type": name, "sequence_number": number, "response": response}, name)
        for number, (name, response) in enumerate(stages)
    )


def _fields(raw: Raw, asked: Asked) -> dict[str, Any]:
    given = {name: value for name, value in _decode_fields(raw).items() if bytes(value) != b"null"}
    usual = Response(id=f"resp_{uuid4().hex}", created_at=time.time(), model=asked.model)
    fields: dict[str, Any] = {**_decode_fields(encode(usual)), **_decode_fields(asked.call.params), **given}
    fields.pop("input", None)
    if asked.namespaces:
        fields["output"] = Raw(
            encode(tool_namespaces.named(_decode_items(fields["output"]), asked.namespaces))
        )
    fields["created_at"] = int(float(bytes(encode(fields["created_at"]))))
    return fields


def _with_id(one: dict[str, Any]) -> dict[str, Any]:
    return one if one.get("id") else {**one, "id": f"item_{uuid4().hex}"}


def _begun(one: dict[str, Any]) -> dict[str, Any]:
    """An item before its first piece."""
    empty: dict[str, Any] = {"status": "in_progress"}
    match one.get("type", "message"):
        case "message":
            empty |= {"type": "message", "content": []}
        case "function_call":
            empty["arguments"] = ""
        case "reasoning":
            empty |= {"summary": [], **({"content": []} if one.get("content") else {})}
        case _:
            return one
    return {**one, **empty}


def _pieces(one: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The events between an item's beginning and its end."""
    match one.get("type", "message"):
        case "message":
            for index, part in enumerate(_parts(one["content"])):
                yield from _content_part(index, part)
        case "function_call":
            yield "function_call_arguments.delta", {"delta": one["arguments"]}
            yield "function_call_arguments.done", {"name": one["name"], "arguments": one["arguments"]}
        case "reasoning":
            for index, part in enumerate(one.get("summary") or ()):
                place = {"summary_index": index}
                yield "reasoning_summary_part.added", {**place, "part": {**part, "text": ""}}
                yield "reasoning_summary_text.delta", {**place, "delta": part["text"]}
                yield "reasoning_summary_text.done", {**place, "text": part["text"]}
                yield "reasoning_summary_part.done", {**place, "part": part}
            for index, part in enumerate(one.get("content") or ()):
                yield from _content_part(index, part)
        case _:
            return


def _content_part(index: int, part: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    field = "refusal" if part["type"] == "refusal" else "text"
    said, place = part.get(field) or "", {"content_index": index}
    more: dict[str, Any] = {"logprobs": part.get("logprobs") or []} if part["type"] == "output_text" else {}
    unsaid: dict[str, Any] = {field: "", **({"logprobs": []} if part.get("logprobs") else {})}
    yield "content_part.added", {**place, "part": {**part, **unsaid}}
    yield f"{part['type']}.delta", {**place, "delta": said, **more}
    yield f"{part['type']}.done", {**place, field: said, **more}
    yield "content_part.done", {**place, "part": part}


def _parts(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    return (
        [{"type": "output_text", "text": content, "annotations": []}] if isinstance(content, str) else content
    )


RESPONSES = ApiDialect(
    name="responses",
    path="/v1/responses",
    read=read,
    answer=answer,
    events=events,
    error=openai_errors.error,
    error_event=error_event,
)

"""The Responses API, in which this project keeps conversations: requests and answers pass nearly unchanged.

Items keep their bytes. For clients, streams are made of whole answers; responses are not stored, so a request
that refers to an earlier one is refused. An engine may leave out hosted tools that it does not have. To
engines, what is the same for every turn of a rollout (sampling settings, tools) is built once and cached.
Source: OpenAI's API reference, "Create a model response", "Streaming events" and "Namespace tools".

Engines do not support tools in namespaces, in which a harness groups its tools (Codex: its sub-agents, each
MCP server). They become functions with longer names, ``NAMESPACE__NAME``, and back in the answer, because the
harness finds the tool by both of its names.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Annotated, Any
from uuid import uuid4

import msgspec
from gym_runtime.adapters import ModelCall
from gym_runtime.errors import UNREADABLE, TaskError
from gym_runtime.messages import (
    HOSTED_TOOLS,
    OPTIONAL,
    UNFINISHED,
    FunctionCall,
    IncompleteDetails,
    OtherItem,
    Response,
    Usage,
    decode_item,
    decode_response,
    user_message,
)
from msgspec import Meta, Raw

from gym_faces.dialects import computer_items, side_channel
from gym_faces.dialects.dialect import (
    MAX_ITEMS,
    ApiDialect,
    Asked,
    FailedAnswer,
    Fields,
    ForeignAnswer,
    Kind,
    Problem,
    check_text,
    event,
    openai_error,
)
from gym_faces.dialects.pieces import decode_fields, decode_text, encode, finite, identity, is_null, present

PATH = "/responses"
_REPEATED = (
    *("instructions", "max_output_tokens", "max_tool_calls", "parallel_tool_calls", "reasoning"),
    *("safety_identifier", "prompt_cache_key", "service_tier", "store", "temperature", "text", "tool_choice"),
    *("top_logprobs", "top_p", "truncation", "user"),
)
"""Fields of a request that pass unchanged, and that its response repeats."""
# What the runtime decides, whatever a row says.
_OURS = ("input", "model", "stream", "background")
_NOT_STORED = "responses are not stored here; send the whole conversation as 'input'"
_REFERENCE = "responses are not stored here; with 'store' false a client sends items, not references to them"
_REFUSED = {
    "previous_response_id": _NOT_STORED,
    "conversation": _NOT_STORED,
    "prompt": "prompt templates are not stored here; send their text",
}
# A failed response has one of a few codes. ``invalid_prompt`` tells a client that a retry would not help.
_CODES: dict[Kind, str] = {
    "invalid": "invalid_prompt",
    "overflow": "context_length_exceeded",
    "rate_limit": "rate_limit_exceeded",
}
_JOINT = "__"
_Names = Mapping[str, tuple[str, str]]


class _Tool(msgspec.Struct):
    type: str
    name: str = ""
    description: str | None = None
    tools: list[dict[str, Any]] = []


class _Head(msgspec.Struct):
    type: str = ""
    name: str = ""
    id: Any = None


class _Lenient(msgspec.Struct):
    """An answer whose lesser fields may have any type; some engines' do."""

    output: list[Raw]
    id: Any = None
    created_at: Any = None
    model: Any = None
    status: Any = None
    incomplete_details: Any = None
    usage: Any = None


_decode_items = msgspec.json.Decoder(list[Raw]).decode
_decode_tool = msgspec.json.Decoder(_Tool).decode
_decode_head = msgspec.json.Decoder(_Head).decode
_decode_heads = msgspec.json.Decoder(list[_Head]).decode
_decode_lenient = msgspec.json.Decoder(_Lenient).decode


# -- requests -------------------------------------------------------------------------------------------


def read_request(body: bytes) -> Asked:
    """A client's body of ``POST /responses``.

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
    items = [user_message(said)] if isinstance(said, str) else computer_items.read_items(said)
    for place, raw in enumerate(items):
        try:
            match decode_item(raw):
                case OtherItem(type="item_reference"):
                    raise TaskError(_REFERENCE)
                case FunctionCall():
                    items[place] = _without_namespace(raw)
                case _:
                    pass
        except (TaskError, *UNREADABLE) as error:
            raise TaskError(f"input[{place}]: {error}") from error
    metadata: dict[str, str] = fields.take("metadata", dict[str, str], {})
    params: dict[str, Any] = fields.take_raw("include", *_REPEATED)
    # An engine would check its type, but what reads it on the way may not meet another one.
    if "instructions" in params:
        try:
            decode_text(params["instructions"])
        except UNREADABLE as error:
            raise TaskError(f"instructions: {error}") from error
    names: _Names = {}
    native = ""
    if (tools := fields.take("tools", list[Raw])) is not None:
        try:
            params["tools"], names = _flat(tools)
            params["tools"], native = computer_items.offered(params["tools"])
        except UNREADABLE as error:
            raise TaskError(f"tools: {error}") from error
        if any(_decode_head(tool).type != "function" for tool in params["tools"]):
            metadata = {HOSTED_TOOLS: OPTIONAL, **metadata}
    if native and bytes(params.get("tool_choice", b"")).startswith(b"{"):
        params["tool_choice"] = computer_items.chosen(params["tool_choice"])
    params |= side_channel.write(metadata, fields.rest())
    call = ModelCall(params=Raw(encode(params)), input=items)
    return Asked(call=call, model=model, stream=stream, namespaces=names, computer=native)


def write_request(call: ModelCall, model: str, extra_body: bytes) -> bytes:
    """The body of ``POST /responses`` to an engine.

    The call's own parameters win over ``extra_body`` (a JSON object), its ``metadata.extra_body`` over
    both. An empty ``model`` leaves the row's own.

    Raises:
        TaskError: the row's ``metadata`` holds something other than JSON where JSON belongs, or names in
            ``extra_body`` a field that a row may not set.
    """
    return _request_head(bytes(call.params), model, extra_body) + b",".join(call.input) + b"]}"


@lru_cache(maxsize=256)
def _request_head(params: bytes, model: str, extra_body: bytes) -> bytes:
    fields = present(params)
    extra = side_channel.take(fields)
    named: dict[str, Any] = {"model": model} if model else {"model": fields.get("model")}
    for name in _OURS:
        fields.pop(name, None)
    # The object stays open: `write_request` adds the items, which differ from turn to turn.
    return encode({**named, **decode_fields(extra_body), **fields, **extra})[:-1] + b',"input":['


@lru_cache(maxsize=256)
def echo(params: bytes) -> Mapping[str, Any]:
    """The fields of a request that its response repeats, as fields of `Response`: for answers made here.

    Decoded once for all turns of a rollout, and of its group.
    """
    names = {"metadata", "tools", *_REPEATED}
    try:
        fields = present(params)
        side_channel.take(fields)
        said = decode_response(encode({name: fields[name] for name in names if name in fields}))
    except (TaskError, *UNREADABLE):  # an engine accepted this request
        return {}
    return {name: value for name, value in msgspec.structs.asdict(said).items() if name in names}


# -- answers of engines ---------------------------------------------------------------------------------


def read_answer(body: bytes) -> Raw:
    """The response object in an engine's body: the body itself if its fields have the right types.

    Raises:
        FailedAnswer: the response has the status ``failed``, or it is not at its end.
        ForeignAnswer: the body holds no response.
    """
    try:
        check_text(body)
    except UnicodeDecodeError as error:
        raise ForeignAnswer(str(error)) from error
    try:
        response = decode_response(body := finite(body))
    except UNREADABLE:
        return _repaired(body)
    # The output has a default, so that an object of another kind decodes, too.
    if not response.output and b'"output"' not in body:
        raise ForeignAnswer("no 'output'")
    if response.status in UNFINISHED:
        raise FailedAnswer
    return Raw(body)


def _repaired(body: bytes) -> Raw:
    try:
        found = _decode_lenient(body)
    except UNREADABLE as error:
        raise ForeignAnswer(str(error)) from error
    if found.status in UNFINISHED:
        raise FailedAnswer
    repaired = Response(
        id=str(found.id or f"resp_{identity()}"),
        created_at=_convert(found.created_at, float) or time.time(),
        model=str(found.model or ""),
        output=found.output,
        status=str(found.status or "completed"),
        incomplete_details=_convert(found.incomplete_details, IncompleteDetails),
        usage=_convert(found.usage, Usage),
    )
    return Raw(encode(repaired))


def _convert(value: Any, kind: type[Any]) -> Any:
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError:
        return None


def overflow(model: str, repeated: Mapping[str, Any] = MappingProxyType({})) -> Raw:
    """The answer of an engine whose context is too short for the conversation: incomplete, and empty.

    ``repeated`` is the result of `echo`.
    """
    response = Response(
        id=f"resp_{identity()}",
        created_at=float(int(time.time())),
        model=model,
        status="incomplete",
        incomplete_details=IncompleteDetails(reason="max_output_tokens"),
        usage=Usage(),
        **repeated,
    )
    return Raw(encode(response))


def is_overflow(raw: Raw) -> bool:
    """Whether an answer is that of `overflow`: an engine that answers counts the tokens that it has read."""
    if b'"incomplete"' not in bytes(raw):
        return False
    response = decode_response(raw)
    return response.status == "incomplete" and not response.output and response.usage == Usage()


# -- answers to clients ---------------------------------------------------------------------------------


def write_answer(raw: Raw, asked: Asked) -> bytes:
    """A response object with all fields: the model's, else the request's, else defaults."""
    return encode(_fields(raw, asked))


def write_events(raw: Raw, asked: Asked) -> Iterator[bytes]:
    """The response as a stream: start events, each item in pieces, and an end event."""
    fields = _fields(raw, asked)
    output: list[dict[str, Any]] = msgspec.json.decode(fields["output"])
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


def _error_event(problem: Problem) -> bytes:
    """An error and a failed response, which end the stream.

    Clients expect a response's first event before all others. `openai` raises the ``error``, which others,
    such as Codex, do not know.
    """
    begun = Response(id=f"resp_{uuid4().hex}", created_at=int(time.time()), status="in_progress")
    said = {"code": _CODES.get(problem.kind, "server_error"), "message": problem.message}
    failed = msgspec.structs.replace(begun, status="failed", error=Raw(encode(said)))
    stages: dict[str, dict[str, Any]] = {
        "response.created": {"response": begun},
        "error": decode_fields(openai_error(problem)[1]),
        "response.failed": {"response": failed},
    }
    return b"".join(
        event({"type": name, "sequence_number": number, **more}, name)
        for number, (name, more) in enumerate(stages.items())
    )


def _fields(raw: Raw, asked: Asked) -> dict[str, Any]:
    usual = Response(id=f"resp_{uuid4().hex}", created_at=time.time(), model=asked.model)
    fields: dict[str, Any] = {
        **decode_fields(encode(usual)),
        **decode_fields(asked.call.params),
        **present(raw),
    }
    fields.pop("input", None)
    if asked.namespaces:
        items = _decode_items(fields["output"])
        fields["output"] = [_with_namespace(one, asked.namespaces) for one in items]
        fields["output"] = Raw(encode(fields["output"]))
    if asked.computer:
        shown = computer_items.write_items(_decode_items(fields["output"]), asked.computer)
        fields["output"] = Raw(encode(shown))
    # Engines and scripts may leave ids out. The events of a stream need them, and Vercel's AI SDK always.
    if any(not one.id for one in _decode_heads(fields["output"])):
        output: list[dict[str, Any]] = msgspec.json.decode(fields["output"])
        output = [one if one.get("id") else {**one, "id": f"item_{uuid4().hex}"} for one in output]
        fields["output"] = Raw(encode(output))
    fields["created_at"] = int(float(bytes(encode(fields["created_at"]))))
    return fields


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
            content: str | list[dict[str, Any]] = one["content"] or ""
            if isinstance(content, str):
                content = [{"type": "output_text", "text": content, "annotations": []}]
            for index, part in enumerate(content):
                yield from _content_part(index, part)
        case "function_call":
            yield "function_call_arguments.delta", {"delta": one["arguments"]}
            yield "function_call_arguments.done", {"name": one["name"], "arguments": one["arguments"]}
        case "reasoning":
            for index, part in enumerate(one.get("summary") or ()):
                place, said = {"summary_index": index}, part.get("text") or ""
                yield "reasoning_summary_part.added", {**place, "part": {**part, "text": ""}}
                yield "reasoning_summary_text.delta", {**place, "delta": said}
                yield "reasoning_summary_text.done", {**place, "text": said}
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


# -- tools in namespaces --------------------------------------------------------------------------------


def _flat(tools: list[Raw]) -> tuple[list[Raw], _Names]:
    """Tools without namespaces, and the namespace and name of each longer name.

    A namespace's description is put before that of its first tool. Tools without a namespace keep their
    bytes.

    Raises:
        TaskError: a namespace has something else than functions, or two tools would have one name.
        msgspec.DecodeError: an element is not a tool.
    """
    flat: list[Raw] = []
    names: dict[str, tuple[str, str]] = {}
    taken: set[str] = set()

    def add(name: str, tool: Raw) -> None:
        if name in taken:
            raise TaskError(f"tools: two of them would be named '{name}'; rename one")
        # A hosted tool has no name, and there may be several.
        taken.update([name] if name else ())
        flat.append(tool)

    for raw in tools:
        tool = _decode_tool(raw)
        if tool.type != "namespace":
            add(tool.name, raw)
            continue
        for member in _members(tool):
            name = _joined(tool.name, member["name"])
            names[name] = (tool.name, member["name"])
            add(name, Raw(encode({**member, "name": name})))
    return flat, names


def _members(namespace: _Tool) -> Iterator[dict[str, Any]]:
    described = namespace.description
    for tool in namespace.tools:
        if tool.get("type") != "function" or not isinstance(tool.get("name"), str):
            raise TaskError(
                f"tools: namespace '{namespace.name}' has a tool of type '{tool.get('type')}'; "
                "only functions with a name can be carried"
            )
        if described:
            tool = {**tool, "description": "\n\n".join([described, *filter(None, [tool.get("description")])])}
            # Only before the first tool.
            described = None
        yield tool


def _without_namespace(raw: Raw) -> Raw:
    """A call with the longer name, as the model made it; calls without a namespace keep their bytes."""
    # A look at the bytes first: nearly no call has one, and decoding each would cost more.
    if b'"namespace"' not in bytes(raw):
        return raw
    fields = decode_fields(raw)
    namespace = fields.pop("namespace", Raw())
    if is_null(namespace):
        return raw
    return Raw(encode({**fields, "name": _joined(decode_text(namespace), decode_text(fields["name"]))}))


def _with_namespace(raw: Raw, names: _Names) -> Raw:
    """The model's item, a call with its namespace if it has one."""
    call = _decode_head(raw)
    if call.type != "function_call" or call.name not in names:
        return raw
    namespace, name = names[call.name]
    return Raw(encode({**decode_fields(raw), "name": name, "namespace": namespace}))


def _joined(namespace: str, name: str) -> str:
    """The longer name. Namespaces of MCP servers already end with the joint."""
    return namespace.removesuffix(_JOINT) + _JOINT + name


RESPONSES = ApiDialect(
    name="responses",
    path="/v1/responses",
    read=read_request,
    answer=write_answer,
    events=write_events,
    error=openai_error,
    error_event=_error_event,
    # As OpenAI does it: Codex recognises it only there.
    in_streams=frozenset({"overflow"}),
)

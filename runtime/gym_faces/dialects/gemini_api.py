"""Gemini's API, for clients: a request becomes a call, the model's response a candidate or events.

    ==========================================  ==================================================
    systemInstruction                           a system message
    user: text, inlineData, fileData            user messages with ``input_*`` parts
    user: functionResponse                      ``function_call_output``
    model: thought, text, functionCall          reasoning, message, ``function_call``
    ==========================================  ==================================================

The computer tool becomes the function ``computer`` and others (`gemini_computer`).

The model's name and the wish for a stream are in the path, so the gateway adds the one, and the other is a
dialect of its own. A client may leave out the ids of calls: an answer then belongs to the first open call of
its name. A response that is one text in ``output`` or ``result`` is that text, any other one is JSON.

Hints that do not change the answer (safety settings, labels, budgets of thinking, signatures) are ignored.
Settings that the Responses API lacks reach the engine through ``metadata.extra_body``. Arguments that are not
a JSON object become ``{"arguments": TEXT}``, so that the tool reports an error and the model reads it.
Source: Google's Gemini API reference, "generateContent" and "streamGenerateContent", and its client
google-genai 3.6.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from functools import partial
from typing import Annotated, Any

import msgspec
from gym_runtime.adapters import ModelCall
from gym_runtime.errors import UNREADABLE, ModelRefused, TaskError
from gym_runtime.messages import (
    FunctionCall,
    Message,
    Reasoning,
    Response,
    Usage,
    decode_items,
    decode_response,
)
from msgspec import Meta, Raw

from gym_faces.dialects import gemini_computer, gemini_engine, side_channel
from gym_faces.dialects.computer import GRID
from gym_faces.dialects.dialect import (
    ERRORS,
    MAX_ITEMS,
    ApiDialect,
    Asked,
    Count,
    Fields,
    Problem,
    assistant_message,
    counting,
    event,
    item,
    output_text,
    reasoning_item,
)
from gym_faces.dialects.gemini_names import camel, json_schema
from gym_faces.dialects.pieces import encode, identity

_HINTS = ("safetySettings", "labels", "serviceTier", "store")
_SETTING_HINTS = ("mediaResolution", "enableEnhancedCivicAnswers", "audioTimestamp")
_SETTINGS = {"temperature": "temperature", "topP": "top_p", "maxOutputTokens": "max_output_tokens"}
_EXTRA = {
    "topK": "top_k",
    "seed": "seed",
    "stopSequences": "stop",
    "presencePenalty": "presence_penalty",
    "frequencyPenalty": "frequency_penalty",
}
_STATES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
}


class _Blob(msgspec.Struct, rename="camel"):
    mime_type: str = ""
    data: str = ""
    file_uri: str = ""


class _Call(msgspec.Struct):
    name: str
    args: Raw = Raw(b"{}")
    id: str | None = None


class _Result(msgspec.Struct):
    name: str
    response: Raw = Raw(b"{}")
    id: str | None = None
    parts: list[_Part] = []


class _Part(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    text: str | None = None
    thought: bool = False
    thought_signature: str | None = None
    media_resolution: Raw = Raw()
    inline_data: _Blob | None = None
    file_data: _Blob | None = None
    function_call: _Call | None = None
    function_response: _Result | None = None


class _Content(msgspec.Struct):
    parts: Annotated[list[_Part], Meta(max_length=MAX_ITEMS)] = []
    role: str | None = None


_Contents = Annotated[list[_Content], Meta(max_length=MAX_ITEMS)]


class _Function(msgspec.Struct, rename="camel"):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    parameters_json_schema: Raw = Raw()


class _Calling(msgspec.Struct, rename="camel"):
    mode: str = "AUTO"
    allowed_function_names: list[str] = []


class _ToolConfig(msgspec.Struct, rename="camel"):
    function_calling_config: _Calling | None = None


class _Thinking(msgspec.Struct, rename="camel"):
    thinking_level: str | None = None


# -- the request ----------------------------------------------------------------------------------------


def read_request(body: bytes, *, stream: bool = False) -> Asked:
    """A body of ``POST /v1/models/NAME:generateContent``; the call's model is in the path.

    Raises:
        TaskError: it is invalid, or has a field that cannot be carried; the message names the field.
    """
    fields = Fields(camel(body))
    tools: list[dict[str, Raw]] = fields.take("tools", list[dict[str, Raw]], [])
    offered, native = gemini_computer.offered(tools)
    params: dict[str, Any] = {}
    if tools:
        params["tools"] = [*offered, *(_tool(one) for tool in tools for one in _functions(tool))]
    conversation = _Conversation(native)
    if (system := fields.take("systemInstruction", _Content)) is not None:
        text = "\n\n".join(_text(part, "systemInstruction") for part in system.parts)
        conversation.items.append(item(role="system", content=text))
    for place, content in enumerate(fields.require("contents", _Contents)):
        try:
            conversation.add(content)
        except TaskError as error:
            raise TaskError(f"contents.{place}.{error}") from error
        if len(conversation.items) > MAX_ITEMS:
            raise TaskError(f"contents.{place}: the parts so far are more than {MAX_ITEMS} items")
    if (config := fields.take("toolConfig", _ToolConfig)) is not None and config.function_calling_config:
        params |= _choice(config.function_calling_config, native)
    if (settings := fields.take("generationConfig", Raw)) is not None:
        params |= _settings(bytes(settings))
    # Taken out and dropped, so that what is left is what cannot be carried.
    fields.take_raw(*_HINTS)
    _refuse_rest(fields)
    call = ModelCall(params=Raw(encode(params)), input=conversation.items)
    return Asked(call=call, model="", stream=stream, computer=gemini_computer.TOOL if native else "")


def read_count(body: bytes) -> Asked:
    """A body of ``POST /v1/models/NAME:countTokens``: the contents, or the request whose tokens are meant.

    Raises:
        TaskError: as `read_request`.
    """
    fields = Fields(camel(body))
    whole: dict[str, Raw] | None = fields.take("generateContentRequest", dict[str, Raw])
    given = {name: raw for name, raw in (whole or fields.rest()).items() if name != "model"}
    asked = read_request(encode(given))
    return msgspec.structs.replace(asked, call=counting(asked.call))


def write_count(raw: Raw) -> bytes:
    """The answer to it."""
    usage = decode_response(raw).usage or Usage()
    return encode({"totalTokens": usage.input_tokens})


def _refuse_rest(fields: Fields, inside: str = "") -> None:
    fields.refuse(dict.fromkeys(fields.rest(), f"this cannot be carried to the models here{inside}"))


class _Conversation:
    """Items so far, and which of their calls have no answer yet.

    Args:
        native: the functions of the computer tool, which the client offers.
    """

    def __init__(self, native: Collection[str]) -> None:
        self.items: list[Raw] = []
        self._native = native
        self._size, self._looked = GRID, 0
        self._open: dict[str, deque[str]] = {}  # the calls of each function; those answered go out late
        self._answers: set[str] = set()
        self._named = 0

    def add(self, content: _Content) -> None:
        match content.role:
            case "model":
                for part in content.parts:
                    self._said(part)
            case None | "user" | "function":
                self._told(content.parts)
            case other:
                raise TaskError(f"role: '{other}' is unknown; use user or model")

    def _said(self, part: _Part) -> None:
        match part:
            case _Part(function_call=_Call() as call):
                # Undecoded: the arguments must be the text that the model wrote.
                name, arguments = call.name, bytes(call.args).decode()
                self._named += 1
                call_id = f"call_{self._named}" if call.id is None else call.id
                self._open.setdefault(name, deque()).append(call_id)
                self._answers.discard(call_id)
                if name in self._native:
                    # Of the items since the last look only: the sum of all looks is one reading.
                    self._size = gemini_engine.shown(self.items[self._looked :], self._size)
                    self._looked = len(self.items)
                    signature = part.thought_signature
                    name, arguments = gemini_computer.read_call(name, call.args, signature, self._size)
                self.items.append(item(type="function_call", call_id=call_id, name=name, arguments=arguments))
            case _Part(thought=True):
                self.items.append(reasoning_item(part.text or ""))
            case _:
                if text := _text(part, "parts"):
                    self.items.append(assistant_message([output_text(text)]))

    def _told(self, parts: list[_Part]) -> None:
        """Each answer of a function is an item; the parts between them are the user's messages."""
        waiting: list[dict[str, Any]] = []
        for part in parts:
            if part.function_response is None:
                waiting.append(_part(part))
                continue
            if waiting:
                self.items.append(item(role="user", content=waiting))
                waiting = []
            self.items.append(self._answered(part.function_response))
        if waiting:
            self.items.append(item(role="user", content=waiting))

    def _answered(self, result: _Result) -> Raw:
        named = result.id
        if named is None:
            waiting = self._open.get(result.name, deque[str]())
            while waiting and waiting[0] in self._answers:
                waiting.popleft()
            if not waiting:
                raise TaskError(f"parts: there is no call of '{result.name}' that this answers")
            named = waiting.popleft()
        self._answers.add(named)
        text = _output(bytes(result.response))
        output = [{"type": "input_text", "text": text}, *map(_part, result.parts)] if result.parts else text
        return item(type="function_call_output", call_id=named, output=output)


def _output(response: bytes) -> str:
    try:
        said = msgspec.json.decode(response, type=dict[str, Any])
    except UNREADABLE as error:
        raise TaskError(f"parts: a response is no object: {error}") from error
    match said:
        case {"output": str(text)} | {"result": str(text)} if len(said) == 1:
            return text
        case _:
            return response.decode()


def _text(part: _Part, place: str) -> str:
    if part.text is None:
        raise TaskError(f"{place}: only text can be carried here")
    return part.text


def _part(part: _Part) -> dict[str, Any]:
    match part:
        case _Part(inline_data=_Blob(mime_type=kind, data=data)):
            # Google's clients write the alphabet of URLs, and nothing else here reads it.
            url = f"data:{kind};base64,{data.replace('-', '+').replace('_', '/')}"
        case _Part(file_data=_Blob(mime_type=kind, file_uri=url)):
            pass
        case _:
            return {"type": "input_text", "text": _text(part, "parts")}
    if kind.startswith("image/"):
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    if kind == "application/pdf" and part.inline_data is not None:
        return {"type": "input_file", "filename": "document.pdf", "file_data": url}
    raise TaskError(f"parts: data of type '{kind[:100]}' cannot be carried")


def _functions(tool: dict[str, Raw]) -> list[_Function]:
    try:
        found = msgspec.json.decode(tool.pop("functionDeclarations", Raw(b"[]")), type=list[_Function])
    except UNREADABLE as error:
        raise TaskError(f"tools: {error}") from error
    for name in tool:
        raise TaskError(f"tools: the hosted tool '{name[:100]}' is not available; declare a function")
    return found


def _tool(one: _Function) -> dict[str, Any]:
    schema: Any = one.parameters_json_schema
    if not bytes(schema):
        schema = json_schema(one.parameters or {"type": "object", "properties": {}})
    # The Responses API takes a missing `strict` for true, and Gemini has no such thing.
    tool = {"type": "function", "name": one.name, "parameters": schema, "strict": False}
    return tool if one.description is None else {**tool, "description": one.description}


def _choice(calling: _Calling, native: Collection[str]) -> dict[str, Any]:
    match calling:
        case _Calling(mode="ANY", allowed_function_names=[name]):
            return {"tool_choice": {"type": "function", "name": gemini_computer.ours(name, native)}}
        case _Calling(allowed_function_names=[_, *_]):
            raise TaskError(
                "toolConfig: allowedFunctionNames takes one name with the mode ANY; offer fewer tools"
            )
        case _Calling(mode="ANY"):
            return {"tool_choice": "required"}
        case _Calling(mode="NONE"):
            return {"tool_choice": "none"}
        # VALIDATED is AUTO with calls that fit their schemas, as those of pydantic-ai.
        case _Calling(mode="AUTO" | "VALIDATED" | "MODE_UNSPECIFIED"):
            return {"tool_choice": "auto"}
        case _:
            raise TaskError(f"toolConfig: the mode '{calling.mode[:100]}' is unknown; use AUTO, ANY or NONE")


def _settings(body: bytes) -> dict[str, Any]:
    fields = Fields(body)
    raw = fields.take_raw(*_SETTINGS, *_EXTRA)
    params: dict[str, Any] = {ours: raw[theirs] for theirs, ours in _SETTINGS.items() if theirs in raw}
    if (thinking := fields.take("thinkingConfig", _Thinking)) is not None and thinking.thinking_level:
        params["reasoning"] = {"effort": thinking.thinking_level.lower()}
    kind, form = fields.take("responseMimeType", str, "text/plain"), fields.take("responseJsonSchema", Raw)
    if (theirs := fields.take("responseSchema", dict[str, Any])) is not None:
        form = json_schema(theirs)
    if form is not None:
        params["text"] = {"format": {"type": "json_schema", "name": "answer", "schema": form, "strict": True}}
    elif kind == "application/json":
        params["text"] = {"format": {"type": "json_object"}}
    elif kind != "text/plain":
        raise TaskError(f"generationConfig.responseMimeType: '{kind[:100]}' is not available")
    if fields.take("candidateCount", int, 1) != 1:
        raise TaskError("generationConfig.candidateCount: there is one candidate; ask again for another")
    if fields.take("responseModalities", list[str], ["TEXT"]) != ["TEXT"]:
        raise TaskError("generationConfig.responseModalities: the models here answer with text")
    fields.take_raw(*_SETTING_HINTS)
    _refuse_rest(fields, " (generationConfig)")
    extra = {ours: raw[theirs] for theirs, ours in _EXTRA.items() if theirs in raw}
    return params | side_channel.write({}, extra)


# -- the answer -----------------------------------------------------------------------------------------


def write_answer(raw: Raw, asked: Asked) -> bytes:
    """A response with one candidate."""
    head, parts, end = _answer(raw, asked)
    return encode({**head, **_candidate(parts, end["finishReason"]), "usageMetadata": end["usageMetadata"]})


def write_events(raw: Raw, asked: Asked) -> Iterator[bytes]:
    """The same as a stream: each part in a response of its own, the last with why it ended and the usage."""
    head, parts, end = _answer(raw, asked)
    for part in parts[:-1]:
        yield event({**head, **_candidate([part])})
    last = {**_candidate(parts[-1:], end["finishReason"]), "usageMetadata": end["usageMetadata"]}
    yield event({**head, **last})


def _answer(raw: Raw, asked: Asked) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]:
    response = decode_response(raw)
    parts: list[dict[str, Any]] = []
    for one in decode_items(response.output):
        match one:
            case Reasoning():
                if one.text:
                    parts.append({"text": one.text, "thought": True})
            case Message():
                if text := one.text or "".join(part.refusal or "" for part in one.parts):
                    parts.append({"text": text})
            case FunctionCall():
                if (part := gemini_computer.write_call(one, asked)) is None:
                    called = {"id": one.call_id, "name": one.name, "args": _arguments(one.arguments)}
                    part = {"functionCall": called}
                parts.append(part)
            case _:
                raise ModelRefused(f"Gemini's API cannot carry the model's {type(one).__name__}")
    head = {"modelVersion": response.model or asked.model, "responseId": identity()}
    return (
        head,
        parts,
        {"finishReason": _reason(response), "usageMetadata": _usage(response.usage or Usage())},
    )


def _candidate(parts: list[dict[str, Any]], reason: str = "") -> dict[str, Any]:
    said: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    return {"candidates": [{**said, "finishReason": reason} if reason else said]}


def _arguments(text: str) -> Raw | dict[str, Any]:
    try:
        # Encoded here: what is just not too deep to be decoded may be too deep for the whole answer.
        return Raw(encode(msgspec.json.decode(text or "{}", type=dict[str, Any])))
    except UNREADABLE:
        return {"arguments": text}


def _reason(response: Response) -> str:
    reason = response.incomplete_details.reason if response.incomplete_details else None
    if reason == "content_filter":
        return "SAFETY"
    return "MAX_TOKENS" if reason is not None or response.status == "incomplete" else "STOP"


def _usage(usage: Usage) -> dict[str, Any]:
    thought = usage.output_tokens_details.reasoning_tokens if usage.output_tokens_details else 0
    return {
        "promptTokenCount": usage.input_tokens,
        "cachedContentTokenCount": usage.input_tokens_details.cached_tokens
        if usage.input_tokens_details
        else 0,
        # Gemini counts thinking apart, OpenAI among the output.
        "candidatesTokenCount": usage.output_tokens - thought,
        "thoughtsTokenCount": thought,
        "totalTokenCount": usage.input_tokens + usage.output_tokens,
    }


def _error(problem: Problem) -> tuple[int, bytes]:
    """Status and body of an error."""
    return ERRORS[problem.kind].status, encode(_error_body(problem))


def _error_event(problem: Problem) -> bytes:
    """An error in a stream, which then ends."""
    return event(_error_body(problem))


def _error_body(problem: Problem) -> dict[str, Any]:
    status = ERRORS[problem.kind].status
    state = _STATES.get(status, "INVALID_ARGUMENT")
    return {"error": {"code": status, "message": problem.message, "status": state}}


GEMINI = ApiDialect(
    name="gemini",
    path="/{version:v1|v1beta|v1alpha}/models/{model:.+}:generateContent",
    read=read_request,
    answer=write_answer,
    events=write_events,
    error=_error,
    error_event=_error_event,
)
GEMINI_STREAM = msgspec.structs.replace(
    GEMINI,
    path="/{version:v1|v1beta|v1alpha}/models/{model:.+}:streamGenerateContent",
    read=partial(read_request, stream=True),
    keep_alive=b"\n",
)
"""With ``alt=sse``, as all of Google's clients ask for it. They take a comment for JSON."""
GEMINI_COUNT = Count(
    path="/{version:v1|v1beta|v1alpha}/models/{model:.+}:countTokens",
    read=read_count,
    write=write_count,
    lacking="not_offered",
)

"""Gemini's ``generateContent``, for engines: a call becomes a request, the candidate the model's response.

The function ``computer`` is offered as Gemini's computer tool, whose actions are functions with places on a
grid of 0 to 999: they become pixels of the screenshot that the model saw last. A part of the model's goes
back as it was, with its signature: the item keeps it as ``native``. Where Gemini wants a confirmation, it
counts as given: what an action does happens in a sandbox. An answer with a blocked action is incomplete:
nothing of it is done. Source: Google's Gemini API reference, "generateContent", and its page "Computer Use".
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from gym_runtime.adapters import ModelCall
from gym_runtime.errors import UNREADABLE, TaskError
from gym_runtime.messages import IncompleteDetails, Response, Usage
from msgspec import Raw

from gym_faces.dialects import computer, side_channel
from gym_faces.dialects.dialect import (
    ForeignAnswer,
    assistant_message,
    check_text,
    item,
    output_text,
    reasoning_item,
)
from gym_faces.dialects.pieces import decode_fields, encode, finite, identity, present

_SETTINGS = {
    "temperature": "temperature",
    "top_p": "topP",
    "max_output_tokens": "maxOutputTokens",
}
_EXTRA = {"top_k": "topK", "seed": "seed", "stop": "stopSequences"}
_CONFIRM = "require_confirmation"
_ENDS = {"STOP": None, "MAX_TOKENS": "max_output_tokens"}


class _Part(msgspec.Struct):
    type: str = "input_text"
    text: str | None = None
    image_url: str | None = None
    file_data: str | None = None


class _Entry(msgspec.Struct):
    type: str = "message"
    role: str = ""
    content: str | list[_Part] | None = None
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    native: dict[str, Any] | None = None
    output: str | list[_Part] = ""


class _Call(msgspec.Struct):
    name: str
    args: dict[str, Any] = {}
    id: str = ""

    @property
    def decision(self) -> str:
        """What Gemini's policies say of an action."""
        match self.args.get("safety_decision"):
            case {"decision": str(decision)}:
                return decision
            case _:
                return ""


class _Piece(msgspec.Struct, rename="camel"):
    text: str = ""
    thought: bool = False
    function_call: _Call | None = None


class _Content(msgspec.Struct):
    parts: list[Raw] = []


class _Candidate(msgspec.Struct, rename="camel"):
    content: _Content = msgspec.field(default_factory=_Content)
    finish_reason: str = "STOP"


class _Counts(msgspec.Struct, rename="camel"):
    prompt_token_count: int = 0
    candidates_token_count: int = 0
    thoughts_token_count: int = 0
    cached_content_token_count: int = 0


class _Answer(msgspec.Struct, rename="camel"):
    candidates: list[_Candidate]
    usage_metadata: _Counts = msgspec.field(default_factory=_Counts)
    model_version: str = ""
    response_id: str = ""


class _Tool(msgspec.Struct):
    type: str = "function"
    name: str = ""
    description: str | None = None
    parameters: dict[str, Any] | None = None


_decode_entry = msgspec.json.Decoder(_Entry).decode
_decode_answer = msgspec.json.Decoder(_Answer).decode
_decode_piece = msgspec.json.Decoder(_Piece).decode
_decode_tools = msgspec.json.Decoder(list[_Tool]).decode


def path(model: str) -> str:
    """Below the base URL, such as ``https://generativelanguage.googleapis.com/v1beta``."""
    return f"/models/{model}:generateContent"


# -- the request ----------------------------------------------------------------------------------------


def write_request(call: ModelCall, extra_body: bytes) -> bytes:
    """The body of ``POST …:generateContent``.

    Raises:
        TaskError: the row holds what the API cannot carry.
    """
    fields = present(bytes(call.params))
    extra = dict(side_channel.take(fields))
    try:
        said = {name: msgspec.json.decode(raw) for name, raw in fields.items() if name != "tools"}
        tools = _decode_tools(fields["tools"]) if "tools" in fields else []
        conversation = _Conversation()
        if said.get("instructions"):
            conversation.system.append(str(said["instructions"]))
        for raw in call.input:
            conversation.add(_decode_entry(raw))
    except UNREADABLE as error:
        raise TaskError(f"Gemini's API cannot carry this row: {error}", stage="model") from error
    settings = {theirs: said[ours] for ours, theirs in _SETTINGS.items() if ours in said}
    settings |= {theirs: extra.pop(ours) for ours, theirs in _EXTRA.items() if ours in extra}
    if isinstance(stop := settings.get("stopSequences"), str):
        settings["stopSequences"] = [stop]
    body: dict[str, Any] = {"contents": conversation.contents}
    if conversation.system:
        body["systemInstruction"] = {"parts": [{"text": "\n\n".join(conversation.system)}]}
    if tools:
        body["tools"] = _tools(tools)
        body["toolConfig"] = {"functionCallingConfig": _choice(said.get("tool_choice", "auto"))}
    if settings:
        body["generationConfig"] = settings
    return encode({**decode_fields(extra_body), **body, **extra})


class _Conversation:
    """Contents so far, and the texts before them."""

    def __init__(self) -> None:
        self.contents: list[dict[str, Any]] = []
        self.system: list[str] = []
        self._size = computer.GRID
        self._names: dict[str, tuple[str, bool]] = {}

    def add(self, entry: _Entry) -> None:
        match entry.type:
            case "message" if entry.role in ("system", "developer"):
                self.system.append("".join(one.text or "" for one in _parts(entry.content)))
            case "message":
                role = "model" if entry.role == "assistant" else "user"
                self._look(_parts(entry.content))
                native = [entry.native] if entry.native else None
                self._say(role, native or [_piece(one) for one in _parts(entry.content) if one.text != ""])
            case "reasoning":
                pass  # its signature is with the part that follows
            case "function_call":
                self._say("model", [self._called(entry)])
            case "function_call_output":
                self._say("user", [self._answered(entry)])
            case other:
                raise TaskError(f"Gemini's API cannot carry an item of type '{other}'", stage="model")

    def _look(self, parts: Sequence[_Part]) -> None:
        """Note the size of the last screenshot among them."""
        sizes = [computer.size_of(one.image_url) for one in parts if one.image_url]
        self._size = next((one for one in reversed(sizes) if one), self._size)

    def _say(self, role: str, parts: list[dict[str, Any]]) -> None:
        if not parts:
            return
        if self.contents and self.contents[-1]["role"] == role:
            self.contents[-1]["parts"] += parts
        else:
            self.contents.append({"role": role, "parts": parts})

    def _called(self, entry: _Entry) -> dict[str, Any]:
        native = msgspec.convert((entry.native or {}).get("functionCall"), _Call | None)
        name, given = entry.name, computer.decoded(entry.arguments)
        if native:
            name = native.name
        elif name == computer.NAME:
            try:
                name, given = computer.to_gemini(given or {}, self._size)
            except ValueError:
                name, given = "take_screenshot", {}
        self._names[entry.call_id] = name, bool(native) and native.decision == _CONFIRM
        if native:
            return entry.native or {}
        said = {"arguments": entry.arguments} if given is None else given
        return {"functionCall": {"id": entry.call_id, "name": name, "args": said}}

    def _answered(self, entry: _Entry) -> dict[str, Any]:
        name, confirmed = self._names.get(entry.call_id, (computer.NAME, False))
        parts = _parts(entry.output)
        images = [one for one in parts if one.image_url]
        self._look(images)
        said: dict[str, Any] = {"output": "\n".join(one.text for one in parts if one.text)}
        if images:
            said["url"] = ""  # the computer tool wants one; pages here have none
        if confirmed:
            said["safety_acknowledgement"] = "true"
        answered: dict[str, Any] = {"id": entry.call_id, "name": name, "response": said}
        if images:
            answered["parts"] = [_piece(one) for one in images]
        return {"functionResponse": answered}


def _parts(content: str | list[_Part] | None) -> list[_Part]:
    return [_Part(text=content)] if isinstance(content, str) else content or []


def _piece(part: _Part) -> dict[str, Any]:
    url = part.image_url or part.file_data
    if url is not None:
        head, comma, data = url.partition(";base64,")
        if not (comma and head.startswith("data:")):
            return {"fileData": {"fileUri": url}}
        return {"inlineData": {"mimeType": head.removeprefix("data:"), "data": data}}
    if part.text is None:
        raise TaskError(f"Gemini's API cannot carry a part of type '{part.type}'", stage="model")
    return {"text": part.text}


def _tools(tools: Sequence[_Tool]) -> list[dict[str, Any]]:
    names = {one.name for one in tools}
    found: list[dict[str, Any]] = []
    native = computer.NAME in names
    if native:
        excluded = [*computer.GEMINI_LACKS, *(() if "navigate" in names else ("navigate",))]
        browser = {"environment": "ENVIRONMENT_BROWSER", "excludedPredefinedFunctions": excluded}
        found.append({"computerUse": browser})
    declared: list[dict[str, Any]] = []
    for one in tools:
        if one.type != "function":
            raise TaskError(f"Gemini's API has no hosted tool '{one.type}'; offer a function", stage="model")
        if native and one.name in (computer.NAME, "navigate"):
            continue
        schema = {"parametersJsonSchema": one.parameters} if one.parameters else {}
        declared.append({"name": one.name, "description": one.description or one.name, **schema})
    return [*found, {"functionDeclarations": declared}] if declared else found


def _choice(choice: object) -> dict[str, Any]:
    match choice:
        case {"name": str(name)} if name != computer.NAME:
            return {"mode": "ANY", "allowedFunctionNames": [name]}
        case "none":
            return {"mode": "NONE"}
        case "auto":
            return {"mode": "AUTO"}
        case _:
            return {"mode": "ANY"}


# -- the answer -----------------------------------------------------------------------------------------


def read_answer(body: bytes, call: ModelCall, model: str, repeated: Mapping[str, Any]) -> Raw:
    """The response object; ``repeated`` is the result of `responses_api.echo`.

    Raises:
        ForeignAnswer: the body holds no candidate.
    """
    try:
        check_text(body)
        answer = _decode_answer(finite(body))
        (candidate, *_) = answer.candidates
        output = _items(candidate.content.parts, shown(call.input))
    except (ValueError, *UNREADABLE) as error:
        raise ForeignAnswer(str(error)) from error
    blocked = any(_blocked(raw) for raw in candidate.content.parts)
    reason = "content_filter" if blocked else _ENDS.get(candidate.finish_reason, "content_filter")
    counts = answer.usage_metadata
    written = counts.candidates_token_count + counts.thoughts_token_count
    said = Response(
        id=f"resp_{answer.response_id or identity()}",
        created_at=time.time(),
        model=answer.model_version or model,
        output=output,
        status="incomplete" if reason else "completed",
        incomplete_details=IncompleteDetails(reason=reason) if reason else None,
        usage=msgspec.convert(
            {
                "input_tokens": counts.prompt_token_count,
                "output_tokens": written,
                "total_tokens": counts.prompt_token_count + written,
                "input_tokens_details": {"cached_tokens": counts.cached_content_token_count},
                "output_tokens_details": {"reasoning_tokens": counts.thoughts_token_count},
            },
            Usage,
        ),
        **repeated,
    )
    return Raw(encode(said))


def shown(items: Sequence[Raw], before: computer.Size = computer.GRID) -> computer.Size:
    """The size of the last screenshot among items; that of the one before them if there is none."""
    for raw in reversed(items):
        if b'"input_image"' in bytes(raw):
            entry = _decode_entry(raw)
            for one in reversed(_parts(entry.output or entry.content)):
                if one.image_url and (size := computer.size_of(one.image_url)):
                    return size
    return before


def _blocked(raw: Raw) -> bool:
    called = _decode_piece(raw).function_call
    return called is not None and called.decision == "blocked"


def _items(parts: Sequence[Raw], size: computer.Size) -> list[Raw]:
    items: list[Raw] = []
    for place, raw in enumerate(parts):
        piece = _decode_piece(raw)
        if (called := piece.function_call) is not None:
            name, given = computer.from_gemini(called.name, called.args, size) or (called.name, called.args)
            call_id = called.id or f"call_{identity()}_{place}"
            arguments = encode(given).decode()
            items.append(
                item(type="function_call", call_id=call_id, name=name, arguments=arguments, native=raw)
            )
        elif piece.thought:
            items.append(reasoning_item(piece.text))
        elif piece.text:
            message = assistant_message([output_text(piece.text)])
            signed = b'"thoughtSignature"' in bytes(raw)
            items.append(Raw(encode({**decode_fields(message), "native": raw})) if signed else message)
    return items

"""Chat Completions' messages and Responses API items, in both directions.

A client's messages become items:

    ====================================  ========================================================
    system, developer, user               a message with that role; parts become ``input_*`` parts
    assistant                             reasoning (``reasoning_content``), message, function calls
    tool                                  ``function_call_output``
    ====================================  ========================================================

A message's ``name`` is a hint, and is dropped. Items become messages for an engine:

    ========================================  ====================================================
    instructions, system, developer           one system message, first
    user                                      user; a lone text part becomes a plain string
    response_1, response_2, principle         the same role: what generative reward models compare
    reasoning, assistant text, function_call  one assistant message per run of them
    function_call_output                      tool
    ========================================  ====================================================

For an engine only the structure is written again: texts and arguments are passed on as the JSON that they
are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from gym_runtime.adapters import ConversationNotes
from gym_runtime.errors import UNREADABLE, TaskError
from msgspec import Raw

from gym_faces.dialects.dialect import assistant_message, item, output_text, reasoning_item
from gym_faces.dialects.pieces import Bytes, array, decode_text, encode, is_null, is_string

Reasoning = Literal["reasoning_content", "reasoning", "think", "drop"]
ToolImages = Literal["tool", "user"]


# -- a client's messages become items -------------------------------------------------------------------


class _Function(msgspec.Struct):
    name: str
    arguments: str = "{}"


class _Call(msgspec.Struct):
    id: str
    function: _Function | None = None
    type: str = "function"


class Message(msgspec.Struct):
    """A client's message."""

    role: str
    content: Raw = Raw(b"null")
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None
    function_call: dict[str, Any] | None = None
    audio: dict[str, Any] | None = None


class _Image(msgspec.Struct):
    url: str
    detail: str | None = None


class _ChatPart(msgspec.Struct):
    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: _Image | None = None
    input_audio: dict[str, Any] | None = None
    file: dict[str, Any] | None = None


_decode_content = msgspec.json.Decoder[str | list[_ChatPart] | None](str | list[_ChatPart] | None).decode


def read_messages(messages: list[Message]) -> list[Raw]:
    """The items of a client's messages.

    Raises:
        TaskError: a message cannot be carried; the error has its place.
    """
    items: list[Raw] = []
    for place, message in enumerate(messages):
        try:
            items += _items_of(message)
        except (TaskError, *UNREADABLE) as error:
            raise TaskError(f"messages[{place}]: {error}") from error
    return items


def _items_of(message: Message) -> list[Raw]:
    match message.role:
        case "system" | "developer" | "user":
            return [item(role=message.role, content=_input_content(message.content))]
        case "assistant":
            return _assistant(message)
        case "tool":
            if not message.tool_call_id:
                raise TaskError("tool_call_id: this field is required")
            output = _input_content(message.content)
            return [item(type="function_call_output", call_id=message.tool_call_id, output=output)]
        case "function":
            raise TaskError("role: 'function' is deprecated; use 'tool' with a 'tool_call_id'")
        case other:
            raise TaskError(f"role: '{other}' is unknown; use system, developer, user, assistant or tool")


def _assistant(message: Message) -> list[Raw]:
    if message.function_call:
        raise TaskError("function_call: use 'tool_calls'")
    if message.audio:
        raise TaskError("audio: an answer in sound cannot be carried")
    items: list[Raw] = []
    if thought := message.reasoning_content or message.reasoning:
        items.append(reasoning_item(thought))
    parts = [output_text(text) for text in _said_texts(message.content)]
    if message.refusal:
        parts.append({"type": "refusal", "refusal": message.refusal})
    # A message that only makes calls has no text, and so it needs no item.
    if parts:
        items.append(assistant_message(parts))
    for call in message.tool_calls or ():
        if call.type != "function" or call.function is None:
            raise TaskError(f"tool_calls: a call of type '{call.type}' cannot be carried, only functions")
        function = call.function
        items.append(
            item(type="function_call", call_id=call.id, name=function.name, arguments=function.arguments)
        )
    return items


def _said_texts(content: Raw) -> list[str]:
    decoded: str | list[_ChatPart] | None = _decode_content(content)
    if decoded is None or isinstance(decoded, str):
        return [decoded] if decoded else []
    texts: list[str] = []
    for part in decoded:
        text = part.refusal if part.type == "refusal" else part.text
        if text is None:
            raise TaskError(f"content: an assistant's part of type '{part.type}' cannot be carried")
        texts.append(text)
    return texts


def _input_content(content: Raw) -> str | list[dict[str, Any]]:
    decoded = _decode_content(content)
    if decoded is None:
        raise TaskError("content: this field is required")
    return decoded if isinstance(decoded, str) else [_input_part(part) for part in decoded]


def _input_part(part: _ChatPart) -> dict[str, Any]:
    match part:
        case _ChatPart(type="text", text=str(text)):
            return {"type": "input_text", "text": text}
        case _ChatPart(type="image_url", image_url=_Image(url=url, detail=detail)):
            # The Responses API needs a detail.
            return {"type": "input_image", "image_url": url, "detail": detail or "auto"}
        case _ChatPart(type="input_audio", input_audio=dict(audio)):
            return {"type": "input_audio", "input_audio": audio}
        case _ChatPart(type="file", file=dict(file)):
            return {"type": "input_file", **file}
        case _:
            raise TaskError(f"content: a part of type '{part.type}' that lacks its content or is unknown")


# -- items become messages for an engine ----------------------------------------------------------------


class _Entry(msgspec.Struct):
    """Any input item; fields that are passed on stay JSON."""

    type: str = "message"
    role: str = ""
    content: Raw = Raw()
    call_id: Raw = Raw()
    name: Raw = Raw()
    arguments: Raw = Raw()
    extra_content: Raw = Raw()
    output: Raw = Raw()
    summary: Raw = Raw()


class _Part(msgspec.Struct):
    type: str = "input_text"
    text: Raw = Raw()
    image_url: Raw = Raw()
    detail: Raw = Raw()
    input_audio: Raw = Raw()
    audio_url: Raw = Raw()
    video_url: Raw = Raw()
    refusal: Raw = Raw()
    file_id: Raw = Raw()
    file_data: Raw = Raw()
    filename: Raw = Raw()


_decode_entry = msgspec.json.Decoder(_Entry).decode
_decode_parts = msgspec.json.Decoder(list[_Part]).decode


def write_messages(
    items: Sequence[Raw],
    instructions: str | None,
    reasoning: Reasoning,
    tool_images: ToolImages = "tool",
    notes: ConversationNotes | None = None,
) -> list[Bytes]:
    """The messages of a conversation as pieces of JSON, to be joined; texts are not copied.

    ``reasoning`` says how earlier thinking goes back: as that field of the assistant's message, within
    ``<think>`` tags at the start of its text, or not at all. ``tool_images`` says which message has
    the images of tools. What was converted for an earlier turn is taken from ``notes``.

    Raises:
        TaskError: an item or a part is of a type that Chat Completions cannot carry.
        msgspec.DecodeError: an item is malformed.
    """
    notes = ConversationNotes() if notes is None else notes
    # Taken out while it is changed: a malformed item leaves no half of itself.
    conversation: _Messages | None = notes.pop("messages", None)
    if conversation is None or not conversation.continues(instructions, reasoning, tool_images):
        conversation = _Messages(instructions, reasoning, tool_images)
    for raw in items[conversation.taken :]:
        conversation.add(_decode_entry(raw))
    notes["messages"] = conversation
    return conversation.whole()


class _Messages:
    """Messages so far, and the assistant's pieces that are still to be merged into one.

    Attributes:
        taken: how many items were added.
    """

    def __init__(self, instructions: str | None, reasoning: Reasoning, tool_images: ToolImages) -> None:
        self.taken = 0
        self._begun = (instructions, reasoning, tool_images)
        self._images: list[bytes] = []
        self._system: list[str] = [instructions] if instructions else []
        self._done: list[Bytes] = []
        self._reasoning = reasoning
        self._texts: list[Bytes] = []
        self._thoughts: list[str] = []
        self._calls: list[bytes] = []

    def continues(self, instructions: str | None, reasoning: Reasoning, tool_images: ToolImages) -> bool:
        """Whether these were the same so far."""
        return self._begun == (instructions, reasoning, tool_images)

    def add(self, entry: _Entry) -> None:
        """Take in the next item."""
        self.taken += 1
        if entry.type != "function_call_output":
            self._done += self._shown()
            self._images = []
        match entry.type:
            case "message":
                self._add_message(entry)
            case "function_call":
                if not (is_string(entry.call_id) and is_string(entry.name) and is_string(entry.arguments)):
                    raise TaskError("a function_call lacks its call_id, name or arguments", stage="model")
                signed = b"" if is_null(entry.extra_content) else b',"extra_content":%b' % entry.extra_content
                self._calls.append(
                    b'{"id":%b,"type":"function","function":{"name":%b,"arguments":%b}%b}'
                    % (entry.call_id, entry.name, entry.arguments, signed)
                )
            case "function_call_output":
                if not is_string(entry.call_id):
                    raise TaskError("a function_call_output lacks its call_id", stage="model")
                # An assistant's message ends where a tool's begins.
                self._flush()
                content = entry.output if is_string(entry.output) else self._of_tool(entry)
                self._done += [b',{"role":"tool","tool_call_id":%b,"content":' % entry.call_id, content, b"}"]
            case "reasoning":
                # The content is the thinking itself; the summary is all that hosted models give.
                self._thoughts.append(_joined(entry.content) or _joined(entry.summary))
            case other:
                raise TaskError(
                    f"Chat Completions cannot carry an input item of type '{other}'", stage="model"
                )

    def _of_tool(self, entry: _Entry) -> Bytes:
        """A tool's content; images that its message cannot carry are kept for the one after it."""
        parts = _decode_parts(entry.output)
        images = [part for part in parts if part.type == "input_image"]
        if self._begun[2] == "tool" or not images:
            return _content(entry.output)
        about = encode(f"Images of the call {decode_text(entry.call_id)}:")
        self._images += [b'{"type":"text","text":%b}' % about, *map(_part, images)]
        texts = [part for part in parts if part.type != "input_image"]
        if len(texts) == 1 and not is_null(texts[0].text):
            return texts[0].text
        return array(map(_part, texts)) if texts else b'""'

    def _shown(self) -> list[Bytes]:
        """The images of the tool messages so far, as a message of the user."""
        return [b',{"role":"user","content":', array(self._images), b"}"] if self._images else []

    def _add_message(self, entry: _Entry) -> None:
        match entry.role:
            case "user" | "response_1" | "response_2" | "principle" as role:
                self._flush()
                content = entry.content if is_string(entry.content) else _content(entry.content)
                self._done += [b',{"role":"%b","content":' % role.encode(), content, b"}"]
            case "assistant":
                self._texts.extend(
                    [entry.content] if is_string(entry.content) else _assistant_texts(entry.content)
                )
            case "system" | "developer":
                self._system.append(_joined(entry.content))
            case other:
                raise TaskError(f"an input message has the role '{other}'", stage="model")

    def _flush(self) -> None:
        self._done += self._merged()
        self._texts, self._thoughts, self._calls = [], [], []

    def _merged(self) -> list[Bytes]:
        """The assistant's pieces as one message."""
        if not (self._texts or self._calls or self._thoughts):
            return []
        thoughts = "".join(self._thoughts)
        texts = self._texts
        fields = b""
        if thoughts and self._reasoning == "think":
            texts = [encode(f"<think>{thoughts}</think>"), *texts]
        elif thoughts and self._reasoning != "drop":
            fields += b',"%b":%b' % (self._reasoning.encode(), encode(thoughts))
        if self._calls:
            fields += b',"tool_calls":' + array(self._calls)
        if not (texts or fields):
            return []
        # As OpenAI has it: null only beside calls.
        content: Bytes = b"null" if self._calls else b'""'
        if len(texts) == 1:
            content = texts[0]
        elif texts:
            content = encode("".join(map(decode_text, texts)))
        return [b',{"role":"assistant","content":', content, b"%b}" % fields]

    def whole(self) -> list[Bytes]:
        """All messages; more items may be added later, to an assistant's message at the end, too."""
        whole = [*self._done, *self._shown(), *self._merged()]
        if self._system:
            # One message: many templates take only one system message, and only as the first.
            text = "\n\n".join(text for text in self._system if text)
            whole.insert(0, b',{"role":"system","content":%b}' % encode(text))
        return [bytes(whole[0])[1:], *whole[1:]] if whole else []


def _joined(content: Raw) -> str:
    """The text of a string or of a list of parts.

    Raises:
        TaskError: a part is not text.
    """
    if is_null(content):
        return ""
    if is_string(content):
        return decode_text(content)
    return "".join(decode_text(_needed(part.text, part, "text")) for part in _decode_parts(content))


def _assistant_texts(content: Raw) -> list[Bytes]:
    parts = _decode_parts(content)
    return [_needed(part.refusal if part.type == "refusal" else part.text, part, "text") for part in parts]


def _content(content: Raw) -> Bytes:
    """A user's or a tool's content parts in the Chat form; a lone text is a string, as templates like it."""
    parts = _decode_parts(content)
    if len(parts) == 1 and not is_null(parts[0].text):
        return parts[0].text
    return array(map(_part, parts))


def _part(part: _Part) -> bytes:
    match part.type:
        case "input_text" | "output_text" | "text":
            return b'{"type":"text","text":%b}' % _needed(part.text, part, "text")
        case "input_image":
            url = _needed(part.image_url, part, "image_url")
            # Codex asks for the original, which engines refuse.
            said = b'"high"' if bytes(part.detail) == b'"original"' else part.detail
            detail = b"" if is_null(part.detail) else b',"detail":%b' % said
            return b'{"type":"image_url","image_url":{"url":%b%b}}' % (url, detail)
        case "input_audio" if not is_null(part.audio_url):
            return b'{"type":"audio_url","audio_url":%b}' % _located(part.audio_url)
        case "input_video":
            return b'{"type":"video_url","video_url":%b}' % _located(
                _needed(part.video_url, part, "video_url")
            )
        case "input_audio":
            return b'{"type":"input_audio","input_audio":%b}' % _needed(part.input_audio, part, "input_audio")
        case "input_file":
            file = {"file_id": part.file_id, "file_data": part.file_data, "filename": part.filename}
            return encode({"type": "file", "file": {k: v for k, v in file.items() if not is_null(v)}})
        case other:
            raise TaskError(f"Chat Completions cannot carry a content part of type '{other}'", stage="model")


def _located(address: Raw) -> bytes:
    """An address as Chat Completions has it, which may have been written so in the row."""
    return b'{"url":%b}' % address if is_string(address) else address


def _needed(value: Raw, part: _Part, name: str) -> Raw:
    if is_null(value):
        raise TaskError(f"Chat Completions needs the '{name}' of an {part.type}", stage="model")
    return value

"""The conversation of a stored row: as texts for people, as a notebook's HTML, as Chat Completions messages.

Rows come from models, tools and other programs: any field may have any type, and `readable_items` does not
raise. In HTML all foreign text is escaped, so none of it becomes markup or runs. Chat messages are plain
Python as trainers keep it. Source: OpenAI API reference, "Input items" and "Create chat completion"; vLLM for
``reasoning_content``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, Literal, Protocol, cast, runtime_checkable

import msgspec
from msgspec import Raw

from gym_runtime.errors import UNREADABLE, TaskError
from gym_runtime.messages.responses import (
    NULL,
    FunctionCall,
    FunctionCallOutput,
    Message,
    Part,
    Reasoning,
    decode_item,
    decode_params,
    encode_item,
)

_ERROR = re.compile(
    r'\s*("?(error|exception|traceback|failed|invalid)\b|[A-Za-z_.]*(Error|Exception)\b)', re.IGNORECASE
)


class ReadableItem(msgspec.Struct, frozen=True, kw_only=True):
    """One item of a conversation.

    Attributes:
        who: ``user``, ``assistant``, ``reasoning``, ``calls NAME``, ``tool answer`` or another item's type.
        turn: 0 for the prompt. What a user says before the model's first call belongs to turn 1.
        error: the error that a tool's answer reports; empty if it reports none.
    """

    who: str
    text: str
    turn: int
    error: str = ""


def readable_items(row: Mapping[str, Any]) -> Iterator[ReadableItem]:
    """The prompt's items, then the output of the model and its tools."""
    params = as_object(row.get("responses_create_params"))
    if params.get("instructions"):
        yield ReadableItem(who="system", text=as_text(params["instructions"]), turn=0)
    given = params.get("input")
    if isinstance(given, str):
        yield ReadableItem(who="user", text=given, turn=0)
    for item in as_list(given):
        yield _item(as_object(item), 0)
    turn, began, answered = 1, False, False
    for each in as_list(as_object(row.get("response")).get("output")):
        item = as_object(each)
        ours = item.get("type") != "function_call_output" and item.get("role") in (None, "assistant")
        turn += ours and began and answered
        began = began or ours
        answered = "generation_token_ids" in item if ours else True
        yield _item(item, turn)


def _item(item: Mapping[str, Any], turn: int) -> ReadableItem:
    kind = item.get("type") or "message"
    if kind == "message":
        return ReadableItem(
            who=str(item.get("role") or "assistant"), text=content_text(item.get("content")), turn=turn
        )
    if kind == "reasoning":
        text = "\n".join(filter(None, (content_text(item.get("content")), content_text(item.get("summary")))))
        return ReadableItem(who="reasoning", text=text, turn=turn)
    if kind == "function_call":
        return ReadableItem(who=f"calls {item.get('name')}", text=as_text(item.get("arguments")), turn=turn)
    if kind == "function_call_output":
        said = content_text(item.get("output"))
        return ReadableItem(who="tool answer", text=said, turn=turn, error=tool_error(said))
    return ReadableItem(who=str(kind), text=as_text(item), turn=turn)


def tool_error(said: str) -> str:
    """What went wrong, if a tool's answer is an error, as tools usually say so; else nothing."""
    if said.lstrip().startswith("{"):
        try:
            answer = msgspec.json.decode(said, type=dict[str, Any])
        except UNREADABLE:
            return ""
        error = answer.get("error") or answer.get("Error") or answer.get("errors")
        if not error and (answer.get("success") is False or answer.get("status") == "error"):
            error = answer.get("message") or "not successful"
        return _first_line(as_text(error)) if error else ""
    return _first_line(said) if _ERROR.match(said) else ""


def content_text(content: Any, other: Callable[[Mapping[str, Any]], str] | None = None) -> str:
    """The text of a message's content.

    Args:
        other: makes text of a part that has none, such as an image; by default its type in brackets.
    """
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        return as_text(content)
    found: list[str] = []
    for part in as_list(content):
        if isinstance(part, str):
            found.append(part)
            continue
        fields = as_object(part)
        texts = (text for text in (fields.get("text"), fields.get("refusal")) if isinstance(text, str))
        text = next(texts, None)
        if text is None:
            text = other(fields) if other is not None else f"[{fields.get('type', 'part')}]"
        found.append(text)
    return "".join(found)


def as_object(value: Any) -> Mapping[str, Any]:
    """The value, if it is an object, else an empty one."""
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """The value, if it is a list, else an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def as_text(value: Any) -> str:
    """The value, if it is a text, else its JSON."""
    return value if isinstance(value, str) else encoded(value).decode()


def _first_line(said: str) -> str:
    return said.strip().partition("\n")[0][:300]


class RowParts(msgspec.Struct, frozen=True):
    """The two halves of a row's conversation."""

    responses_create_params: Raw = Raw(b"{}")
    response: Raw = NULL


class _Output(msgspec.Struct, frozen=True):
    output: list[Raw] = []


_decode_parts = msgspec.json.Decoder(RowParts).decode
decode_output = msgspec.json.Decoder[_Output | None](_Output | None).decode


def row_parts(row: Raw | bytes) -> RowParts:
    """A dataset's or a result row's conversation, not decoded.

    Raises:
        TaskError: it is no JSON object.
    """
    try:
        return _decode_parts(row)
    except UNREADABLE as error:
        raise TaskError(f"not a row: {error}") from error


def conversation(row: Raw | bytes) -> list[dict[str, Any]]:
    """The conversation of a dataset row, or of a result row with its answers; see `chat_messages`.

    Raises:
        TaskError: it is not a row.
    """
    parts = row_parts(row)
    try:
        params = decode_params(parts.responses_create_params)
        items = params.input_items()
        if params.instructions is not None:
            items.insert(0, encode_item(Message(role="system", content=params.instructions)))
        answered = decode_output(parts.response)
        items += answered.output if answered is not None else []
        return chat_messages(items)
    except UNREADABLE as error:
        raise TaskError(f"the row's conversation cannot be read: {error}") from error


def chat_messages(items: Iterable[Raw]) -> list[dict[str, Any]]:
    """Messages with ``role`` and ``content``, in order.

    A turn of the model is one message of the assistant: its text, its thinking as ``reasoning_content`` and
    its calls as ``tool_calls``. A tool's output is a message with the role ``tool``. Content is text, or a
    list of the parts where one is not text. An item that Chat Completions does not have (a hosted tool's) is
    a part of the assistant's content.

    Raises:
        msgspec.ValidationError: an item lacks a field or has one of a wrong type.
    """
    messages: list[dict[str, Any]] = []
    for raw in items:
        match decode_item(raw):
            case FunctionCallOutput(call_id=call_id, output=output):
                messages.append({"role": "tool", "tool_call_id": call_id, "content": _content(output)})
            case Message(role=role, content=content) if role != "assistant":
                messages.append({"role": role, "content": _content(content)})
            case Message(content=content):
                _assistant(messages, begun="thought")["content"] = _content(content)
            case Reasoning() as thought:
                message = _assistant(messages, begun="thought")
                message["reasoning_content"] = message.get("reasoning_content", "") + thought.text
            case FunctionCall(call_id=call_id, name=name, arguments=arguments):
                function = {"name": name, "arguments": arguments}
                call = {"id": call_id, "type": "function", "function": function}
                _assistant(messages, begun="text").setdefault("tool_calls", []).append(call)
            case _:
                messages.append({"role": "assistant", "content": [msgspec.json.decode(raw)]})
    return messages


def _assistant(messages: list[dict[str, Any]], *, begun: Literal["thought", "text"]) -> dict[str, Any]:
    """The assistant's last message if no more than its thought, or its text, has begun; else a new one."""
    last = messages[-1] if messages else {"role": ""}
    closed = begun == "thought" and (last.get("content") or "tool_calls" in last)
    if last["role"] != "assistant" or closed:
        messages.append({"role": "assistant", "content": None})
    return messages[-1]


def _content(content: str | list[Part] | None) -> str | list[Any] | None:
    if not isinstance(content, list):
        return content
    if all(part.text is not None for part in content):
        return "".join(part.text or "" for part in content)
    return msgspec.to_builtins(content)


def response_items(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The output of the model and the tools in Chat Completions messages, as Responses API output items.

    It is the inverse of `chat_messages` for messages of the assistant and of tools; others are passed on as
    input items. A call without an ``id`` gets one, and outputs without a ``tool_call_id`` belong to the calls
    before them, in order.

    Raises:
        TaskError: one is not such a message.
    """
    items: list[dict[str, Any]] = []
    unanswered: list[str] = []
    try:
        for message in messages:
            content: Any = message.get("content")
            if message["role"] == "tool":
                call_id = message.get("tool_call_id") or (unanswered[0] if unanswered else "")
                if call_id in unanswered:
                    unanswered.remove(call_id)
                items.append({"type": "function_call_output", "call_id": call_id, "output": as_text(content)})
                continue
            if message["role"] != "assistant":
                items.append({"type": "message", "role": message["role"], "content": content})
                continue
            if thought := message.get("reasoning_content"):
                part = {"type": "summary_text", "text": thought}
                items.append({"type": "reasoning", "id": f"rs_{len(items)}", "summary": [part]})
            if content:
                if isinstance(content, str):
                    content = [{"type": "output_text", "text": content, "annotations": list[str]()}]
                items.append({"type": "message", "role": "assistant", "content": content})
            for call in message.get("tool_calls") or ():
                function: Mapping[str, Any] = call.get("function", call)
                call_id = call.get("id") or f"call_{len(items)}"
                unanswered.append(call_id)
                arguments = as_text(function.get("arguments") or "{}")
                name = function["name"]
                items.append(
                    {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}
                )
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise TaskError(f"the messages are not of Chat Completions: {error!r}") from error
    return items


def encoded(value: Any) -> bytes:
    """A value as JSON: half a surrogate pair becomes U+FFFD, and numpy's numbers and arrays become plain.

    Python's ``json`` reads such halves out of what a model wrote, and no JSON in UTF-8 can hold them.

    Raises:
        TypeError, ValueError, OverflowError, RecursionError: it cannot be JSON (`errors.NOT_JSON`).

    >>> encoded({"a": "\\ud83d", "b": "\\ud83d\\ude00"})
    b'{"a":"\\xef\\xbf\\xbd","b":"\\xf0\\x9f\\x98\\x80"}'
    """
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(whole(value))


@runtime_checkable
class _Array(Protocol):
    """An array or a scalar of numpy, torch or pandas; none of them is imported here."""

    def tolist(self) -> object: ...


def plain(value: object) -> object:
    """A number or an array of numpy as plain values: for JSON encoders, which ask what they do not know.

    Raises:
        TypeError: it is something else.
    """
    if isinstance(value, _Array):
        return value.tolist()
    raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")


_encode = msgspec.json.Encoder(enc_hook=plain).encode


def whole(value: Any) -> Any:
    """A value in whose texts half a surrogate pair is U+FFFD."""
    if isinstance(value, str) and value.isascii():
        return value
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, Mapping):
        return {whole(name): whole(one) for name, one in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [whole(one) for one in cast("Sequence[Any]", value)]
    return value


MOST_CHARACTERS = 4000
MOST_ITEMS = 200
MOST_ROWS = 64
_decode = msgspec.json.Decoder(dict[str, Any]).decode
_TEXT = "white-space:pre-wrap;text-align:left;margin:0;max-height:20em;overflow:auto"


def html_table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table of texts and numbers."""
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def html_transcript(row: bytes, title: str) -> str:
    """The conversation of a result row, folded under its title."""
    try:
        items = list(readable_items(_decode(row)))
    except UNREADABLE:
        return f"<details><summary>{escape(title)}</summary>the row is no JSON object</details>"
    parts = [
        f"<b>{_cell(item.who)}</b><pre style='{_TEXT}'>{_cell(item.text)}</pre>"
        for item in items[:MOST_ITEMS]
    ]
    more = f"<p>… and {len(items) - MOST_ITEMS:,} more</p>" if len(items) > MOST_ITEMS else ""
    return f"<details><summary>{escape(title)}</summary>{''.join(parts)}{more}</details>"


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(value)
    more = f" … {len(text) - MOST_CHARACTERS:,} more characters" if len(text) > MOST_CHARACTERS else ""
    return escape(text[:MOST_CHARACTERS]) + more


def split_thought(text: str) -> tuple[str, str]:
    """A model's leading thinking, and the rest of its text; the opening tag may have been part of the prompt.

    >>> split_thought("<think>hm</think>yes"), split_thought("hm</think>yes"), split_thought("yes")
    (('hm', 'yes'), ('hm', 'yes'), ('', 'yes'))
    """
    before, found, rest = text.partition("<think>")
    # A tag in the middle of a text is a part of it.
    if found and before.strip():
        return "", text
    thought, closed, answer = (rest if found else text).partition("</think>")
    if not found and not closed:
        return "", text
    return thought.strip(), answer.lstrip() if closed else ""

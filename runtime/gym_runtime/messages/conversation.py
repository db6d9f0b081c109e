"""The conversation of a stored row as texts, for people.

Rows come from models, tools and other programs: any field may have any type, and none makes this raise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import msgspec

from gym_runtime.errors import UNREADABLE

_ERROR = re.compile(
    r'\s*("?(error|exception|traceback|failed|invalid)\b|[A-Za-z_.]*(Error|Exception)\b)', re.IGNORECASE
)


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One item of a conversation.

    Attributes:
        who: ``user``, ``assistant``, ``reasoning``, ``calls NAME``, ``tool answer`` or another item's type.
        turn: 0 for the prompt.
        error: what a tool's answer says went wrong; empty if it did not.
    """

    who: str
    text: str
    turn: int
    error: str = ""


def conversation(row: Mapping[str, Any]) -> Iterator[Item]:
    """The prompt's items, then what the model and its tools said."""
    params = as_object(row.get("responses_create_params"))
    if params.get("instructions"):
        yield Item(who="system", text=as_text(params["instructions"]), turn=0)
    given = params.get("input")
    if isinstance(given, str):
        yield Item(who="user", text=given, turn=0)
    for item in as_list(given):
        yield _item(as_object(item), 0)
    turn, answered = 1, False
    for each in as_list(as_object(row.get("response")).get("output")):
        item = as_object(each)
        ours = item.get("type") != "function_call_output" and item.get("role") in (None, "assistant")
        turn += ours and answered
        answered = "generation_token_ids" in item if ours else True
        yield _item(item, turn)


def _item(item: Mapping[str, Any], turn: int) -> Item:
    kind = item.get("type") or "message"
    if kind == "message":
        return Item(
            who=str(item.get("role") or "assistant"), text=content_text(item.get("content")), turn=turn
        )
    if kind == "reasoning":
        text = "\n".join(filter(None, (content_text(item.get("content")), content_text(item.get("summary")))))
        return Item(who="reasoning", text=text, turn=turn)
    if kind == "function_call":
        return Item(who=f"calls {item.get('name')}", text=as_text(item.get("arguments")), turn=turn)
    if kind == "function_call_output":
        said = content_text(item.get("output"))
        return Item(who="tool answer", text=said, turn=turn, error=tool_error(said))
    return Item(who=str(kind), text=as_text(item), turn=turn)


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
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _first_line(said: str) -> str:
    return said.strip().partition("\n")[0][:300]

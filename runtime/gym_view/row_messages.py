"""A stored row as the messages of a chat, the form in which trainers take conversations.

    instructions, system, developer           system
    user                                      user
    reasoning, assistant text, function_call  one assistant message for each run of them
    function_call_output                      tool

Rows come from models, tools and other programs: any field may have any type.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec
from gym_runtime.messages import as_list, as_object, content_text

Chat = dict[str, Any]
"""``role`` and ``content``; of an assistant also ``reasoning_content`` and ``tool_calls``, of a tool
``tool_call_id``."""


class Unusable(Exception):
    """A row has no such form; its text is the reason, the same for rows of the same kind."""


def prompt(row: Mapping[str, Any]) -> list[Chat]:
    """The input of the model before its first turn.

    Raises:
        Unusable: a part of it is no text.
    """
    params = as_object(row.get("responses_create_params"))
    found = _Messages()
    instructions = params.get("instructions")
    if isinstance(instructions, str) and instructions:
        found.add({"role": "system", "content": instructions})
    given = params.get("input")
    found.extend([{"role": "user", "content": given}] if isinstance(given, str) else as_list(given))
    return found.finish()


def completion(row: Mapping[str, Any]) -> list[Chat]:
    """The output of the model and its tools.

    Raises:
        Unusable: they said nothing, or a part of it is no text.
    """
    found = _Messages()
    found.extend(as_list(as_object(row.get("response")).get("output")))
    messages = found.finish()
    if not any(message["role"] == "assistant" for message in messages):
        raise Unusable("the model said nothing")
    return messages


def tools(row: Mapping[str, Any]) -> str | None:
    """The tools that the model had, as JSON in the form of Chat Completions; None without any."""
    declared = as_list(as_object(row.get("responses_create_params")).get("tools"))
    functions: list[Chat] = []
    for each in declared:
        tool = as_object(each)
        if tool.get("type") == "function":
            names = ("name", "description", "parameters", "strict")
            function = {name: tool[name] for name in names if tool.get(name) is not None}
            functions.append({"type": "function", "function": function})
    return msgspec.json.encode(functions).decode() if functions else None


class _Messages:
    """Messages so far, and the assistant's message that is not finished yet."""

    def __init__(self) -> None:
        self._done: list[Chat] = []
        self._thoughts: list[str] = []
        self._texts: list[str] = []
        self._calls: list[Chat] = []

    def extend(self, items: Iterable[Any]) -> None:
        for item in items:
            self.add(as_object(item))

    def add(self, item: Mapping[str, Any]) -> None:
        kind = item.get("type") or "message"
        if kind == "reasoning":
            self._thoughts += [_text(item.get("content")), _text(item.get("summary"))]
        elif kind == "function_call":
            name, arguments = item.get("name"), item.get("arguments")
            if not isinstance(name, str) or not isinstance(arguments, str):
                raise Unusable("a tool call has no name or no arguments")
            function = {"name": name, "arguments": arguments}
            self._calls.append(
                {"id": str(item.get("call_id") or ""), "type": "function", "function": function}
            )
        elif kind == "function_call_output":
            self._flush()
            said, call = _text(item.get("output")), str(item.get("call_id") or "")
            self._done.append({"role": "tool", "content": said, "tool_call_id": call})
        elif kind == "message":
            role = item.get("role") or "assistant"
            if role == "assistant":
                if self._calls:  # text that follows calls begins a new message
                    self._flush()
                self._texts.append(_text(item.get("content")))
                return
            self._flush()
            if role not in ("system", "developer", "user"):
                raise Unusable("a message has another role than system, developer, user and assistant")
            said = _text(item.get("content"))
            self._done.append({"role": "user" if role == "user" else "system", "content": said})
        else:
            raise Unusable("an item is neither a message nor of reasoning or a function")

    def finish(self) -> list[Chat]:
        self._flush()
        return self._done

    def _flush(self) -> None:
        thoughts = "\n".join(filter(None, self._thoughts))
        if not (thoughts or self._texts or self._calls):
            return
        message: Chat = {"role": "assistant", "content": "".join(self._texts)}
        if thoughts:
            message["reasoning_content"] = thoughts
        if self._calls:
            message["tool_calls"] = self._calls
        self._done.append(message)
        self._thoughts, self._texts, self._calls = [], [], []


def _text(content: Any) -> str:
    """The text of a content; a part of another kind, such as an image, would be lost."""
    if not (content is None or isinstance(content, str | list)):
        raise Unusable("a message's content is neither a text nor a list of parts")
    return content_text(cast("object", content), _refuse_part)


def _refuse_part(_: Mapping[str, Any]) -> str:
    raise Unusable("a part of a message is no text (an image, a sound, a file)")

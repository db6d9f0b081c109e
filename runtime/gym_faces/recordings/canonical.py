"""Decides whether two conversations are the same, although they are written differently.

A harness sends a conversation back in other bytes than it received: ids are missing, a text has become a list
of parts, JSON arguments were parsed and encoded again, adjacent texts were joined, thinking was dropped. The
*fold* of a conversation does not depend on these: it has one element per message, call, output or thought.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any, cast

import msgspec
from gym_runtime.errors import UNREADABLE
from msgspec import Raw


def _number(digits: str) -> float:
    # JavaScript writes 1.0 as 1.
    number = float(digits)
    return int(number) if number.is_integer() else number


_decode = msgspec.json.Decoder(float_hook=_number).decode
_encode = msgspec.json.Encoder(order="sorted").encode
_TEXTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")
_BESIDE_THE_POINT = {"id", "status", "annotations", "logprobs", "detail"}


def fold(items: Iterable[Raw | bytes]) -> list[bytes]:
    """The elements of a conversation, each as JSON.

    Adjacent items of the model form a run: its texts come first, joined, then its calls; its thinking is an
    element only if the run has nothing else.

    Raises:
        msgspec.DecodeError: an item is not a JSON object.
    """
    return [one for one, _ in fold_with_places(items)]


def fold_with_places(items: Iterable[Raw | bytes]) -> list[tuple[bytes, int]]:
    """`fold`, each element with the index of the item, or of the model's run of items, at which it begins."""
    found: list[tuple[bytes, int]] = []
    run = _Run(0)
    for index, raw in enumerate(items):
        item = msgspec.json.decode(raw, type=dict[str, Any])
        if not run.take(item):
            found += [*run.elements(), (element(item), index)]
            run = _Run(index + 1)
    return found + run.elements()


def element(item: Mapping[str, Any]) -> bytes:
    """The content of one item, without fields that may differ between two encodings of it."""
    match item.get("type", "message"):
        case "message":
            role = "system" if item.get("role") == "developer" else item.get("role")
            return _encode([role, _said(item.get("content"))])
        case "function_call":
            return _encode(["call", item.get("call_id"), item.get("name"), _parsed(item.get("arguments"))])
        case "function_call_output":
            return _encode(["output", item.get("call_id"), _said(item.get("output"))])
        case "reasoning":
            return _encode(["reasoning", _thought(item)])
        case _:
            return _encode(_bare(item))


def digests(elements: Iterable[bytes]) -> list[bytes]:
    """Digests of a conversation's beginnings: entry *n* identifies its first *n* elements."""
    found = [b""]
    for one in elements:
        found.append(blake2b(found[-1] + one, digest_size=16).digest())
    return found


class _Run:
    """Adjacent items of the model."""

    def __init__(self, start: int) -> None:
        self._start = start
        self._texts: list[Any] = []
        self._calls: list[bytes] = []
        self._thought = ""

    def take(self, item: Mapping[str, Any]) -> bool:
        """Add an item; False if it is not the model's."""
        match item.get("type", "message"):
            case "message" if item.get("role") == "assistant":
                said = _said(item.get("content"))
                if said:
                    self._texts.append(said)
            case "function_call":
                self._calls.append(element(item))
            case "reasoning":
                self._thought += _thought(item)
            case _:
                return False
        return True

    def elements(self) -> list[tuple[bytes, int]]:
        texts = self._texts
        if texts and all(isinstance(text, str) for text in texts):
            texts = ["".join(texts)]
        said = [_encode(["assistant", text]) for text in texts] + self._calls
        if not said and self._thought:
            said = [_encode(["reasoning", self._thought])]
        return [(one, self._start) for one in said]


def _thought(item: Mapping[str, Any]) -> str:
    return f"{_said(item.get('content'))}{_said(item.get('summary'))}"


def _said(content: object) -> Any:
    """A text, or a list of parts if the content has parts other than text."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        return content
    parts = cast("list[Any]", content)
    if all(isinstance(part, dict) and cast("Any", part).get("type") in _TEXTS for part in parts):
        return "".join(part.get("text") or "" for part in parts)
    return [_bare(part) for part in parts]


def _bare(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    fields = cast("dict[str, Any]", value)
    return {
        name: field
        for name, field in fields.items()
        if field is not None and name not in _BESIDE_THE_POINT and not name.endswith(("token_ids", "_probs"))
    }


def _parsed(arguments: object) -> Any:
    try:
        return _decode(cast("str", arguments) or "{}")
    except (TypeError, *UNREADABLE):
        return arguments

"""Gemini's computer tool, for clients that offer it, before an engine that knows functions only.

Its actions become the function ``computer`` (`computer`), what it does with pages the functions ``navigate``,
``go_back`` and ``go_forward``. Places are pixels of the screenshot that the model saw last, for the client on
a grid of 0 to 999. On a screen of more pixels two of them share a place, so what the model wrote is sent with
it as the part's signature, which clients send back: the model's history stays what it wrote. A call that is
no action stays one of the function ``computer``. Not offered are ``key_down`` and ``key_up``.
"""

from __future__ import annotations

from base64 import b64decode, b64encode, urlsafe_b64decode
from collections.abc import Collection, Sequence
from typing import Any

import msgspec
from gym_runtime.errors import UNREADABLE, TaskError
from gym_runtime.messages import FunctionCall
from msgspec import Raw

from gym_faces.dialects import computer, gemini_engine
from gym_faces.dialects.dialect import Asked
from gym_faces.dialects.pieces import encode

TOOL = "computerUse"
_PAGES: dict[str, tuple[str, dict[str, Any]]] = {
    "navigate": ("Open a page.", {"page": {"type": "string"}}),
    "go_back": ("Go back to the page before.", {}),
    "go_forward": ("Go forward to the page after.", {}),
}
_ACTIONS = {
    **dict(zip(computer.FROM_GEMINI.values(), computer.FROM_GEMINI, strict=True)),
    "type": "type",
    "left_click_drag": "drag_and_drop",
    "scroll": "scroll",
    "key": "press_key",
    "wait": "wait",
    "screenshot": "take_screenshot",
}
"""Our actions and Gemini's functions for them."""
_NATIVE = {*_ACTIONS.values(), *_PAGES, "hotkey"}


class _Tool(msgspec.Struct, rename="camel"):
    excluded_predefined_functions: list[str] | None = None


def offered(tools: Sequence[dict[str, Raw]]) -> tuple[list[dict[str, Any]], Collection[str]]:
    """The functions for the engine, and the names of those of Gemini's that they stand for; the computer tool
    is taken out of ``tools``.

    Raises:
        TaskError: it is not the tool's form.
    """
    given = [raw for tool in tools if (raw := tool.pop(TOOL, None)) is not None]
    if not given:
        return [], ()
    try:
        excluded = msgspec.json.decode(given[0], type=_Tool).excluded_predefined_functions or []
    except UNREADABLE as error:
        raise TaskError(f"tools.computerUse: {error}") from error
    native = _NATIVE - set(excluded)
    functions = [computer.function(ours for ours, theirs in _ACTIONS.items() if theirs in native)]
    for name, (description, properties) in _PAGES.items():
        if name in native:
            parameters = {"type": "object", "properties": properties, "required": [*properties]}
            about = {"name": name, "description": description, "parameters": parameters}
            functions.append({"type": "function", **about, "strict": False})
    return functions, native


def ours(name: str, native: Collection[str]) -> str:
    """The function that stands for one of Gemini's."""
    return computer.NAME if name in native and name not in _PAGES else name


def read_call(name: str, args: Raw, signature: str | None, size: computer.Size) -> tuple[str, str]:
    """A call of the model's in a client's conversation: the function and its arguments.

    Args:
        size: of the screenshot before it.
    """
    given = computer.decoded(args) or {}
    given.pop("safety_decision", None)
    written = _signed(signature)
    if written is not None and _theirs(ours(name, _NATIVE), written, size) == (name, given):
        return ours(name, _NATIVE), written
    found = computer.from_gemini(name, given, size) or (name, given)
    return found[0], encode(found[1]).decode()


def write_call(call: FunctionCall, asked: Asked) -> dict[str, Any] | None:
    """A call of the model's as the client gets it; None if it calls another tool than the computer tool."""
    if not asked.computer:
        return None
    found = _theirs(call.name, call.arguments, gemini_engine.shown(asked.call.input))
    if found is None:
        return None
    called = {"id": call.call_id, "name": found[0], "args": found[1]}
    return {"functionCall": called, "thoughtSignature": b64encode(call.arguments.encode()).decode()}


def _theirs(name: str, arguments: str, size: computer.Size) -> tuple[str, dict[str, Any]] | None:
    given = computer.decoded(arguments)
    if given is None:
        return None
    if name == "navigate":
        return name, {"url": given.get("page", "")}
    if name in _PAGES:
        return name, {}
    if name != computer.NAME:
        return None
    try:
        return computer.to_gemini(given, size)
    except ValueError:
        return None


def _signed(signature: str | None) -> str | None:
    try:
        # Clients decode it and encode it again, in either alphabet.
        decode = urlsafe_b64decode if signature and {"-", "_"} & set(signature) else b64decode
        return decode(signature or "").decode()
    except ValueError:  # another's
        return None

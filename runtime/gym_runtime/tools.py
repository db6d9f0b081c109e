"""Tools: methods of a session that a model may call, and their JSON schemas.

A tool's schema comes from its signature. What the model reads is what FastAPI would have sent: the
returned value as compact JSON, a 404 for an unknown name, a 422 with the reasons for arguments that do
not fit, a 500 for a tool that raised.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast, get_type_hints

import msgspec
import structlog

_log = structlog.get_logger()
_F = TypeVar("_F", bound=Callable[..., Any])

NOT_FOUND = '{"detail":"Not Found"}'
SERVER_ERROR = "Internal Server Error"


class Text(str):
    """A tool's answer that reaches the model as it is, not as a JSON string."""

    __slots__ = ()


class ToolError(Exception):
    """An answer that tells the model what it did wrong; its text reaches the model as it is."""


def tool(method: _F) -> _F:
    """Mark a method of a `Session` as a tool. It may be ``async``; it must be annotated.

    The arguments are checked against the annotations before the call. The docstring's first line is the
    tool's description.
    """
    method.__dict__["gym_tool"] = True
    return method


class Tool:
    """One tool of a session class: its schema, and how to call it."""

    def __init__(self, name: str, method: Callable[..., Any]) -> None:
        self.name = name
        self._method = method
        hints = get_type_hints(method)
        fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
        for parameter in list(inspect.signature(method).parameters.values())[1:]:
            annotation = hints.get(parameter.name, Any)
            if parameter.default is inspect.Parameter.empty:
                fields.append((parameter.name, annotation))
            else:
                fields.append((parameter.name, annotation, parameter.default))
        self._arguments = msgspec.defstruct(f"{name}_arguments", fields, kw_only=True)
        self._names = tuple(field[0] for field in fields)
        self._decode = msgspec.json.Decoder(self._arguments, strict=False).decode

    def definition(self) -> dict[str, Any]:
        """The tool as a Responses API function tool."""
        _, components = msgspec.json.schema_components([self._arguments], ref_template="#/$defs/{name}")
        schema = dict(components.pop(self._arguments.__name__))
        schema.pop("title", None)
        if components:
            schema["$defs"] = components
        schema.setdefault("properties", {})
        schema.setdefault("required", [])
        schema["additionalProperties"] = False
        return {
            "type": "function",
            "name": self.name,
            "description": (inspect.getdoc(self._method) or "").split("\n")[0],
            "parameters": schema,
            "strict": len(schema["required"]) == len(self._names),
        }

    async def call(self, session: object, arguments: str) -> str:
        """Call the tool; whatever happens becomes the text that the model reads."""
        try:
            decoded = self._decode(arguments)
        except msgspec.ValidationError as error:
            return validation_answer(str(error))
        except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
            return validation_answer(f"the arguments are not JSON: {error}")
        try:
            answer = self._method(session, **{name: getattr(decoded, name) for name in self._names})
            if inspect.isawaitable(answer):
                answer = await answer
            return render(answer)
        except ToolError as error:
            return str(error)
        except Exception:  # noqa: BLE001 - a tool's bug is the model's observation, and ours to log
            _log.exception("a tool raised", tool=self.name)
            return SERVER_ERROR


def validation_answer(reason: str) -> str:
    """What the model reads when its arguments do not fit."""
    detail = [{"type": "validation_error", "loc": ["body"], "msg": reason}]
    return msgspec.json.encode({"detail": detail}).decode()


def render(answer: object) -> str:
    """A tool's return value as the text that the model reads: compact JSON, or `Text` as it is."""
    return str(answer) if isinstance(answer, Text) else msgspec.json.encode(answer).decode()


def collect_tools(cls: type) -> dict[str, Tool]:
    """The tools of a session class, by name, in the order of their definition."""
    members: Iterable[tuple[str, Any]] = (
        (name, member) for base in reversed(cls.__mro__) for name, member in vars(base).items()
    )
    found = {
        name: Tool(name, cast("Callable[..., Any]", member))
        for name, member in members
        if callable(member) and getattr(member, "gym_tool", False)
    }
    return {name: found[name] for name in found if getattr(cls, name, None) is not None}

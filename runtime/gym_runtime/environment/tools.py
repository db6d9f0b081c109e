"""Tools: methods of a session that a model may call, and their JSON schemas.

A tool's schema comes from its signature. The model reads the body that FastAPI would have sent: the returned
value as compact JSON, that of a 404 for an unknown name, of a 422 with the reasons for wrong arguments, of a
500 for a tool that raised. An `Image`, or a list with images among texts, reaches it as content parts.

A tool pack has tools that any environment can take by name: ``Environment(tool_packs=("periodictable",))``.
It is a module of a package under the entry-point group ``gym_runtime.tools``, with a class ``Pack``. Packs
serve the model and nothing else: a verifier does not see their state, so their calls are not repeated when a
rollout is verified again.
"""

from __future__ import annotations

import inspect
import math
import re
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache, lru_cache
from typing import Any, ClassVar, NamedTuple, TypeVar, cast, get_type_hints, overload

import msgspec
from gym_sandbox.sandbox_errors import SandboxError

from gym_runtime.cancellation import contained, raised_at
from gym_runtime.environment.author_code import ToolError, translated
from gym_runtime.errors import UNREADABLE, GymError, ResourceError, UsageError, described
from gym_runtime.messages.images import Content, Image, text_part
from gym_runtime.messages.transcripts import encoded

_F = TypeVar("_F", bound=Callable[..., Any])
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode

NOT_FOUND = '{"detail":"Not Found"}'
SERVER_ERROR = "Internal Server Error"
VALIDATION = '{"detail":[{"type":"validation_error"'
"""How the answer to wrong arguments begins."""

SHOWN_CHARS = 200

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_INFINITE = re.compile(r'"[+-]?(nan|inf|infinity)"', re.IGNORECASE)


class Heard(NamedTuple):
    """What went wrong with calls of tools, in words.

    Attributes:
        raised: ``deposit raised ValueError: boom (FILE:LINE)``, or that it returned what no model should read
        refused: ``deposit({"amount": -1}) was refused: REASON``, what the model was told
    """

    raised: list[str]
    refused: list[str]


_heard: ContextVar[Heard | None] = ContextVar("heard", default=None)


class Text(str):
    """A tool's answer that the model gets as it is, not as a JSON string."""

    __slots__ = ()


Adapt = Callable[[str, dict[str, Any], tuple[str, ...]], dict[str, Any]]


@overload
def tool(method: _F, /) -> _F: ...
@overload
def tool(*, name: str = "", adapt: Adapt | None = None) -> Callable[[_F], _F]: ...
def tool(
    method: _F | None = None, /, *, name: str = "", adapt: Adapt | None = None
) -> _F | Callable[[_F], _F]:
    """Mark a method of a `Session` or a `ToolPack` as a tool. It may be ``async``; all its parameters must be
    annotated.

    The arguments are checked against the annotations before the call; ``Annotated`` with
    `msgspec.Meta` describes and limits them. The docstring's first paragraph is the tool's description.

    Args:
        name: how the model calls it, if not by the method's name: up to 64 letters, digits, ``_``, ``-`` and
            ``.``.
        adapt: gets the tool's name, the arguments before they are checked, and the parameters' names, and
            returns the arguments to check; a `ToolError` from it answers the call. For environments that
            accept more than their schemas say.

    Raises:
        UsageError: it is no function, such as a ``staticmethod`` or a ``property``.
    """

    def mark(method: _F) -> _F:
        if not inspect.isfunction(cast("object", method)):
            raise UsageError(f"@tool marks a method, which has self, and not {method!r}")
        method.__dict__["gym_tool"] = name or method.__name__
        method.__dict__["gym_adapt"] = adapt
        return method

    return mark if method is None else mark(method)


class Tool:
    """One tool of a session class: its schema, and how to call it.

    Raises:
        UsageError: a parameter has no annotation, or one without a JSON schema; or no model can call a tool
            of this name.
    """

    def __init__(self, name: str, method: Callable[..., Any]) -> None:
        if not _NAME.fullmatch(name):
            allowed = "1 to 64 letters, digits, '_', '-' and '.'"
            raise UsageError(f"{place(method)}the tool's name is {name!r}; it must be {allowed}")
        self.name = name
        self._method = method
        fields = _fields(name, method)
        self._arguments = msgspec.defstruct(f"{name}_arguments", fields, kw_only=True)
        self._names = tuple(field[0] for field in fields)
        self._adapt = cast("Adapt | None", method.__dict__.get("gym_adapt"))
        self._decode_strictly = msgspec.json.Decoder(self._arguments, strict=False).decode

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
            "description": " ".join((inspect.getdoc(self._method) or "").partition("\n\n")[0].split("\n")),
            "parameters": schema,
            "strict": len(schema["required"]) == len(self._names),
        }

    async def call(self, session: object, arguments: str) -> Content:
        """Call the tool; wrong arguments and the tool's own exceptions become the text that the model reads.

        Raises:
            GymError: a part that the tool needs (a judge, another worker) failed, or the tool's code raised a
                cancellation; the model did not cause it.
        """
        try:
            decoded = self._decode(arguments)
        except ToolError as error:
            return refused(self.name, arguments, str(error))
        except msgspec.ValidationError as error:
            return validation_answer(refused(self.name, arguments, str(error)))
        except UNREADABLE as error:
            return validation_answer(refused(self.name, arguments, f"the arguments are not JSON: {error}"))
        returned = False
        try:
            async with contained(ResourceError, "tool"):
                answer = self._method(session, **{name: getattr(decoded, name) for name in self._names})
                if inspect.isawaitable(answer):
                    answer = await answer
            returned = True
            content, heard = shown(answer), _heard.get()
            if heard is not None and _has_bytes(answer):
                what = "returned bytes, which the model reads in base64: decode them"
                heard.raised.append(f"{place(self._method)}{self.name} {what}")
            return content
        except ToolError as error:
            return refused(self.name, arguments, str(error))
        except SandboxError as error:
            raise translated(error) from error
        except GymError:
            raise
        # The model observes a tool's bug, and the log reports it. `sys.exit` would end the worker.
        except (Exception, SystemExit) as error:  # noqa: BLE001
            from gym_runtime.logs import logger  # heavy, and a listing of all environments needs no log

            logger().exception("a tool raised", tool=self.name)
            heard = _heard.get()
            if heard is not None:
                heard.raised.append(
                    f"{place(self._method)}{self.name} returned what is not JSON: {error}"
                    if returned
                    else f"{self.name} raised {described(error)} ({raised_at(error.__traceback__)})"
                )
            return SERVER_ERROR

    def _decode(self, arguments: str) -> Any:
        if self._adapt is None:
            decoded = self._decode_strictly(arguments)
        else:
            given = self._adapt(self.name, _decode_object(arguments), self._names)
            decoded = msgspec.convert(given, self._arguments, strict=False)
        # A text is taken for a number, and "nan" is one: no comparison with it holds, say of an amount with a
        # balance.
        if _INFINITE.search(arguments) and not _is_finite(msgspec.to_builtins(decoded)):
            raise msgspec.ValidationError("Expected a finite number")
        return decoded


def _has_bytes(value: object) -> bool:
    """Whether there are bytes within a value of dicts and lists."""
    if isinstance(value, dict):
        return any(map(_has_bytes, cast("dict[Any, object]", value).values()))
    if isinstance(value, list | tuple):
        return any(map(_has_bytes, cast("Sequence[object]", value)))
    return isinstance(value, bytes | bytearray)


def _is_finite(value: object) -> bool:
    """Whether all numbers within a value of JSON are finite."""
    if isinstance(value, dict):
        return all(map(_is_finite, cast("dict[Any, object]", value).values()))
    if isinstance(value, list | tuple | set | frozenset):
        return all(map(_is_finite, cast("Sequence[object]", value)))
    return not isinstance(value, float) or math.isfinite(value)


_Fields = list[tuple[str, Any] | tuple[str, Any, Any]]


def _fields(name: str, method: Callable[..., Any]) -> _Fields:
    """The parameters of a tool without ``self``, as fields of a struct."""

    def refused(problem: str) -> UsageError:
        return UsageError(f"{place(method)}the tool '{name}' {problem}")

    try:
        hints = get_type_hints(method, include_extras=True)
    except NameError as error:
        raise refused(f"has an annotation that cannot be resolved: {error}") from error
    fields: _Fields = []
    parameters = list(inspect.signature(method).parameters.values())
    if not parameters:
        raise refused("has no parameter self; it must be a method")
    for parameter in parameters[1:]:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise refused(f"takes '{parameter}', but a model passes arguments by name; name each one")
        if parameter.name not in hints:
            raise refused(f"does not annotate '{parameter.name}'; add its type")
        annotation = hints[parameter.name]
        has_default = parameter.default is not inspect.Parameter.empty
        fields.append(
            (parameter.name, annotation, parameter.default) if has_default else (parameter.name, annotation)
        )
    for field in fields if fields and _without_schema(name, fields) else ():  # one by one, to name it
        if reason := _without_schema(name, [field]):
            shown = inspect.formatannotation(field[1])
            remedy = "take a dataclass, a TypedDict, a msgspec.Struct or a plain type"
            raise refused(f"takes '{field[0]}: {shown}', which has no JSON schema: {reason}; {remedy}")
    return fields


def _without_schema(name: str, fields: _Fields) -> str:
    """Why there is no JSON schema of these parameters; empty if there is one."""
    try:
        msgspec.json.schema(msgspec.defstruct(name, fields, kw_only=True))
    except TypeError as error:
        return str(error).splitlines()[-1].strip()
    return ""


def place(code: Callable[..., Any]) -> str:
    """``FILE:LINE: `` of a function or class, as the beginning of an error message; empty if unknown."""
    with suppress(TypeError, OSError):
        return f"{inspect.getsourcefile(code)}:{inspect.getsourcelines(code)[1]}: "
    return ""


@contextmanager
def hearing() -> Generator[Heard]:
    """Collect what goes wrong with calls of tools within the context."""
    heard = Heard([], [])
    token = _heard.set(heard)
    try:
        yield heard
    finally:
        _heard.reset(token)


def refused(name: str, arguments: str, reason: str) -> str:
    """The reason why a call was refused; `hearing` hears it."""
    if (heard := _heard.get()) is not None:
        shown = arguments if len(arguments) <= SHOWN_CHARS else f"{arguments[:SHOWN_CHARS]}…"
        heard.refused.append(f"{name}({shown}) was refused: {reason}")
    return reason


def validation_answer(reason: str) -> str:
    """The text that the model reads when its arguments are wrong."""
    detail = [{"type": "validation_error", "loc": ["body"], "msg": reason}]
    return encoded({"detail": detail}).decode()


def render(answer: object) -> str:
    """A tool's return value as the text that the model reads: compact JSON, or `Text` as it is."""
    return str(answer) if isinstance(answer, Text) else encoded(answer).decode()


def shown(answer: object) -> Content:
    """A tool's return value as the model gets it: as `render`, or as parts where there is an image."""
    several = cast("Sequence[object]", answer if isinstance(answer, list | tuple) else [answer])
    return (
        parts_of(several)
        if any(isinstance(one, Image) for one in several)
        else render(cast("object", answer))
    )


def parts_of(answer: Sequence[object]) -> list[dict[str, Any]]:
    """Texts and images as content parts; a value of another type is a text as JSON."""
    return [
        one.part()
        if isinstance(one, Image)
        else text_part(one if isinstance(one, str) else encoded(one).decode())
        for one in answer
    ]


def collect_tools(cls: type) -> dict[str, Tool]:
    """The tools of a class, by name, in the order of their definition.

    Raises:
        UsageError: two methods have the same name for the model, or one is no method of an instance, or takes
            the place of a method that the runtime calls.
    """
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        for name, one in cast("Mapping[str, Any]", vars(base)).items():
            if not _is_marked(one):
                continue
            if not inspect.isfunction(one):
                kind = type(one).__name__
                raise UsageError(
                    f"{cls.__name__}.{name} is a {kind}; a tool must be a method, which has self"
                )
            found[name] = one
    tools: dict[str, Tool] = {}
    for name, one in found.items():
        if getattr(cls, name, None) is None:
            continue
        for base in cls.__mro__:
            if base.__module__.startswith("gym_runtime.environment.") and name in vars(base):
                remedy = f'name it otherwise, as in @tool(name="{one.gym_tool}") def {name}_it(self, …)'
                what = f"the tool '{name}' would replace {base.__name__}.{name}, which is not for the model"
                raise UsageError(f"{place(one)}{what}; {remedy}")
        if one.gym_tool in tools:
            raise UsageError(f"{place(one)}{cls.__name__} has two tools with the name '{one.gym_tool}'")
        tools[one.gym_tool] = Tool(one.gym_tool, one)
    return tools


def _is_marked(one: object) -> bool:
    inner = one.fget if isinstance(one, property) else one
    if isinstance(one, staticmethod | classmethod):
        inner = cast("Any", one).__func__
    return hasattr(inner, "gym_tool")


class ToolPack:
    """Tools beside an environment's own: a class with ``@tool`` methods.

    A session makes its instance when the model first calls one of the tools.

    Attributes:
        extra: the extra of the distribution that its imports need, if any.
        data_license: the licence of the data behind the tools' answers.
        timeouts: its calls that were stopped at their time limit; the pack counts them.
    """

    extra: ClassVar[str] = ""
    data_license: ClassVar[str] = ""
    timeouts: int = 0

    async def close(self) -> None:
        """Release the pack's resources; runs once, when the session ends."""


@cache
def tools_of(pack: type[ToolPack]) -> dict[str, Tool]:
    """The tools of a pack, by the names that the model uses."""
    return collect_tools(pack)


class ToolPacks:
    """The packs of one session.

    Attributes:
        calls: the calls of their tools so far.
        seconds: the time that these took.
    """

    def __init__(self, packs: Mapping[str, type[ToolPack]] | None = None) -> None:
        self.calls = 0
        self.seconds = 0.0
        self._packs: dict[str, type[ToolPack]] = {}
        self._of_tool: dict[str, str] = {}
        self._used: dict[str, ToolPack] = {}
        for name, pack in (packs or {}).items():
            self.take(name, pack)

    def take(self, name: str, pack: type[ToolPack]) -> None:
        """Take a further pack; one that is there already stays.

        Raises:
            UsageError: another pack has a tool of the same name.
        """
        if name in self._packs:
            return
        for tool in tools_of(pack).keys() & self._of_tool.keys():
            raise UsageError(f"the tool packs '{self._of_tool[tool]}' and '{name}' both have a tool '{tool}'")
        self._of_tool |= dict.fromkeys(tools_of(pack), name)
        self._packs[name] = pack

    def __contains__(self, tool: str) -> bool:
        return tool in self._of_tool

    @property
    def tools(self) -> dict[str, Tool]:
        """All their tools, by name."""
        return {name: tool for pack in self._packs.values() for name, tool in tools_of(pack).items()}

    @property
    def timeouts(self) -> int:
        """The calls that were stopped at their time limit."""
        return sum(pack.timeouts for pack in self._used.values())

    async def call(self, tool: str, arguments: str) -> Content:
        """What the model reads, also if its call is wrong.

        Raises:
            GymError: something that the tool needs failed; the model did not cause it.
        """
        name = self._of_tool[tool]
        pack = self._used.get(name)
        if pack is None:
            pack = self._used[name] = self._packs[name]()
        started_s = time.monotonic()
        try:
            return await tools_of(self._packs[name])[tool].call(pack, arguments)
        finally:
            self.calls += 1
            self.seconds += time.monotonic() - started_s

    @property
    def idle(self) -> bool:
        """Whether no pack holds anything."""
        return not self._used

    async def close(self) -> None:
        """Release the packs' resources."""
        while self._used:
            await self._used.popitem()[1].close()


# -- JSON schemas of tools' parameters -----------------------------------------------------------------
# The check finds the mistakes that occur in schemas written by hand; engines report others. The arguments are
# for engines that only simulate a language model: the same schema gives the same ones, with required
# properties only.

JSON_TYPES = {"string", "number", "integer", "boolean", "array", "object", "null"}


def schema_problems(schema: Mapping[str, Any], where: str = "parameters") -> Iterator[str]:
    """The reasons why engines would refuse an object as the JSON schema of a function's parameters."""
    kinds = schema.get("type")
    listed = cast("list[Any]", kinds) if isinstance(kinds, list) else [kinds]
    if where == "parameters" and kinds != "object":
        yield f"{where} must be of type object"
    elif not all(kind is None or kind in JSON_TYPES for kind in listed):
        yield f"{where} has the unknown type {kinds!r}"
    properties = schema.get("properties", {})
    if not isinstance(properties, dict):
        yield f"{where}.properties is not an object"
        return
    inner = cast("Mapping[str, Any]", properties)
    missing = [name for name in schema.get("required", ()) if name not in inner]
    if missing:
        yield f"{where} requires {', '.join(map(str, missing))}, which its properties do not describe"
    for name, member in [*inner.items(), *([("[]", schema["items"])] if "items" in schema else [])]:
        if isinstance(member, dict):
            yield from schema_problems(cast("Mapping[str, Any]", member), f"{where}.{name}")
        elif not isinstance(member, bool):
            yield f"{where}.{name} is not a schema"


_STRINGS = {
    "date": "2025-01-01",
    "date-time": "2025-01-01T00:00:00Z",
    "time": "00:00:00",
    "email": "ada@example.com",
    "uri": "https://example.com",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
_NAMED = {"city": "San Francisco", "location": "San Francisco"}
_MAX_DEPTH = 8


def example(schema: Mapping[str, Any]) -> Any:
    """A value that satisfies the schema, if the schema uses only common keywords.

    >>> example({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]})
    {'city': 'San Francisco'}
    >>> example({"type": "array", "items": {"type": "integer", "minimum": 3}, "minItems": 2})
    [3, 3]
    """
    return _example(schema, "", schema, 0)


def _example(schema: Mapping[str, Any], name: str, root: Mapping[str, Any], depth: int) -> Any:
    if depth > _MAX_DEPTH:
        return None
    if isinstance(ref := schema.get("$ref"), str):
        return _example(_resolve(ref, root), name, root, depth + 1)
    for keyword in ("const", "default"):
        if keyword in schema:
            return schema[keyword]
    for keyword in ("enum", "examples"):
        if schema.get(keyword):
            return schema[keyword][0]
    for keyword in ("anyOf", "oneOf", "allOf"):
        choices = cast("list[dict[str, Any]]", schema.get(keyword) or [])
        if choices:
            chosen = next((choice for choice in choices if choice.get("type") != "null"), choices[0])
            return _example(chosen, name, root, depth + 1)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    if isinstance(kind, list):
        kinds = cast("list[str]", kind)
        kind = next((one for one in kinds if one != "null"), "null")
    match kind:
        case "object":
            properties = cast("dict[str, dict[str, Any]]", schema.get("properties") or {})
            required = cast("list[str]", schema.get("required") or [])
            return {key: _example(properties.get(key, {}), key, root, depth + 1) for key in required}
        case "array":
            item = cast("dict[str, Any]", schema.get("items") or {})
            return [_example(item, name, root, depth + 1)] * int(schema.get("minItems", 1))
        case "integer" | "number":
            return _number(schema)
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return _string(schema, name)


def _resolve(ref: str, root: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Any = root
    for key in ref.removeprefix("#/").split("/"):
        found = cast("Mapping[str, Any]", found).get(key, {})
    return cast("Mapping[str, Any]", found)


def _number(schema: Mapping[str, Any]) -> float:
    if "minimum" in schema:
        return schema["minimum"]
    if "exclusiveMinimum" in schema:
        return schema["exclusiveMinimum"] + 1
    return min(1, schema.get("maximum", 1))


def _string(schema: Mapping[str, Any], name: str) -> str:
    text = _STRINGS.get(schema.get("format", "")) or _NAMED.get(name) or name or "text"
    return text.ljust(int(schema.get("minLength", 0)), "x")[: int(schema.get("maxLength", len(text) + 64))]


class ToolHead(msgspec.Struct, frozen=True):
    """The fields of a function tool that a call needs, in the Responses or the Chat format."""

    name: str = ""
    parameters: dict[str, Any] | None = None
    function: ToolHead | None = None


_decode_tool = msgspec.json.Decoder(ToolHead).decode


@lru_cache(maxsize=1024)
def example_call(tool: bytes) -> tuple[str, str]:
    """The name of a tool, in either format, and arguments that satisfy its schema, as JSON text."""
    head = _decode_tool(tool)
    head = head.function or head
    arguments = example(head.parameters or {"type": "object"})
    return head.name, msgspec.json.encode(arguments if isinstance(arguments, dict) else {}).decode()

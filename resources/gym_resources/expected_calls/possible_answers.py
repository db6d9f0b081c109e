"""Whether calls match functions' possible answers: for each parameter, the list of values that are right.

The empty text among the values says that the parameter may be left out. A value must have the parameter's
type, or that of the first possible value (then it stands for a variable, and must be equal to one of them).
An integer will do for a float. Texts, alone or in lists and objects, are compared without case, spaces and
``, . / - _ * ^``, a single quote being a double one. Lists must agree in order; objects and lists of objects
have possible values for each key.

Functions in Java and JavaScript get all arguments as texts in their language's syntax, which are read first
(`java_values`, `javascript_values`).

Source: the rules of ``ast_checker.py`` of the Berkeley Function Calling Leaderboard
(github.com/ShishirPatil/gorilla, Apache-2.0), as they are; the code is our own. One thing differs: where a
value raises an error there, it is wrong here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, cast

import msgspec
from gym_runtime.messages import FunctionCall

from gym_resources.expected_calls import java_values, javascript_values
from gym_resources.extract import jsons

Possible = Mapping[str, Mapping[str, list[Any]]]
"""One function's name and its parameters' possible values."""

KINDS: dict[str, type] = {
    "string": str,
    "integer": int,
    "float": float,
    "boolean": bool,
    "array": list,
    "tuple": list,
    "dict": dict,
    "any": str,
}
_LISTS = ("array", "tuple")
Language = Literal["python", "java", "javascript"]
_SYNTAX = {"java": java_values, "javascript": javascript_values}
LITERAL_CHARS_AT_MOST = 20_000
"""A longer argument in Java or JavaScript is wrong."""
_encode = msgspec.json.Encoder(order="sorted").encode
_IGNORED = str.maketrans({**dict.fromkeys(" ,./-_*^"), "'": '"'})


class Parameters(msgspec.Struct, frozen=True):
    """A function's parameters: each one's schema, in Gorilla's types."""

    properties: dict[str, dict[str, Any]] = {}
    required: list[str] = []


class Function(msgspec.Struct, frozen=True):
    """A function's description."""

    name: str
    parameters: Parameters = Parameters()
    description: str = ""


class MadeCall(msgspec.Struct, frozen=True):
    """A call that a model made; ``arguments`` is None where they are not a JSON object."""

    name: str
    arguments: dict[str, Any] | None


def plain_name(name: str) -> str:
    """A function's name as models are given it: without dots.

    >>> plain_name("math.factorial")
    'math_factorial'
    """
    return name.replace(".", "_")


def all_match(
    calls: Sequence[MadeCall],
    functions: Sequence[Function],
    wanted: Sequence[Possible],
    language: Language = "python",
) -> bool:
    """Whether the calls are the wanted ones, in any order.

    Each wanted call takes the first call left that matches it.
    """
    if len(calls) != len(wanted):
        return False
    known = {function.name: function for function in functions}
    left = list(calls)
    for possible in wanted:
        ((name, answers),) = possible.items()
        match = next(
            (i for i, call in enumerate(left) if matches(call, known[name], answers, language)), None
        )
        if match is None:
            return False
        del left[match]
    return True


def matches(
    call: MadeCall, function: Function, answers: Mapping[str, list[Any]], language: Language = "python"
) -> bool:
    """Whether a call is of this function and each of its arguments is right."""
    given, properties = call.arguments, function.parameters.properties
    if given is None or call.name != plain_name(function.name):
        return False
    if not all(name in given for name in function.parameters.required):
        return False
    if not all(name in given or "" in possible for name, possible in answers.items()):
        return False
    return all(
        name in properties and name in answers and right(value, properties[name], answers[name], language)
        for name, value in given.items()
    )


def made(calls: Iterable[FunctionCall]) -> list[MadeCall]:
    """A model's calls with their arguments as values."""
    return [MadeCall(call.name, _object_of(call.arguments)) for call in calls]


def _object_of(text: str) -> dict[str, Any] | None:
    value = jsons.loads(text)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def well_formed(calls: Sequence[MadeCall], functions: Sequence[Function]) -> bool:
    """Whether no call is made twice, and each is `_well_formed`."""
    distinct = {_encode(call) for call in calls}
    return len(distinct) == len(calls) and all(_well_formed(call, functions) for call in calls)


def _well_formed(call: MadeCall, functions: Sequence[Function]) -> bool:
    """Whether a call is of one of the functions, with all parameters that it requires and no unknown one."""
    given = call.arguments
    return given is not None and any(
        call.name == plain_name(function.name)
        and set(function.parameters.required) <= given.keys() <= function.parameters.properties.keys()
        for function in functions
    )


def right(value: Any, schema: Mapping[str, Any], possible: list[Any], language: Language = "python") -> bool:
    """Whether an argument has its parameter's type and one of the possible values."""
    name, syntax = schema["type"], _SYNTAX.get(language)
    kinds, lists_of = (syntax.KINDS, syntax.LISTS) if syntax else (KINDS, _LISTS)
    kind = kinds.get(name, str)
    items = schema.get("items") if name in lists_of else None
    nested = kinds.get(items.get("type", "any"), str) if items else None
    if syntax is not None:
        if not isinstance(value, str) or len(value) > LITERAL_CHARS_AT_MOST:
            return False
        value = syntax.value(value, name, items.get("type", "any") if items else "")
    elif kind is float and type(value) is int:
        try:
            value = float(value)
        except OverflowError:
            return False
    if not _has_type(value, possible, kind, nested):
        return False
    first = _first_type(possible)
    if first is not None and first is not kind:
        return value in possible  # it stands for a variable
    if kind is dict:
        return _right_object(value, possible)
    lists = [cast("Sequence[Any]", one) for one in possible if isinstance(one, list | str)]
    if kind is list and nested is dict:
        return any(_right_objects(value, one) for one in lists)
    if kind is str:
        return _plain(value) in [_plain(one) for one in possible if isinstance(one, str)]
    if kind is list:
        return _plain_list(value) in map(_plain_list, lists)
    return value in possible


def _has_type(value: Any, possible: list[Any], kind: type, nested: type | None) -> bool:
    if type(value) is not kind:
        return _first_type(possible) is type(value)
    if nested is None:
        return True
    for one in possible:
        if not isinstance(one, list):
            return True
        values = cast("list[Any]", one)
        if all(_has_type(element, values, nested, None) for element in value):
            return True
    return False


def _first_type(possible: list[Any]) -> type | None:
    """The type of the first possible value that is not the mark of a parameter that may be left out."""
    return next((one.__class__ for one in possible if one != ""), None)


def _right_objects(values: list[Any], possible: Sequence[Any]) -> bool:
    return len(values) == len(possible) and all(
        isinstance(value, dict) and _right_object(cast("dict[str, Any]", value), [one])
        for value, one in zip(values, possible, strict=True)
    )


def _right_object(value: dict[str, Any], possible: list[Any]) -> bool:
    for one in possible:
        if not isinstance(one, dict):
            continue
        keys = cast("dict[str, list[Any]]", one)
        complete = all(key in value or "" in values for key, values in keys.items())
        if complete and all(
            key in keys and _plain(given) in map(_plain, keys[key]) for key, given in value.items()
        ):
            return True
    return False


def _plain(value: Any) -> Any:
    """A text without what does not matter; any other value as it is."""
    return value.translate(_IGNORED).lower() if isinstance(value, str) else value


def _plain_list(values: Sequence[Any]) -> list[Any]:
    return [_plain(value) for value in values]

"""Values, texts and programs with one change, and what is known of them: parts of mutations."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from typing import Any, cast


def other_digit(text: str, place: int) -> str:
    digit = text[place]
    other = "1" if not digit.isdigit() else str((int(digit) + 1) % 10 or 1)
    return text[:place] + other + text[place + 1 :]


def other_values(value: Any) -> list[Any]:
    match value:
        case bool():
            return [not value]
        case int() | float():
            return [value + 1, -value - 1, *([-value] if value else [])]
        case str():
            return [f"{value}x", ""] if value else ["x"]
        case list():
            return [[*cast("list[Any]", value), "x"], cast("list[Any]", value)[:-1]] if value else [["x"]]
        case None:
            return ["x"]
        case _:
            return [{"x": 1}]


def _other_forms(value: Any) -> list[Any]:
    """A value in other types that look alike."""
    match value:
        case bool():
            return [int(value), str(value).lower()]
        case int() | float():
            return [str(value), True]
        case list():
            return [[{"x": 1}], None]
        case _:
            return [None]


def violates(value: Any, schema: Any) -> bool:
    """Whether a value certainly violates a JSON schema; what this does not know counts as kept.

    >>> violates({"a": True}, {"properties": {"a": {"type": "integer"}}}), violates({}, {"required": ["a"]})
    (True, True)
    """
    if not isinstance(schema, dict) or "$ref" in schema or "anyOf" in schema or "oneOf" in schema:
        return False
    rules = cast("dict[str, Any]", schema)
    kinds = rules.get("type", [])
    if kinds and not any(_is_a(value, kind) for kind in ([kinds] if isinstance(kinds, str) else kinds)):
        return True
    if "enum" in rules and value not in rules["enum"]:
        return True
    if isinstance(value, dict):
        fields, known = cast("dict[str, Any]", value), cast("dict[str, Any]", rules.get("properties", {}))
        closed = rules.get("additionalProperties") is False and "patternProperties" not in rules
        if set(rules.get("required", [])) - set(fields) or (closed and set(fields) - set(known)):
            return True
        return any(violates(one, known.get(name)) for name, one in fields.items())
    if isinstance(value, list):
        elements = cast("list[Any]", value)
        too_few = len(elements) < int(rules.get("minItems", 0))
        return too_few or any(violates(one, rules.get("items")) for one in elements)
    return False


def _is_a(value: Any, kind: Any) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    types: dict[Any, tuple[type, ...]] = {
        "object": (dict,), "array": (list,), "string": (str,), "number": (int, float), "null": (type(None),),
        "integer": (int, float), "boolean": (bool,),
    }  # fmt: skip
    return kind not in types or isinstance(value, types[kind])


def holds(value: Any, wanted: Any) -> bool:
    """Whether a value is or holds another one, also as JSON in a text."""
    if value == wanted:
        return True
    if isinstance(value, str):
        try:
            return value.lstrip().startswith(("{", "[")) and holds(json.loads(value), wanted)
        except (ValueError, RecursionError):
            return False
    if isinstance(value, dict):
        return any(holds(one, wanted) for one in cast("dict[str, Any]", value).values())
    return isinstance(value, list) and any(holds(one, wanted) for one in cast("list[Any]", value))


def selected(query: str) -> list[str]:
    """The columns that a plain query selects, as they are written; none if that cannot be told."""
    found = re.match(r"(?is)\s*SELECT\s+(?!DISTINCT\b)(.*?)\bFROM\b", query)
    if not found or "*" in re.sub(r"(?i)count\(\s*\*\s*\)", "", found[1]) or "'" in found[1]:
        return []
    columns, depth = [""], 0
    for letter in found[1]:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            columns.append("")
        else:
            columns[-1] += letter
    return [one.strip() for one in columns] if depth == 0 else []


def arguments_of(call: dict[str, Any]) -> dict[str, Any]:
    try:
        found: Any = json.loads(call["arguments"])
    except ValueError:
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def rewritten(call: dict[str, Any], arguments: Any) -> dict[str, Any]:
    return {**call, "arguments": json.dumps(arguments, ensure_ascii=False)}


def reordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reordered(one) for key, one in reversed(cast("dict[str, Any]", value).items())}
    if isinstance(value, list):
        return [reordered(one) for one in cast("list[Any]", value)]
    return value


def json_mutants(value: Any) -> Iterator[tuple[str, Any]]:
    """Values with one change, at the top or one level below."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        for name, one in list(fields.items())[:6]:
            yield "less", {key: other for key, other in fields.items() if key != name}
            for other in other_values(one):
                yield "value", {**fields, name: other}
            yield "type", {**fields, name: {"wrong": ["type"]}}
            yield from (("form", {**fields, name: other}) for other in _other_forms(one))
        yield "more", {**fields, "surplus_by_audit": 1}
    elif isinstance(value, list) and value:
        elements = cast("list[Any]", value)
        yield "less", elements[:-1]
        yield "more", [*elements, elements[-1]]
        for what, first in json_mutants(elements[0]):
            yield what, [first, *elements[1:]]
    else:
        yield from (("value", other) for other in other_values(value))


_SWAPPED: dict[type[ast.AST], type[Any]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


def mutable(node: ast.AST) -> bool:
    match node:
        case ast.Compare(ops=[op, *_]) | ast.BinOp(op=op) | ast.BoolOp(op=op):
            return type(op) in _SWAPPED
        case ast.Constant(value=value):
            return type(value) is int
        case _:
            return False


def mutate(node: ast.AST) -> None:
    match node:
        case ast.Compare():
            node.ops[0] = _SWAPPED[type(node.ops[0])]()
        case ast.BinOp() | ast.BoolOp():
            node.op = _SWAPPED[type(node.op)]()
        case ast.Constant(value=int(value)):
            node.value = value + 1
        case _:
            pass


def unparsed(tree: ast.AST) -> str:
    return ast.unparse(ast.fix_missing_locations(tree))

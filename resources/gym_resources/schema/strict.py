"""Strict schemas, what is wrong with a schema, and what is wrong with a value that does not meet one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

_TYPES = {"array", "boolean", "integer", "null", "number", "object", "string"}
_SCHEMA = {"items", "additionalProperties", "unevaluatedProperties", "contains", "not", "if", "then", "else"}
_SCHEMAS = {"anyOf", "allOf", "oneOf", "prefixItems"}
_NAMED_SCHEMAS = {"properties", "patternProperties", "$defs", "dependentSchemas"}


def strict(schema: Any) -> Any:
    """A schema whose objects have all the properties that they name, and no others.

    ``required`` and ``additionalProperties`` beside ``properties`` are replaced in every such object, under
    ``not`` and ``if`` too, and even where ``properties`` is the name of a property. Lists stay unchanged, so
    schemas under ``anyOf`` and the like stay as lax as they were.

    >>> strict({"properties": {"a": {"type": "string"}}, "required": []})
    {'properties': {'a': {'type': 'string'}}, 'required': ['a'], 'additionalProperties': False}
    """
    if not isinstance(schema, dict):
        return schema
    given = cast("dict[str, Any]", schema)
    result = {keyword: strict(value) for keyword, value in given.items()}
    if isinstance(given.get("properties"), dict):
        result["required"] = list(given["properties"])
        result["additionalProperties"] = False
    return result


def misformed(schema: object, path: str = "$") -> str | None:
    """Where and why a schema is invalid; None if no error is found.

    Fast enough for every row of a data set, hence incomplete: `violation` checks the rest.
    """
    if isinstance(schema, bool):
        return None
    if not isinstance(schema, dict):
        return f"{path} is no schema: {schema!r:.100}"
    given = cast("dict[str, Any]", schema)
    kinds = given.get("type", [])
    for kind in cast("list[object]", kinds) if isinstance(kinds, list) else [kinds]:
        if kind not in _TYPES:
            return f"{path}: there is no type {kind!r:.100}"
    try:
        re.compile(given.get("pattern", ""))
    except (re.error, TypeError, OverflowError, RecursionError) as error:
        return f"{path}: the pattern {given['pattern']!r:.100} is no expression: {error}"
    found = (misformed(inner, f"{path}.{place}") for place, inner in _subschemas(given))
    return next(filter(None, found), None)


def _subschemas(schema: dict[str, Any]) -> Iterator[tuple[str, object]]:
    for keyword, value in schema.items():
        if keyword in _SCHEMA:
            yield keyword, value
        elif keyword in _SCHEMAS and isinstance(value, list):
            yield from ((f"{keyword}[{n}]", inner) for n, inner in enumerate(cast("list[object]", value)))
        elif keyword in _NAMED_SCHEMAS and isinstance(value, dict):
            named = cast("dict[str, object]", value)
            yield from ((f"{keyword}.{name}", inner) for name, inner in named.items())


def violation(value: Any, schema: dict[str, Any]) -> str | None:
    """Where and how a value first fails to meet a schema (draft 2020-12); None if it meets it.

    Raises:
        ValueError: the schema is invalid, or has a reference to a definition outside it.
    """
    from jsonschema.exceptions import SchemaError
    from referencing.exceptions import Unresolvable

    try:
        validator = _validator(json.dumps(schema))
    except SchemaError as error:
        raise ValueError(f"SchemaError: {error}"[:300]) from error
    try:
        error = next(validator.iter_errors(value), None)
        return None if error is None else f"{error.json_path}: {error.message}"[:300]
    except Unresolvable as error:
        raise ValueError(f"{type(error).__name__}: {error}"[:300]) from error
    except RecursionError:
        return "$: nested too deeply"
    except (ValueError, ArithmeticError) as error:
        # The value causes this error, not the schema: an integer of thousands of digits can be neither
        # printed in the message nor divided by a float.
        return f"$: cannot be validated: {error}"[:300]


@lru_cache(maxsize=128)
def _validator(schema: str) -> Draft202012Validator:
    """A schema's validator, kept because checking the schema takes far longer than checking a value."""
    from jsonschema import Draft202012Validator
    from referencing import Registry

    document = json.loads(schema)
    Draft202012Validator.check_schema(document)
    offline: Registry[Any] = Registry()
    return Draft202012Validator(document, registry=offline)

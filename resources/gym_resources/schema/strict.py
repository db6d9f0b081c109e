"""Strict schemas, and what is wrong with a value that does not meet one."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

_SCHEMA = {"items", "additionalProperties", "unevaluatedProperties", "contains", "then", "else"}
_SCHEMAS = {"anyOf", "allOf", "oneOf", "prefixItems", "items"}
_NAMED_SCHEMAS = {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}


def strict(schema: Any) -> Any:
    """A schema whose objects have all the properties that they name, and no others, at every depth.

    What it said of ``required`` and ``additionalProperties`` where it names properties is replaced. Under
    ``not`` and ``if`` nothing changes: there, stricter would mean laxer.

    >>> strict({"properties": {"a": {"type": "string"}}, "required": []})
    {'properties': {'a': {'type': 'string'}}, 'required': ['a'], 'additionalProperties': False}
    """
    if not isinstance(schema, dict):
        return schema
    result = {keyword: _inner(keyword, value) for keyword, value in cast("dict[str, Any]", schema).items()}
    if isinstance(result.get("properties"), dict):
        result["required"] = list(result["properties"])
        result["additionalProperties"] = False
    return result


def _inner(keyword: str, value: Any) -> Any:
    if keyword in _NAMED_SCHEMAS and isinstance(value, dict):
        return {name: strict(schema) for name, schema in cast("dict[str, Any]", value).items()}
    if keyword in _SCHEMAS and isinstance(value, list):
        return [strict(schema) for schema in cast("list[Any]", value)]
    return strict(value) if keyword in _SCHEMA else value


def violation(value: Any, schema: dict[str, Any]) -> str | None:
    """Where and how a value first fails to meet a schema (draft 2020-12); None if it meets it.

    Raises:
        ValueError: the schema is none, or refers to what is not in it.
    """
    from jsonschema.exceptions import SchemaError
    from referencing.exceptions import Unresolvable

    try:
        error = next(_validator(json.dumps(schema)).iter_errors(value), None)
    except (SchemaError, Unresolvable) as error:
        raise ValueError(f"{type(error).__name__}: {error}"[:300]) from error
    except RecursionError:
        return "$: nested too deeply"
    return None if error is None else f"{error.json_path}: {error.message}"[:300]


@lru_cache(maxsize=128)
def _validator(schema: str) -> Draft202012Validator:
    """A schema's validator, kept because checking the schema takes far longer than checking a value."""
    from jsonschema import Draft202012Validator
    from referencing import Registry

    document = json.loads(schema)
    Draft202012Validator.check_schema(document)
    offline: Registry[Any] = Registry()
    return Draft202012Validator(document, registry=offline)

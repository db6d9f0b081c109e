from __future__ import annotations

from typing import Any

import pytest
from gym_resources.schema.strict import strict, violation


def test_every_object_gets_strict_at_every_depth() -> None:
    loose = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": []}
    tight = {**loose, "required": ["a"], "additionalProperties": False}
    for wrap in (
        lambda inner: {"type": "array", "items": inner},
        lambda inner: {"anyOf": [inner, {"type": "null"}]},
        lambda inner: {"$defs": {"x": inner}, "$ref": "#/$defs/x"},
        lambda inner: {"additionalProperties": inner},
    ):
        assert strict(wrap(loose)) == wrap(tight)
    assert strict({"properties": {"properties": loose}}) == {
        "properties": {"properties": tight},
        "required": ["properties"],
        "additionalProperties": False,
    }
    assert strict({"not": loose}) == {"not": loose}
    assert strict(
        {"type": "object", "additionalProperties": "false", "required": {"item": "a"}, "properties": {}}
    ) == {
        "type": "object",
        "additionalProperties": False,
        "required": [],
        "properties": {},
    }


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"a": 1}, None),
        ({"a": 1.0}, None),
        ({}, "$: 'a' is a required property"),
        ({"a": 1, "b": 2}, "$: Additional properties are not allowed ('b' was unexpected)"),
        ({"a": "1"}, "$.a: '1' is not of type 'integer'"),
        ({"a": True}, "$.a: True is not of type 'integer'"),
        ([], "$: [] is not of type 'object'"),
    ],
)
def test_the_first_violation_is_named(value: Any, problem: str | None) -> None:
    pytest.importorskip("jsonschema")
    assert violation(value, strict({"type": "object", "properties": {"a": {"type": "integer"}}})) == problem


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "text"},
        {"required": {"item": "a"}},
        {"$ref": "#/$defs/a"},
        {"$ref": "http://localhost:1/schema"},
    ],
)
def test_what_is_no_schema_is_refused(schema: dict[str, Any]) -> None:
    pytest.importorskip("jsonschema")
    with pytest.raises(ValueError, match=r"SchemaError|Wrapped|Unresolvable"):
        violation({}, schema)


def test_a_schema_of_itself_is_too_deep() -> None:
    pytest.importorskip("jsonschema")
    assert violation(1, {"$ref": "#"}) == "$: nested too deeply"

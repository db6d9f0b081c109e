from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from gym_resources.schema.strict import misformed, strict, violation
from tables import table

LOOSE = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": []}
TIGHT = {**LOOSE, "required": ["a"], "additionalProperties": False}


@table(
    "wrap",
    [
        lambda inner: {"type": "array", "items": inner},
        lambda inner: {"$defs": {"x": inner}, "$ref": "#/$defs/x"},
        lambda inner: {"additionalProperties": inner},
        lambda inner: {"not": inner},
        lambda inner: {"if": inner, "then": {"required": ["a"]}},
        lambda inner: {"anything": {"at": {"all": inner}}},
    ],
)
def test_every_object_in_an_object_gets_strict(wrap: Callable[[Any], Any]) -> None:
    assert strict(wrap(LOOSE)) == wrap(TIGHT)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda inner: {"anyOf": [inner, {"type": "null"}]},
        lambda inner: {"oneOf": [inner]},
        lambda inner: {"allOf": [inner]},
        lambda inner: {"prefixItems": [inner]},
        lambda inner: {"items": [{"not": inner}]},
    ],
)
def test_what_stands_in_lists_stays_as_it_is(wrap: Callable[[Any], Any]) -> None:
    assert strict(wrap(LOOSE)) == wrap(LOOSE)


def test_a_property_called_properties_is_taken_for_properties() -> None:
    inner = {"properties": LOOSE}
    assert strict({"properties": inner}) == {
        "properties": {
            "properties": TIGHT,
            "required": ["type", "properties", "required"],
            "additionalProperties": False,
        },
        "required": ["properties"],
        "additionalProperties": False,
    }
    assert strict({"properties": [1]}) == {"properties": [1]}


def test_what_a_schema_said_of_its_properties_is_replaced() -> None:
    loose = {"additionalProperties": "false", "required": {"item": "a"}, "properties": {}}
    assert strict(loose) == {"additionalProperties": False, "required": [], "properties": {}}


@table(
    ("schema", "problem"),
    [
        ({}, None),
        (True, None),
        (LOOSE, None),
        ({"type": ["string", "null"], "pattern": "^a", "enum": [{"type": "text"}]}, None),
        ({"type": "text"}, "$: there is no type 'text'"),
        ({"type": ["string", 1]}, "$: there is no type 1"),
        ({"pattern": "("}, "$: the pattern '(' is no expression"),
        ({"pattern": 1}, "$: the pattern 1 is no expression"),
        ([], "$ is no schema: []"),
        ({"properties": {"a": {"items": "string"}}}, "$.properties.a.items is no schema: 'string'"),
        (
            {"properties": {"a": {"anyOf": [True, {"type": "x"}]}}},
            "$.properties.a.anyOf[1]: there is no type",
        ),
        (strict({"properties": {"properties": LOOSE}}), "$.properties.required is no schema: ['type'"),
    ],
)
def test_common_faults_of_schemas_are_found_and_named(schema: Any, problem: str | None) -> None:
    found = misformed(schema)
    assert (found or "").startswith(problem or "")
    assert (found is None) is (problem is None)


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


def test_a_number_that_cannot_be_handled_is_the_values_fault() -> None:
    pytest.importorskip("jsonschema")
    for value, schema, problem in (
        (16**5000, {"type": "string"}, "$: cannot be validated: Exceeds the limit"),
        (16**5000, {"multipleOf": 0.5}, "$: cannot be validated: int"),
        (math.nan, {"multipleOf": 0.5}, "$: cannot be validated"),
    ):
        assert (violation(value, schema) or "").startswith(problem)
    assert violation(16**5000, {"type": "integer"}) is None
    assert violation(math.inf, {"type": "number"}) is None


def test_schemas_are_those_of_draft_2020_12() -> None:
    pytest.importorskip("jsonschema")
    assert violation([1], {"prefixItems": [{"type": "string"}]}) == "$[0]: 1 is not of type 'string'"
    # Keywords of OpenAPI 3.0 mean nothing there.
    assert violation(None, {"type": "string", "nullable": True}) == "$: None is not of type 'string'"
    assert violation(3, {"type": "integer", "maximum": 3, "exclusiveMaximum": 4}) is None


def test_a_schema_of_itself_is_too_deep() -> None:
    pytest.importorskip("jsonschema")
    assert violation(1, {"$ref": "#"}) == "$: nested too deeply"

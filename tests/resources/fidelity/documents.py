"""Rules of structured_outputs, format by format."""

from __future__ import annotations

import json
from typing import Any

from resources.fidelity.rules import REFUSED, Item, Rule, Worth, made, printed, said

PET = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}
ROOTED = {"type": "object", "properties": {"pet": PET}}


def structured(
    says: str, schema: object, kind: str, *cases: tuple[Item | list[Item], Worth], **fields: Any
) -> Rule:
    task = {"schema_str": json.dumps(schema), "schema_type": kind, **fields}
    return Rule(environment="structured_outputs", says=says, task=task, cases=cases)


def typed(schema: object) -> dict[str, Any]:
    """Under the root of an XML document."""
    return {"type": "object", "properties": {"r": {"type": "object", "properties": {"v": schema}}}}


def xml(says: str, schema: object, *cases: tuple[Item | list[Item], Worth]) -> Rule:
    return structured(says, typed(schema), "xml", *cases)


def cell(says: str, schema: object, *cases: tuple[Item | list[Item], Worth]) -> Rule:
    items = {"type": "object", "properties": {"v": schema, "w": {"type": "string"}}}
    return structured(says, {"type": "array", "items": items}, "csv", *cases)


REX = '{"name": "Rex", "age": 3}'
NUMBERS = {"type": "array", "items": {"type": "integer"}}
STRUCTURED = [
    structured(
        "all output texts of all messages are put together without a separator, message items only",
        PET,
        "json",
        ([REX[:9], made("f", {}), printed("{}"), REX[9:]], 1.0),
        ([said(REX[:9], REX[9:])], 1.0),
        ([REX, "Done."], 0.0),
    ),
    structured("fences are not removed", PET, "json", (f"```json\n{REX}\n```", 0.0), (f" \n{REX}\n", 1.0)),
    structured(
        "the root element of XML is a key, so the schema needs a property of its name",
        ROOTED,
        "xml",
        ("<pet><name>Rex</name><age>3</age></pet>", 1.0),
        ("<dog><name>Rex</name><age>3</age></dog>", 0.0),
    ),
    structured(
        "the root element of XML is not dropped", PET, "xml", ("<pet><name>Rex</name><age>3</age></pet>", 0.0)
    ),
    xml(
        "XML: a mapping of one key under an array is unwrapped, one value is a list, none is empty",
        NUMBERS,
        ("<r><v><n>1</n><n>2</n></v></r>", 1.0),
        ("<r><v><n>1</n></v></r>", 1.0),
        ("<r><v>1</v></r>", 1.0),
        ("<r><v/></r>", 1.0),
        ("<r><v><n>1</n><m>2</m></v></r>", 0.0),
    ),
    xml(
        "XML: it is unwrapped even if its key is a property of the items",
        {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}},
        ("<r><v><n>1</n></v></r>", 0.0),
        ("<r><v><i><n>1</n></i></v></r>", 1.0),
    ),
    xml("XML: an empty element is a text where the type is string", {"type": "string"}, ("<r><v/></r>", 1.0)),
    xml(
        "XML: an empty element is null elsewhere",
        {"type": ["string", "null"], "maxLength": 0},
        ("<r><v/></r>", 1.0),
    ),
    xml(
        "XML: an empty element is no text where null is not allowed, and the type a list",
        {"type": ["string", "integer"]},
        ("<r><v/></r>", 0.0),
    ),
    xml(
        "XML: integers by Python's int()",
        {"type": "integer"},
        ("<r><v>1_0</v></r>", 1.0),
        ("<r><v> 7 </v></r>", 1.0),
        ("<r><v>1.5</v></r>", 0.0),
    ),
    xml(
        "XML: numbers by Python's float()",
        {"type": "number"},
        ("<r><v>inf</v></r>", 1.0),
        ("<r><v>nan</v></r>", 1.0),
        ("<r><v>1e3</v></r>", 1.0),
        ("<r><v>one</v></r>", 0.0),
    ),
    xml(
        "XML: booleans are also 1 and 0",
        {"type": "boolean"},
        ("<r><v>1</v></r>", 1.0),
        ("<r><v>0</v></r>", 1.0),
        ("<r><v>true</v></r>", 1.0),
        ("<r><v>yes</v></r>", 0.0),
    ),
    xml(
        "XML: nothing is converted where the type is a list", {"type": ["integer"]}, ("<r><v>1</v></r>", 0.0)
    ),
    xml(
        "XML: nothing is converted under anyOf",
        {"anyOf": [{"type": "integer"}, {"type": "boolean"}]},
        ("<r><v>1</v></r>", 0.0),
    ),
    cell(
        "CSV: cells convert by a scalar type, also of a union; empty is null if allowed, null is a text",
        {"type": ["integer", "null"]},
        ("v,w\n1,a", 1.0),
        ("v,w\n,a", 1.0),
        ("v,w\nnull,a", 0.0),
        ("v,w\nx,a", 0.0),
    ),
    cell("CSV: 1 and 0 are booleans", {"type": "boolean"}, ("v,w\n1,a\n0,b\ntrue,c", 1.0), ("v,w\n2,a", 0.0)),
    cell("CSV: arrays in cells are never read", NUMBERS, ('v,w\n"[1]",a', 0.0)),
    cell("CSV: objects in cells are never read", {"type": "object"}, ('v,w\n"{}",a', 0.0)),
    cell(
        "CSV: of columns of one name the last wins",
        {"type": "integer"},
        ("v,v,w\nx,1,a", 1.0),
        ("v,v,w\n1,x,a", 0.0),
    ),
    structured("CSV is always a list of records", PET, "csv", ("name,age\nRex,3", 0.0)),
    structured("TOML is always a table", PET, "toml", ('name = "Rex"\nage = 3', 1.0), ("[3]", 0.0)),
    structured("TOML is never a list", NUMBERS, "toml", ("[[v]]", 0.0), ("v = [1]", 0.0)),
    structured("JSON has NaN and Infinity", {"type": "number"}, "json", ("NaN", 1.0), ("-Infinity", 1.0)),
    structured(
        "every dictionary with properties gets them all required and no others",
        {"type": "object", "properties": {"pet": PET}, "required": [], "additionalProperties": True},
        "json",
        (f'{{"pet": {REX}}}', 1.0),
        ("{}", 0.0),
        (f'{{"pet": {REX}, "more": 1}}', 0.0),
        ('{"pet": {"name": "Rex"}}', 0.0),
    ),
    structured(
        "strictness enters not: an object with a further property does not meet it any more",
        {"not": {"properties": {"a": {}}}},
        "json",
        ('{"a": 1}', 0.0),
        ('{"a": 1, "b": 1}', 1.0),
    ),
    structured(
        "strictness also enters a property named properties, which makes the schema invalid: a bad row",
        {"type": "object", "properties": {"properties": {"type": "object", "properties": {"a": {}}}}},
        "json",
        ('{"properties": {"a": 1}}', REFUSED),
    ),
    structured(
        "strictness does not enter lists",
        {"anyOf": [{"type": "object", "properties": {"a": {"type": "integer"}}}]},
        "json",
        ("{}", 1.0),
        ('{"a": 1, "b": 2}', 1.0),
        ('{"a": "x"}', 0.0),
    ),
    structured(
        "items of tuples stay as written",
        {"type": "array", "prefixItems": [{"type": "object", "properties": {"a": {}}}]},
        "json",
        ('[{"b": 1}]', 1.0),
    ),
    structured(
        "the validator follows JSON Schema 2020-12",
        {"type": "array", "prefixItems": [{"type": "integer"}], "items": False},
        "json",
        ("[1]", 1.0),
        ("[1, 2]", 0.0),
    ),
    structured("a schema that is invalid is a bad row", {"type": "pet"}, "json", (REX, REFUSED)),
    structured(
        "tool mode: exactly one call; the name does not matter unless given, nor does text beside",
        PET,
        "json",
        (["Here you are.", made("any", REX)], 1.0),
        ([made("any", REX), made("any", REX)], 0.0),
        (REX, 0.0),
        response_mode="tool_call",
    ),
    structured(
        "tool mode: the tool's name counts if it is given",
        PET,
        "json",
        ([made("hand_in", REX)], 1.0),
        ([made("other", REX)], 0.0),
        response_mode="tool_call",
        tool_name="hand_in",
    ),
    structured(
        "tool mode: with a key what stands under it counts, and is never parsed from a text",
        PET,
        "yaml",
        ([made("f", f'{{"data": {REX}, "more": 1}}')], 1.0),
        ([made("f", {"data": REX})], 0.0),
        ([made("f", REX)], 0.0),
        response_mode="tool_call",
        tool_payload_key="data",
    ),
]
RULES = STRUCTURED

from __future__ import annotations

import math
from typing import Any

import pytest
from gym_resources.schema.formats import Format, Malformed, read
from tables import table

pytest.importorskip("yaml")
pytest.importorskip("xmltodict")

RECORD: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "year": {"type": "integer"},
        "born": {"type": ["integer", "null"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "place": {"type": "object", "properties": {"lat": {"type": "number"}}},
        "open": {"type": "boolean"},
        "kind": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    },
}
RECORDS = {"type": "array", "items": RECORD}
ROOTED = {"type": "object", "properties": {"r": RECORD}}
FULL = {"name": "Ada", "year": 1815, "tags": ["a", "b"], "place": {"lat": 51.5}, "open": True}


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("json", '{"name": "Ada", "year": 1815, "tags": ["a", "b"], "place": {"lat": 51.5}, "open": true}'),
        ("yaml", "name: Ada\nyear: 1815\ntags: [a, b]\nplace: {lat: 51.5}\nopen: true"),
        ("toml", 'name = "Ada"\nyear = 1815\ntags = ["a", "b"]\nopen = true\n[place]\nlat = 51.5'),
    ],
)
def test_formats_with_types_can_say_the_same(kind: Format, text: str) -> None:
    assert read(f"\n{text}\n", kind, RECORD) == FULL


@pytest.mark.parametrize(
    "text",
    [
        "<r><name>Ada</name><year>1815</year><tags><tag>a</tag><tag>b</tag></tags>"
        "<place><lat>51.5</lat></place><open>True</open></r>",
        "<r><name>Ada</name><year>1815</year><tags>a</tags><tags>b</tags>"
        "<place><lat>51.5</lat></place><open>1</open></r>",
    ],
)
def test_xml_says_it_under_its_root(text: str) -> None:
    assert read(f"\n{text}\n", "xml", ROOTED) == {"r": FULL}


@table(
    ("text", "value"),
    [
        ("<name/>", {"name": ""}),
        ("<tags/>", {"tags": []}),
        ("<tags>a</tags>", {"tags": ["a"]}),
        ("<tags><item>a</item></tags>", {"tags": ["a"]}),
        ("<tags><item><b>a</b></item></tags>", {"tags": [{"b": "a"}]}),
        ("<tags><a>1</a><b>2</b></tags>", {"tags": [{"a": "1", "b": "2"}]}),
        ("<place/>", {"place": None}),
        ("<year/>", {"year": None}),
        ("<open/>", {"open": None}),
        ("<year> 1_0 </year>", {"year": 10}),
        ("<year>1e3</year>", {"year": "1e3"}),
        ("<year>about 1815</year>", {"year": "about 1815"}),
        ("<place><lat>1_0</lat></place>", {"place": {"lat": 10.0}}),
        ("<place><lat>-inf</lat></place>", {"place": {"lat": -math.inf}}),
        ("<place><lat>north</lat></place>", {"place": {"lat": "north"}}),
        ("<open>0</open>", {"open": False}),
        ("<open>TRUE</open>", {"open": True}),
        ("<open>yes</open>", {"open": "yes"}),
        ("<born>1815</born>", {"born": "1815"}),  # a list of types: nothing is converted
        ("<born/>", {"born": None}),
        ("<kind>5</kind>", {"kind": "5"}),  # anyOf: the same
        ("<name>12</name>", {"name": "12"}),
        ("<other>12</other>", {"other": "12"}),
        ('<name lang="en">A</name>', {"name": {"@lang": "en", "#text": "A"}}),
    ],
)
def test_xml_becomes_what_the_schema_wants(text: str, value: Any) -> None:
    assert read(f"<r>{text}</r>", "xml", ROOTED) == {"r": value}


def test_the_root_of_xml_is_a_key() -> None:
    assert read("<r><year>1</year></r>", "xml", RECORD) == {"r": {"year": "1"}}
    assert read('<r xmlns:x="urn:y"><name>A</name></r>', "xml", ROOTED) == {
        "r": {"@xmlns:x": "urn:y", "name": "A"}
    }
    # Under an array it is a single key, and so it is unwrapped: once.
    assert read("<r><year>1</year></r>", "xml", RECORDS) == [{"year": 1}]
    assert read("<all><r><year>1</year></r></all>", "xml", RECORDS) == [{"r": {"year": "1"}}]


def test_the_only_element_of_a_list_is_unwrapped_even_if_its_name_is_a_property() -> None:
    names = {"type": "object", "properties": {"name": {"type": "string"}}}
    schema = {"type": "object", "properties": {"r": {"type": "array", "items": names}}}
    assert read("<r><name>A</name></r>", "xml", schema) == {"r": ["A"]}


@table(
    ("cell", "kind", "value"),
    [
        ("12", {"type": "integer"}, 12),
        (" 1_2", {"type": "integer"}, 12),
        ("1.0", {"type": "integer"}, "1.0"),
        ("1", {"type": "number"}, 1.0),
        ("nan?", {"type": "number"}, "nan?"),
        ("1", {"type": "boolean"}, True),
        ("False", {"type": "boolean"}, False),
        ("1", {"type": "string"}, "1"),
        ("1", {"type": ["string", "integer"]}, 1),
        ("1", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, 1),
        ("", {"type": ["string", "null"]}, None),
        ("", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, None),
        ("null", {"type": ["string", "null"]}, "null"),
        ("", {"type": "string"}, ""),
        ("", {"type": "integer"}, ""),
        ("[1]", {"type": "array"}, "[1]"),
        ("a;b", {"type": "array"}, "a;b"),
        ("{}", {"type": "object"}, "{}"),
        ("x", {}, "x"),
        ("x", True, "x"),
    ],
)
def test_cells_of_csv_become_scalars(cell: str, kind: Any, value: Any) -> None:
    schema = {"type": "array", "items": {"type": "object", "properties": {"a": kind}}}
    (record,) = read(f'a,b\n"{cell}",1', "csv", schema)
    assert record == {"a": value, "b": "1"}
    assert type(record["a"]) is type(value)


def test_csv_is_always_a_list_of_records_and_toml_always_a_table() -> None:
    assert read("name,year\nA,1\nB,2\n", "csv", RECORDS) == [
        {"name": "A", "year": 1},
        {"name": "B", "year": 2},
    ]
    assert read("name,year\nA,1", "csv", RECORD) == [{"name": "A", "year": "1"}]
    assert read("name,year", "csv", RECORDS) == []
    assert read("name,year,name\nA,1,B", "csv", RECORDS) == [{"name": "B", "year": 1}]
    assert read("[[records]]\nyear = 1", "toml", RECORDS) == {"records": [{"year": 1}]}


def test_json_may_hold_numbers_that_are_none() -> None:
    assert read('[Infinity, -Infinity, "NaN"]', "json", {}) == [math.inf, -math.inf, "NaN"]
    assert math.isnan(read("NaN", "json", {}))


@pytest.mark.slow
@table(
    ("kind", "text"),
    [
        ("json", ""),
        ("json", "{"),
        ("json", "```json\n{}\n```"),
        ("json", "[" * 100_000),
        ("yaml", "a: [1"),
        ("yaml", "a: 1\n---\nb: 2"),
        ("yaml", "!!python/object/apply:os.getcwd []"),
        ("yaml", "[" * 1_000_000),
        ("yaml", "- " * 500_000),
        ("yaml", "? " * 500_000),
        ("yaml", "a: [" * 250_000),
        ("yaml", "[" + "1," * 500_000 + "1]"),
        ("yaml", "1:" * 400_000 + "1"),
        ("yaml", "1" * 5_000),
        ("yaml", "{[a]: 1}"),
        ("yaml", "2001-02-30"),
        ("toml", "a = "),
        ("toml", "a = 1\na = 2"),
        ("toml", "a = " + "[" * 5_000),
        ("toml", "a" + ".a" * 400_000 + " = 1"),
        ("toml", "[a" + " . 'a'" * 150_000 + "]"),
        ("toml", "a = " + "1" * 1_000_000),
        ("xml", "<a><b></a>"),
        ("xml", "no markup"),
        ("xml", "<a/><b/>"),
        ("xml", "<a>" * 300_000),
        ("csv", ""),
        ("csv", "name,year\nA"),
        ("csv", "name,year\nA,1,2"),
        ("csv", f"name\n{'x' * 200_000}"),
    ],
)
def test_what_is_not_well_formed_is_malformed(kind: Format, text: str) -> None:
    with pytest.raises(Malformed, match=f"not {kind}"):
        read(text, kind, RECORDS)


@pytest.mark.slow
def test_what_is_only_long_is_read() -> None:
    prose = "One sentence. And another one. " * 1000
    assert read(f'a = "{prose}"', "toml", {}) == {"a": prose}
    assert read(f"a: {prose}", "yaml", {}) == {"a": prose.strip()}
    assert read(f"a: {'[' * 199}{']' * 199}", "yaml", {})
    assert read("a: 0x" + "f" * 1_000_000, "yaml", {})["a"].bit_length() == 4_000_000
    assert len(read("[" + "1," * 90_000 + "]", "yaml", {})) == 90_000


def test_no_text_grows_in_the_reading() -> None:
    aliases = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10))
    merges = "\n".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 10))
    for text in (f"a0: &a0 [x]\n{aliases}", f"a0: &a0 {{x: 1}}\n{merges}", "a: &a [*a]"):
        with pytest.raises(Malformed, match=r"its aliases stand for more than 100000 values|recursive"):
            read(text, "yaml", RECORD)
    assert read("a: &a {b: 1}\nc: *a", "yaml", {}) == {"a": {"b": 1}, "c": {"b": 1}}

    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 9}">' for n in range(1, 10))
    with pytest.raises(Malformed, match="entities are disabled"):
        read(f'<!DOCTYPE a [<!ENTITY e0 "x">{entities}]><a>&e9;</a>', "xml", RECORD)

from __future__ import annotations

from typing import Any

import pytest
from gym_resources.schema.formats import Format, Malformed, read

pytest.importorskip("yaml")
pytest.importorskip("xmltodict")

RECORD: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "year": {"type": ["integer", "null"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "place": {"type": "object", "properties": {"lat": {"type": "number"}}},
        "open": {"type": "boolean"},
    },
}
RECORDS = {"type": "array", "items": RECORD}
FULL = {"name": "Ada", "year": 1815, "tags": ["a", "b"], "place": {"lat": 51.5}, "open": True}


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("json", '{"name": "Ada", "year": 1815, "tags": ["a", "b"], "place": {"lat": 51.5}, "open": true}'),
        ("yaml", "name: Ada\nyear: 1815\ntags: [a, b]\nplace: {lat: 51.5}\nopen: true"),
        ("toml", 'name = "Ada"\nyear = 1815\ntags = ["a", "b"]\nopen = true\n[place]\nlat = 51.5'),
        (
            "xml",
            "<r><name>Ada</name><year>1815</year><tags><tag>a</tag><tag>b</tag></tags>"
            "<place><lat>51.5</lat></place><open>True</open></r>",
        ),
        (
            "xml",
            "<r><name>Ada</name><year>1815</year><tags>a</tags><tags>b</tags>"
            "<place><lat>51.5</lat></place><open>true</open></r>",
        ),
        ("csv", 'name,year,tags,place,open\nAda,1815,"[""a"", ""b""]","{""lat"": 51.5}",true\n'),
        ("csv", 'name,year,tags,place,open\r\nAda,1815,a; b,"{""lat"": 51.5}",true'),
    ],
)
def test_every_format_can_say_the_same(kind: Format, text: str) -> None:
    assert read(f"\n{text}\n", kind, RECORD) == FULL


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("<r><year/></r>", {"year": None}),
        ("<r><name/></r>", {"name": ""}),
        ("<r><tags/></r>", {"tags": []}),
        ("<r><tags>a</tags></r>", {"tags": ["a"]}),
        ("<r><tags><item>a</item></tags></r>", {"tags": ["a"]}),
        ('<r><year is_null="true"/></r>', {"year": None}),
        ('<r xmlns:x="urn:y"><name>A</name></r>', {"name": "A"}),
        ("<r><year>about 1815</year></r>", {"year": "about 1815"}),
        ("<r><name>12</name></r>", {"name": "12"}),
        ('<r><name lang="en">A</name></r>', {"name": {"@lang": "en", "#text": "A"}}),
    ],
)
def test_xml_becomes_what_the_schema_wants(text: str, value: Any) -> None:
    assert read(text, "xml", RECORD) == value


def test_the_root_of_xml_is_only_a_name_unless_the_schema_knows_it() -> None:
    schema = {"type": "object", "properties": {"r": RECORD}}
    assert read("<r><year>1</year></r>", "xml", schema) == {"r": {"year": 1}}
    assert read("<all><r><year>1</year></r><r><year>2</year></r></all>", "xml", RECORDS) == [
        {"year": 1},
        {"year": 2},
    ]
    assert read("<all><r><year>1</year></r></all>", "xml", RECORDS) == [{"year": 1}]


def test_a_csv_has_as_many_records_as_the_schema() -> None:
    assert read("name,year\nA,1\nB,\n", "csv", RECORDS) == [
        {"name": "A", "year": 1},
        {"name": "B", "year": None},
    ]
    assert read("name,year", "csv", RECORDS) == []
    for records in ("", "\nA,1\nB,2"):
        with pytest.raises(Malformed, match="records where the schema has one"):
            read("name,year" + records, "csv", RECORD)


def test_a_list_in_toml_is_all_that_the_table_holds() -> None:
    assert read("[[records]]\nyear = 1", "toml", RECORDS) == [{"year": 1}]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("json", ""),
        ("json", "{"),
        ("json", "```json\n{}\n```"),
        ("json", '{"a": NaN}'),
        ("json", "[" * 100_000),
        ("yaml", "a: [1"),
        ("yaml", "a: 1\n---\nb: 2"),
        ("yaml", "!!python/object/apply:os.getcwd []"),
        ("yaml", "[" * 5_000),
        ("yaml", "{[a]: 1}"),
        ("yaml", "2001-02-30"),
        ("toml", "a = "),
        ("toml", "a = 1\na = 2"),
        ("toml", "a = " + "[" * 5_000),
        ("xml", "<a><b></a>"),
        ("xml", "no markup"),
        ("xml", "<a/><b/>"),
        ("csv", ""),
        ("csv", "name,year\nA"),
        ("csv", "name,name\nA,B"),
        ("csv", f"name\n{'x' * 200_000}"),
    ],
)
def test_what_is_not_well_formed_is_malformed(kind: Format, text: str) -> None:
    with pytest.raises(Malformed, match=f"not {kind}"):
        read(text, kind, RECORDS)


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

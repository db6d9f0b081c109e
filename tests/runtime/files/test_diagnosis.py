"""Where the error is: columns of every kind of complaint."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gym_runtime.files.complaints import bad_encoding, bad_json, bad_value, locate, members
from hypothesis import given
from hypothesis import strategies as st

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.from_regex(r"[a-zé_]{1,6}", fullmatch=True), inner)
    ),
    max_leaves=12,
)


def paths(value: Any, path: str = "$") -> list[tuple[str, Any]]:
    found = [(path, value)]
    if isinstance(value, dict):
        for key, inner in value.items():
            found += paths(inner, f"{path}.{key}")
    if isinstance(value, list):
        for index, inner in enumerate(value):
            found += paths(inner, f"{path}[{index}]")
    return found


@pytest.mark.slow
@given(JSON, st.sampled_from([None, 1]), st.booleans())
def test_every_value_is_found_at_its_path(value: Any, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    for path, expected in paths(value):
        found, _ = json.JSONDecoder().raw_decode(text, locate(text, path))
        assert found == expected


def test_a_path_that_leads_nowhere_ends_at_the_last_value() -> None:
    assert locate('{"a": {"b": 1}}', "$.a.x") == 6
    assert locate('{"a": [1]}', "$.a[7]") == 6
    assert locate('{"a": {"b": 1}}', "$.a[...]") == 6


def test_numbers_that_python_refuses_do_not_matter() -> None:
    text = '{"a": ' + "1" * 5000 + ', "b": 2}'
    assert text[locate(text, "$.b")] == "2"


def test_members_of_something_else_are_none() -> None:
    assert list(members("[1]", 0)) == []


@pytest.mark.parametrize(
    ("text", "column", "part"),
    [
        ('{"a": 1,', 9, "ends before"),
        ('{"a" 1}', 6, "expecting ':'"),
        ('{"é": nul}', 7, "expecting value"),
        ('{"a": 1}}', 9, "extra data"),
        ('{"a": "NaN", "b": -Infinity}', 19, "-Infinity is not a JSON number"),
        ('{"a": "\\ud800"}', 8, "surrogate"),
        ("{'a': 1}", 2, "double quotes"),
        ("", 1, "ends before"),
    ],
)
def test_column_of_broken_json(text: str, column: int, part: str) -> None:
    complaint = bad_json(text, "the decoder's words")
    assert complaint.column == column
    assert part in complaint.what


def test_json_that_only_the_fast_decoder_refuses_keeps_its_words() -> None:
    assert bad_json('{"a": 1}', "odd").what == "not JSON: odd"


@pytest.mark.parametrize(
    ("error", "column", "what"),
    [
        ("Expected `str`, got `int` - at `$.b[1].c`", 29, "'b[1].c': expected str, got int"),
        ("Object missing required field `name` - at `$.b[1]`", 29, "did you mean your 'nane'?"),
        ("Object missing required field `zzz`", 1, "'zzz' is missing"),
        ("Object contains unknown field `nane` - at `$.b[1]`", 29, "did you mean 'name'?"),
        ("Expected `object`, got `array`", 1, "one JSON object on one line"),
    ],
)
def test_column_of_a_misfit(error: str, column: int, what: str) -> None:
    text = '{"a": 1, "b": [{"c": 1}, {  "nane": 2}]}'
    text = text.replace('"nane": 2', '"c": 2') if "got `int`" in error else text
    complaint = bad_value(text, error, ["name"])
    assert what in complaint.what
    assert complaint.column == (column + 5 if "got `int`" in error else column)


def test_column_of_a_byte_counts_characters() -> None:
    data = "ab é".encode() + b"\xff"
    with pytest.raises(UnicodeDecodeError) as caught:
        data.decode()
    complaint = bad_encoding(data, caught.value)
    assert complaint.column == 5
    assert "0xff" in complaint.what

"""What is wrong with a line of JSON."""

from __future__ import annotations

import pytest
from gym_runtime.files.complaints import bad_value
from gym_runtime.files.row_reader import BadRow, RowReader


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b'{"a": 1,', "ends before its JSON does"),
        (b'{"a" 1}', r"expected ':' \(byte 5\)"),
        (b'{"a": nul}', r"invalid character \(byte 7\)"),
        (b'{"a": 1}}', r"trailing characters \(byte 9\)"),
        (b'{"a": "NaN", "b": -Infinity}', r"Infinity is not a JSON number; use null \(byte 19\)"),
        (b'{"a": "\\ud800"}', "half of a surrogate pair"),
        (b"{'a': 1}", "keys must be strings"),
        (b"", "ends before its JSON does"),
        ('{"é": "'.encode() + b'\xff"}', r"byte 0xff \(byte 8\) is not UTF-8"),
    ],
)
def test_a_line_that_is_not_json(line: bytes, what: str) -> None:
    with pytest.raises(BadRow, match=what):
        RowReader("counting").read(line)


@pytest.mark.parametrize(
    ("error", "what"),
    [
        ("Expected `str`, got `int` - at `$.b[1].c`", "'b[1].c': expected str, got int"),
        (
            "Object missing required field `name` - at `$.b[1]`",
            "'name' is missing in 'b[1]'; did you mean your 'nane'?",
        ),
        ("Object missing required field `zzz`", "'zzz' is missing"),
        ("Object missing required field `name` - at `$.b[...].c`", "'name' is missing in 'b[...].c'"),
        (
            "Object contains unknown field `nane` - at `$.b[1]`",
            "there is no field 'nane' in 'b[1]'; did you mean 'name'?",
        ),
        (
            "Expected `object`, got `array`",
            "expected object, got array; a row is one JSON object on one line",
        ),
    ],
)
def test_a_value_that_does_not_fit(error: str, what: str) -> None:
    line = b'{"a": ' + b"1" * 5000 + b', "b": [{"c": 1}, {  "nane": 2}]}'
    assert bad_value(line, error, ["name"]) == what

from __future__ import annotations

import msgspec
import pytest
from gym_resources.extract import jsons


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        (' \n{"a": 1}\t', {"a": 1}),
        ("{}", {}),
        ("", None),
        ("{", None),
        ("[1]", None),
        ('{"a": "1"}', None),
        ('{"a": 1} {}', None),
        ('{"a": 1e999}', None),
        ('{"\ud800": 1}', None),
        ("[" * 100_000, None),
    ],
)
def test_a_text_is_a_value_of_the_type_or_nothing(text: str, value: dict[str, int] | None) -> None:
    assert jsons.decode(text, dict[str, int]) == value


def test_numbers_may_stand_in_strings_where_that_is_said() -> None:
    assert jsons.decode('["1"]', list[int]) is None
    assert jsons.decode('["1"]', list[int], strict=False) == [1]


def test_a_value_is_of_the_type_or_nothing() -> None:
    class Point(msgspec.Struct):
        x: int

    assert jsons.convert([{"x": 1, "y": 2}], list[Point]) == [Point(1)]
    assert jsons.convert([{"x": "1"}], list[Point]) is None
    assert jsons.convert(None, list[Point]) is None

from __future__ import annotations

import math
import time

import msgspec
from gym_resources.extract import jsons
from tables import table


@table(
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


@table(
    ("text", "value"),
    [
        (' {"a": [1, null]}\n', {"a": [1, None]}),
        ("1e400", math.inf),
        ('"\\ud83d\\ude00"', "😀"),
        ('"\\\\ud800"', "\\ud800"),
        ('"\\uD800"', jsons.INVALID),
        ('{"\\udc00": 1}', jsons.INVALID),
        ("[" * 100_000, jsons.INVALID),
        ("1" * 5000, jsons.INVALID),
        ("[1" + "0" * 19 + "]", [10**19]),
        ("[1" + "0" * 30 + "]", [10**30]),
        ("{", jsons.INVALID),
        ("", jsons.INVALID),
    ],
)
def test_what_pythons_reader_takes_is_json_but_for_half_characters(text: str, value: object) -> None:
    assert jsons.loads(text) == value


def test_objects_that_are_never_closed_are_read_a_few_times_at_most() -> None:
    start_s = time.thread_time()
    assert jsons.object_at_the_end('{"a":' * 200 + "[" + "1," * 49_000) is None
    assert time.thread_time() - start_s < 0.2


def test_an_object_counts_behind_braces_that_are_none() -> None:
    assert jsons.object_at_the_end("\\frac{a}{b} " * 150 + '{"a": {"b": 1}}') == {"a": {"b": 1.0}}

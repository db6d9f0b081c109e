"""Calls against possible answers: the rules of the Berkeley leaderboard, case by case."""

from __future__ import annotations

from typing import Any

from gym_resources.expected_calls.possible_answers import (
    Function,
    MadeCall,
    Parameters,
    all_match,
    matches,
    right,
)
from tables import table

STRING, INTEGER, FLOAT, ANY = ({"type": kind} for kind in ("string", "integer", "float", "any"))
BOOLEAN, OBJECT = {"type": "boolean"}, {"type": "dict"}
STRINGS, FLOATS = ({"type": "array", "items": {"type": kind}} for kind in ("string", "float"))
PAIR = {"type": "tuple", "items": {"type": "integer"}}
OBJECTS = {"type": "array", "items": {"type": "dict"}}


@table(
    ("schema", "possible", "values", "wrong"),
    [
        (
            STRING,
            ["New York"],
            ["New York", "new-york", "NEW_YORK.", "newyork"],
            ["New Yorc", 1, None, ["New York"]],
        ),
        (STRING, ["it's"], ['it"s', "it's"], ["its"]),
        (INTEGER, [3, 4], [3, 4], [3.0, "3", True, 5, 10**400]),
        (INTEGER, [1], [1], [True, 1.0]),
        (FLOAT, [3.0], [3.0, 3], ["3.0", 3.5, 10**400, True]),
        (BOOLEAN, [True], [True], [1, "true", False]),
        (ANY, ["x"], ["X"], [1]),
        # A possible value of another type than the parameter's is a variable's name.
        (INTEGER, ["user_id"], ["user_id"], ["user id", "USER_ID", 5]),
        (STRINGS, ["names"], ["names"], [["names"]]),
        # Only that the parameter may be left out is known.
        (STRING, [""], [""], ["x", 5]),
        (INTEGER, [""], [], [0, 5]),
        (STRINGS, [["A b", "c"]], [["a-b", "C"]], [["c", "a b"], ["a b"], [], "A b", [1, 2]]),
        (STRINGS, ["", ["a"]], [["a"], []], [["b"]]),
        (FLOATS, [[1.0, 2.0]], [[1.0, 2.0]], [[2.0, 1.0], [1, 2], ["1.0", "2.0"]]),
        (PAIR, [[1, 2]], [[1, 2]], [[1], [2, 1], [[1, 2]]]),
        (
            OBJECT,
            [{"unit": ["kelvin", ""], "wind": [True]}],
            [{"unit": "Kelvin", "wind": True}, {"wind": True}],
            [{"unit": "kelvin"}, {"wind": True, "rain": True}, {"wind": False}, {}, "wind", [{"wind": True}]],
        ),
        (OBJECT, ["", {"a": [1]}], [{"a": 1}], [{}, {"a": 2}]),
        (
            OBJECTS,
            [[{"a": [1]}, {"a": [2, ""]}]],
            [[{"a": 1}, {"a": 2}], [{"a": 1}, {}]],
            [[{"a": 2}, {"a": 1}], [{"a": 1}], [], [1, 2], {"a": 1}],
        ),
    ],
)
def test_a_value_is_right(
    schema: dict[str, Any], possible: list[Any], values: list[Any], wrong: list[Any]
) -> None:
    assert [value for value in values if not right(value, schema, possible)] == []
    assert [value for value in wrong if right(value, schema, possible)] == []


FERRY = Function("ferry.fare", Parameters({"adults": INTEGER, "car": FLOAT, "unknown": STRING}, ["adults"]))
ANSWERS: dict[str, list[Any]] = {"adults": [2], "car": ["", 4.0]}


@table(
    ("name", "arguments", "fits"),
    [
        ("ferry_fare", {"adults": 2}, True),
        ("ferry_fare", {"adults": 2, "car": 4}, True),
        ("ferry.fare", {"adults": 2}, False),  # models are given names without dots
        ("ferry_fare", {}, False),
        ("ferry_fare", {"car": 4.0}, False),
        ("ferry_fare", {"adults": 2, "dog": 1}, False),
        ("ferry_fare", {"adults": 2, "unknown": ""}, False),  # a parameter without possible values
        ("ferry_fare", None, False),
    ],
)
def test_a_call_matches(name: str, arguments: dict[str, Any] | None, fits: bool) -> None:
    assert matches(MadeCall(name, arguments), FERRY, ANSWERS) is fits


def test_a_parameter_that_must_be_given_is_not_left_out() -> None:
    assert not matches(MadeCall("ferry_fare", {"adults": 2}), FERRY, {"adults": [2], "car": [4.0]})


def test_calls_match_in_any_order_and_each_once() -> None:
    wanted = [{"ferry.fare": {"adults": [1, 2]}}, {"ferry.fare": {"adults": [2]}}]
    one, two = (MadeCall("ferry_fare", {"adults": adults}) for adults in (1, 2))
    assert all_match([two, one], [FERRY], wanted[::-1])
    assert all_match([one, two], [FERRY], wanted)
    # The first wanted call takes the first call that fits it, as the authors have it; then none is left.
    assert not all_match([two, one], [FERRY], wanted)
    assert not all_match([one], [FERRY], wanted)
    assert not all_match([two, two, two], [FERRY], wanted)

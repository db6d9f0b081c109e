from __future__ import annotations

import json
from typing import Any

import pytest
from gym_runtime.errors import TaskError
from resources.judging import call, judge, nemo_gym_rows, row
from tables import table

pytestmark = pytest.mark.anyio
A = ("a", {"x": 1, "y": "two"})
B = ("b", {})


def task(*expected: tuple[str, dict[str, Any]]) -> bytes:
    return row(expected_answers=[{"name": name, "arguments": arguments} for name, arguments in expected])


@table(
    ("expected", "made", "correct", "reward"),
    [
        ([A], [A], 1, 1.0),
        ([A, B], [A, B], 2, 1.0),
        ([A, B], [B, A], 2, 1.0),
        ([A], [("a", {"x": 1, "y": "two", "z": 3})], 1, 1.0),
        ([A], [("a", {"x": 1.0, "y": "two"})], 1, 1.0),
        ([A], [("a", {"x": "1", "y": "two"})], 0, 0.0),
        ([A], [("a", {"x": 1, "y": "Two"})], 0, 0.0),
        ([A], [("a", {"x": 1})], 0, 0.0),
        ([A], [("b", A[1])], 0, 0.0),
        ([A], [A, A], 1, 0.0),
        ([A, A], [A], 1, 0.0),
        ([A, A], [A, A], 2, 1.0),
        ([A, B], [A], 1, 0.0),
        ([A], [A, B], 1, 0.0),
        ([B], [("b", {"any": None})], 1, 1.0),
        ([B], [("b", "{")], 1, 1.0),  # not JSON: no arguments
        ([B], [("b", "")], 1, 1.0),
        ([A], [("a", "{")], 0, 0.0),
        ([A], [("a", '{"x": 1, "y": "two", "z": NaN}')], 1, 1.0),
        ([B], [("b", '"x"')], 0, 0.0),
        ([B], [("b", r'{"x": "\ud800"}')], 1, 1.0),
        ([B], [("b", "[]")], 0, 0.0),
        ([("a", {"v": [1, {"w": None}]})], [("a", {"v": [1, {"w": None}]})], 1, 1.0),
        ([("a", {"v": [1, 2]})], [("a", {"v": [2, 1]})], 0, 0.0),
        # The first that fits is taken, even if the second expected call would need it.
        ([B, ("b", {"x": 1})], [("b", {"x": 1}), ("b", {})], 1, 0.0),
        ([("b", {"x": 1}), B], [("b", {}), ("b", {"x": 1})], 2, 1.0),
        ([A], [], 0, 0.0),
        ([], [], 0, 1.0),
        ([], [A], 0, 0.0),
    ],
)
async def test_every_expected_call_is_made_and_no_other(
    expected: list[Any], made: list[Any], correct: int, reward: float
) -> None:
    verdict = await judge("xlam_fc", task(*expected), *(call(*one) for one in made), "Done.")
    assert verdict.reward == reward
    counts = {name: verdict.fields[name] for name in ("num_expected", "num_predicted", "num_correct")}
    assert counts == {"num_expected": len(expected), "num_predicted": len(made), "num_correct": correct}
    assert [shown.name for shown in verdict.fields["predicted_calls"]] == [name for name, _ in made]


async def test_expected_arguments_may_be_json_text() -> None:
    expected = row(expected_answers=[{"name": "a", "arguments": '{"x": [1]}'}])
    assert (await judge("xlam_fc", expected, call("a", {"x": [1]}))).reward == 1.0
    assert (await judge("xlam_fc", expected, call("a", {"x": "[1]"}))).reward == 0.0
    for text in ("{", "[]", ""):
        with pytest.raises(TaskError, match="the arguments of 'a' are not JSON objects"):
            await judge("xlam_fc", row(expected_answers=[{"name": "a", "arguments": text}]))


async def test_rows_in_nemo_gyms_format_are_won_by_their_calls() -> None:
    for line in nemo_gym_rows("xlam_fc"):
        theirs = json.loads(line)
        calls = [call(one["name"], one["arguments"]) for one in theirs["expected_answers"]]
        assert (await judge("xlam_fc", line, *calls[::-1])).reward == 1.0
        assert (await judge("xlam_fc", line, *calls[1:])).reward == 0.0

"""Calls on simulated services, and what a conversation must have done."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from gym_resources.simulated_apis import api_classes
from gym_resources.simulated_apis.played_calls import ApiCall, Checked, Scenario, answers, checked
from gym_resources.simulated_apis.published_conversations import FILES, read, rows
from gym_runtime.errors import UsageError
from tables import table

CONFIG = {"berths": {"1": "", "2": "Wappen", "3": ""}, "fee": 25}
SCENARIO = Scenario(["HarbourAPI"], {"HarbourAPI": CONFIG})
INSTALLED = find_spec("bfcl_eval") is not None and find_spec("mpmath") is not None


def moor(ship: str, berth: Any) -> ApiCall:
    return ApiCall("moor", {"ship": ship, "berth": berth})


def charge(ship: str) -> ApiCall:
    return ApiCall("charge", {"ship": ship})


LIST = ApiCall("list_berths")


def test_calls_are_answered_after_those_before() -> None:
    said = answers(SCENARIO, [moor("A", 1)], [moor("B", 1), charge("B"), ApiCall("note", positional=["x"])])
    assert said == ['{"error": "Berth 1 is not free."}', '{"ship": "B", "owes": 25}', "1 notes"]
    assert CONFIG["berths"] == {"1": "", "2": "Wappen", "3": ""}


@table(
    ("call", "said"),
    [
        (ApiCall("sink"), "name 'sink' is not defined"),
        (ApiCall("_load_scenario", {"config": {}}), "name '_load_scenario' is not defined"),
        (ApiCall("__init__"), "name '__init__' is not defined"),
        (ApiCall("berths"), "name 'berths' is not defined"),
        (ApiCall("moor", {"ship": "A"}), "HarbourAPI.moor() missing 1 required positional argument: 'berth'"),
        (ApiCall("moor", {"self": 1}), "HarbourAPI.moor() got multiple values for argument 'self'"),
        (ApiCall("charge", {"ship": []}), "unhashable type: 'list'"),
    ],
)
def test_a_call_that_fails_says_why(call: ApiCall, said: str) -> None:
    assert answers(SCENARIO, [], [call]) == [f"Error during execution: {said}"]


EXPECTED = [[moor("A", 1)], [], [LIST, charge("A")]]


@table(
    ("turns", "found"),
    [
        ([[moor("A", 1)], [], [charge("A"), LIST]], Checked(valid=True)),
        ([[moor("A", 1), LIST], [ApiCall("sink")], [charge("A")]], Checked(valid=True)),  # asked before
        ([[moor("A", 1), ApiCall("note", {"text": "x"})], [], [LIST, charge("A")]], Checked(valid=True)),
        ([[moor("A", 2), moor("A", 1)], [], [LIST, charge("A")]], Checked(valid=True)),
        ([[], [moor("A", 1)], [LIST, charge("A")]], Checked(False, 0, "no call")),
        ([[moor("A", 3)], [], [LIST, charge("A")]], Checked(False, 0, "another state")),
        ([[moor("A", 1)], [charge("A")], []], Checked(False, 2, "no call")),
        ([[moor("A", 1)], [], [charge("A"), charge("A"), LIST]], Checked(False, 2, "another state")),
        ([[moor("A", 1)], [], [charge("A")]], Checked(False, 2, "an answer is missing")),
    ],
)
def test_state_and_answers_decide(turns: list[list[ApiCall]], found: Checked) -> None:
    assert checked(SCENARIO, turns, EXPECTED) == found


def test_the_same_answer_is_needed_as_often_as_it_is_expected() -> None:
    twice = [[ApiCall("note", {"text": "x"}), LIST, LIST]]
    assert not checked(SCENARIO, [[ApiCall("note", {"text": "x"}), LIST]], twice).valid
    assert checked(SCENARIO, twice, twice).valid


@table("text", ["f(g())", "a.b()", "f", "f(x)", "__import__('os').system('x')", "f(", "f(1+1)"])
def test_published_calls_are_read_and_not_evaluated(text: str) -> None:
    with pytest.raises((ValueError, SyntaxError)):
        read(text)


@pytest.mark.skipif(not INSTALLED, reason=f"the authors' classes are not installed: {api_classes.INSTALL}")
def test_the_authors_calls_do_what_they_should() -> None:
    folder = Path(str(distribution("bfcl-eval").locate_file("")))
    files = [map(json.loads, (folder / name).read_text("utf-8").splitlines()) for name in FILES]
    classes: set[str] = set()
    for row in islice(rows(*files), 0, None, 9):
        scenario = Scenario(**row["scenario"])
        expected = [[ApiCall(**call) for call in turn] for turn in row["expected"]]
        assert checked(scenario, expected, expected) == Checked(valid=True), row["id"]
        assert checked(scenario, [[] for _ in expected], expected).problem == "no call"
        classes |= set(scenario.classes)
    assert classes == {*api_classes.MODULES} - {"HarbourAPI"}


@pytest.mark.skipif(INSTALLED, reason="the authors' classes are installed")
def test_classes_that_are_not_installed_are_named_with_the_remedy() -> None:
    with pytest.raises(UsageError, match=r"TravelAPI of the row: .* pip install --no-deps bfcl-eval"):
        api_classes.modules(["HarbourAPI", "TravelAPI"])
    with pytest.raises(PackageNotFoundError):
        distribution("bfcl-eval")

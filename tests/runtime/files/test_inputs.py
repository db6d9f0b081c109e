"""Inputs of stored rollouts: found by their numbers, whatever lies beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gym_runtime.errors import TaskError, UsageError
from gym_runtime.files.merging import StoredInputs


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def numbered(task: int | None, rollout: int | None = None, **fields: Any) -> dict[str, Any]:
    numbers = {"_ng_task_index": task, "_ng_rollout_index": rollout}
    return {**fields, **{name: number for name, number in numbers.items() if number is not None}}


def complete(inputs: StoredInputs, row: dict[str, Any]) -> dict[str, Any]:
    return json.loads(inputs.complete(json.dumps(row).encode()))


def test_a_row_gets_the_fields_that_it_lacks_and_keeps_its_own(tmp_path: Path) -> None:
    first = write(tmp_path / "a.jsonl", numbered(0, 0, x="a", y=None), numbered(0, 1, x="b"))
    second = write(tmp_path / "b.jsonl", numbered(7, x="c"), numbered(7, x="c"), numbered(8, 2, x="d"))
    with StoredInputs([first, second]) as inputs:
        assert complete(inputs, numbered(0, 1)) == numbered(0, 1, x="b")
        assert complete(inputs, numbered(0, 0, x=None)) == numbered(0, 0, x=None, y=None)
        assert complete(inputs, numbered(0)) == numbered(0, 0, x="a", y=None)
        assert complete(inputs, numbered(7, 5)) == numbered(7, 5, x="c")
        assert complete(inputs, numbered(8)) == numbered(8, 2, x="d")
        has_all = b'{ "_ng_task_index": 7, "x" : 1}'
        assert inputs.complete(has_all) == has_all


def test_a_row_gets_no_marks_of_its_input(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", numbered(0, x="a", _ng_failure_class="agent", _gym={}))
    with StoredInputs([path]) as inputs:
        assert complete(inputs, numbered(0, 1)) == numbered(0, 1, x="a")


def test_rows_without_numbers_are_numbered_as_a_run_does(tmp_path: Path) -> None:
    first = write(tmp_path / "a.jsonl", {"x": "a"}, {"x": "b"}, {"x": "a"})
    second = write(tmp_path / "b.jsonl", {"x": "b"}, {"x": "c"})
    with StoredInputs([first, second]) as inputs:
        found = [complete(inputs, numbered(task, 5))["x"] for task in range(3)]
        assert found == ["a", "b", "c"]
        with pytest.raises(TaskError, match="there is no input of task 3"):
            complete(inputs, numbered(3))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (numbered(1, 0), "there is no input of task 1, rollout 0 in --inputs"),
        (numbered(0, 3), "there is no input of task 0, rollout 3"),
        (numbered(1), "there is no input of task 1 in"),
        (numbered(None, 0), "the row has no '_ng_task_index'"),
    ],
)
def test_a_row_without_an_input_says_which_it_looked_for(
    row: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "a.jsonl", numbered(0, 0), numbered(0, 1))
    with StoredInputs([path]) as inputs, pytest.raises(TaskError, match=message):
        complete(inputs, row)


def asking(text: Any, *before: dict[str, Any]) -> dict[str, Any]:
    return {"responses_create_params": {"input": [*before, {"role": "user", "content": text}]}}


def test_an_input_that_asks_another_question_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "other.jsonl", numbered(7), numbered(0, expected=4, **asking("What is 2+2?")))
    with StoredInputs([path]) as inputs:
        with pytest.raises(TaskError, match=r"other.jsonl:2 has the row's numbers but asks another question"):
            complete(inputs, numbered(0, 1, **asking("What is 3+3?")))
        with pytest.raises(TaskError, match="asks another question"):
            complete(inputs, numbered(0, 1, responses_create_params={"input": "What is 3+3?"}))


@pytest.mark.parametrize(
    "stored",
    [
        asking("What is 2+2?", {"role": "system", "content": "Be brief."}),
        asking([{"type": "input_text", "text": "What is\n2+2?", "annotations": []}]),
        asking("<task>What is 2+2?</task> Use the tools."),
        {"responses_create_params": {"input": "What is 2+2?"}},
        {"responses_create_params": {"input": []}},
        {"responses_create_params": None},
        {},
    ],
)
def test_a_question_in_another_form_is_the_same(stored: dict[str, Any], tmp_path: Path) -> None:
    shot = {"role": "user", "content": "What is 1+1?"}
    path = write(tmp_path / "a.jsonl", numbered(0, expected=4, **asking("What is 2+2?", shot)))
    with StoredInputs([path]) as inputs:
        assert complete(inputs, numbered(0, 0, **stored))["expected"] == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"_ng_task_index": 0}\n{"x"\n{"_ng_task_index": 1}\n',
            r"a.jsonl:2 is no row \(Input data was truncated",
        ),
        ("\n[]\n", r"a.jsonl:2 is no row \(Expected `object`"),
        ('{"x": 1}\n{"_ng_task_index": 0}\n', "a.jsonl:1 and .*a.jsonl:2 are different rows"),
        (
            '{"_ng_task_index": 0, "x": 1}\n\n{"_ng_task_index": 0, "x": 2}\n',
            "a.jsonl:1 and .*a.jsonl:3 are different rows",
        ),
    ],
)
def test_files_that_are_no_inputs_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        StoredInputs([path])


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*none.jsonl: No such file"):
        StoredInputs([tmp_path / "none.jsonl"])

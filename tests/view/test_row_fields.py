"""Fields of rows as columns, and their figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gym_view.row_fields import column, figures_in
from gym_view.run_files import Run

ROWS = [
    {
        "reward_components": {"a.b": 1, "judge": 0.25},
        "topic": "tides",
        "meta": {"level": 3, "deep": {"er": "x"}},
        "right": True,
        "reward": 1,
        "_ng_task_index": 0,
    },
    {"reward_components": [1], "topic": 4, "meta": 5, "right": None, "_ng_task_index": 1},
    {
        "reward_components": {"judge": 0.75},
        "topic": "y" * 201,
        "big": 10**400,
        "_ng_task_index": 1,
        "_ng_rollout_index": 1,
    },
]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    lines = [json.dumps(ROWS[0]), json.dumps(ROWS[1]), "no json", json.dumps(ROWS[2])]
    path.write_text("".join(line + "\n" for line in lines))
    return path


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("components.judge", [0.25, None, None, 0.75]),
        ("field.topic", ["tides", 4.0, None, None]),
        ("field.meta.level", [3.0, None, None, None]),
        ("field.meta.deep.er", ["x", None, None, None]),
        ("field.meta", [None, 5.0, None, None]),
        ("field.right", ["true", None, None, None]),
        ("field.big", [None, None, None, None]),
        ("field.", [None, None, None, None]),
        ("", [None, None, None, None]),
    ],
)
def test_a_field_is_a_column(name: str, values: list[float | str | None], rows: Path) -> None:
    assert list(column(rows, name)) == values


def test_a_column_goes_on_from_a_byte(rows: Path) -> None:
    second = rows.read_bytes().index(b"\n") + 1
    assert list(column(rows, "components.judge", second)) == [None, None, 0.75]


def test_the_figures_of_fields(rows: Path) -> None:
    found = {one.name: one for one in figures_in(Run(id="a", rollouts=rows)).fields}
    assert list(found) == ["components.a.b", "components.judge", "field.meta", "field.right", "field.topic"]
    judge = found["components.judge"]
    assert (judge.count, judge.mean, judge.error) == (2, 0.5, 0.25)
    assert found["field.right"].texts == {"true": 1}
    assert (found["field.topic"].mean, found["field.topic"].texts) == (4.0, {"tides": 1})


def test_a_field_with_many_texts_has_none_listed(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    long = "x" * 1000  # a name that is longer than a value may be is no column
    path.write_text("".join(json.dumps({"id": f"n{number}", long: 1}) + "\n" for number in range(99)))
    (one,) = figures_in(Run(id="a", rollouts=path)).fields
    assert one.texts == {}


def test_rewards_by_the_version_of_the_weights(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = [
        {
            "reward": reward,
            "_ng_task_index": number % 2,
            "_ng_rollout_index": number // 2,
            "_gym": {"weight_versions": versions},
        }
        for number, (reward, versions) in enumerate([(0, ["0"]), (1, ["0"]), (1, ["0", "10"]), (1, ["10"])])
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"reward": 1}]))
    found = figures_in(Run(id="a", rollouts=path)).versions
    assert [(one.version, one.rollouts, one.mean, one.error) for one in found] == [
        ("0", 2, 0.5, 0.5),
        ("10", 2, 1.0, 0.0),
    ]


def test_a_failure_that_was_made_up_for_does_not_count(tmp_path: Path) -> None:
    def line(task: int, **more: object) -> str:
        own = {"weight_versions": ["step-1"]}
        return json.dumps({"_ng_task_index": task, "_gym": own, "level": task, **more}) + "\n"

    rows, failures = tmp_path / "a.jsonl", tmp_path / "a_failures.jsonl"
    rows.write_text("".join(line(task, reward=1.0) for task in range(4)))
    failures.write_text("".join(line(task, _ng_failure_class="runtime") for task in (0, 0, 5, 5)))
    found = figures_in(Run(id="a", rollouts=rows))
    assert [(one.version, one.rollouts, one.mean) for one in found.versions] == [("step-1", 5, 1.0)]
    (level,) = found.fields
    assert (level.name, level.count, level.mean) == ("field.level", 5, 2.2)

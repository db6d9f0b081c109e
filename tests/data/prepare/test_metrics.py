"""The metrics of a prepared file, and what contradicts stored ones."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest
from gym_data.prepare.dataset_metrics import (
    DataMetrics,
    Figures,
    differences,
    refuse_conflict,
    write_metrics,
)
from gym_runtime.errors import UsageError
from hypothesis import given
from hypothesis import strategies as st
from tables import table

NONE = {"Total # non-null values": 0, "Average": 0.0, "Min": 0.0, "Max": 0.0, "Standard deviation": 0.0}


def figures(total: int, average: float, low: float, high: float, deviation: float) -> dict[str, float]:
    return dict(zip(NONE, (total, average, low, high, deviation), strict=True))


def document(*rows: dict[str, Any]) -> dict[str, Any]:
    metrics = DataMetrics()
    for one in rows:
        metrics.add(json.dumps(one).encode())
    return metrics.document()


def test_numbers_of_any_size_have_metrics() -> None:
    params = {"responses_create_params": {"input": "x"}}
    found = document(*({**params, "a": 1.7e308, "b": sign * 1.7e308} for sign in (1, -1, 1)))
    assert found["a"] == figures(3, 1.7e308, 1.7e308, 1.7e308, 0.0)
    assert found["b"] == {**figures(3, 1.7e308 / 3, -1.7e308, 1.7e308, 0.0), "Standard deviation": None}
    json.dumps(found, allow_nan=False)


def test_the_fields_are_nemo_gyms_in_their_order() -> None:
    user = {"role": "user", "content": "one two"}
    found = document(
        {
            "responses_create_params": {"input": "hello there"}, "level": 1, "tag": "x",
            "agent_ref": {"name": "a"},
        },
        {
            "responses_create_params": {
                "input": [{"role": "system", "content": "s"}, user, user], "temperature": 0.5,
                "tools": [{"name": "t"}], "parallel_tool_calls": None,
            },
            "level": 2.5, "tag": "x", "flags": [True, False], "names": ["p", "q"], "nothing": None,
            "response": {"id": "r"},
        },
    )  # fmt: skip
    assert list(found) == [
        "Number of examples", "Number of tools", "Json-dumped number of words (proxy for token count)",
        "Number of turns", "Temperature", "level", "tag", "flags", "names",
    ]  # fmt: skip
    assert found["Number of examples"] == 2
    assert found["Number of tools"] == figures(1, 1.0, 1.0, 1.0, 0.0)
    assert found["Number of turns"] == figures(2, 1.5, 1.0, 2.0, 0.707)
    assert found["Temperature"] == figures(1, 0.5, 0.5, 0.5, 0.0)
    assert found["level"] == figures(2, 1.75, 1.0, 2.5, 1.06)
    assert found["tag"] == {"unique_count": 1, "total_count": 2}
    assert found["flags"] == figures(2, 0.5, 0.0, 1.0, 0.707)
    assert found["names"] == {"unique_count": 2, "total_count": 2}
    words = found["Json-dumped number of words (proxy for token count)"]
    assert (words["Min"], words["Max"]) == (3.0, 22.0)


def test_a_field_is_what_its_first_value_is() -> None:
    params = {"responses_create_params": {"input": ""}}
    found = document({**params, "x": "text"}, {**params, "x": 5}, {**params, "x": 10**400})
    assert found["x"] == {"unique_count": 1, "total_count": 1}
    assert document(params)["Temperature"] == NONE


@given(st.lists(st.floats(-1e6, 1e6), min_size=2))
def test_figures_are_those_of_statistics(values: list[float]) -> None:
    counted = Figures()
    for value in values:
        counted.add(value)
    found = counted.document()
    assert found["Average"] == pytest.approx(statistics.fmean(values), abs=1e-2)
    assert found["Standard deviation"] == pytest.approx(statistics.stdev(values), abs=1e-2, rel=1e-6)


@table(
    ("stored", "new", "said"),
    [
        ({"a": 100.0}, {"a": 100.005}, []),
        ({"a": 100.0}, {"a": 100.006}, ["'a' was 100 and is 100.006"]),
        ({"a": 0.5}, {"a": 0.5004}, []),
        ({"a": 0.5}, {"a": 0.5006}, ["'a' was 0.5 and is 0.5006"]),
        ({"a": {"b": 1}}, {"a": {}}, ["'a.b' is gone"]),
        ({}, {"a": 1}, []),
        ({"a": [1, 2]}, {"a": [2, 1]}, []),
        ({"a": [1, 2]}, {"a": [1, 1]}, ["'a' has other elements"]),
        ({"a": "x"}, {"a": "y"}, ["'a' was 'x' and is 'y'"]),
        ({"a": 1}, {"a": {"b": 1}}, ["'a' was 1 and is {'b': 1}"]),
    ],
)
def test_what_differs(stored: dict[str, Any], new: dict[str, Any], said: list[str]) -> None:
    assert list(differences(stored, new)) == said


def test_a_conflict_is_written_beside_and_refused(tmp_path: Path) -> None:
    path = tmp_path / "train_metrics.json"
    refuse_conflict(path, {"a": 1})
    write_metrics(path, {"a": 1, "train": "x"})
    with pytest.raises(UsageError, match=r"(?s)'a' was 1 and is 2.*--overwrite-metrics-conflicts"):
        refuse_conflict(path, {"a": 2, "train": "x"})
    assert json.loads((tmp_path / "train_metrics_conflict.json").read_text()) == {"a": 2, "train": "x"}
    assert json.loads(path.read_text())["a"] == 1
    write_metrics(path, {"a": 2})
    assert [one.name for one in tmp_path.iterdir()] == ["train_metrics.json"]
    path.write_text("{")
    with pytest.raises(UsageError, match="cannot read the stored metrics"):
        refuse_conflict(path, {})

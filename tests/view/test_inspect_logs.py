"""Logs of inspect out of rows that have theirs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gym_runtime.errors import UsageError
from gym_view import inspect_logs


def row(sample: object, repeat: object = 0, task: object = "sums") -> str:
    log: dict[str, Any] = {"version": 2, "status": "success", "eval": {"task": task, "dataset": {}}}
    return json.dumps({"_ng_rollout_index": repeat, "inspect_log": {**log, "samples": [{"id": sample}]}})


def test_rollouts_of_a_task_are_one_log(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = [
        row(1),
        row(2),
        row(1, 1),
        row("x", task="../b"),
        row([]),
        '{"reward": 1}',
        '{"inspect_log": [1]}',
    ]
    path.write_text("\n".join(lines) + "\n")
    done = inspect_logs.export([path], tmp_path / "logs")
    assert (done.rows, sum(done.left_out.values())) == (4, 3)
    assert [Path(one).name for one in done.files] == ["1_sums.json", "2____b.json"]
    log = json.loads((tmp_path / "logs/1_sums.json").read_text())
    assert [(one["id"], one["epoch"]) for one in log["samples"]] == [(1, 1), (2, 1), (1, 2)]
    assert log["eval"]["dataset"] == {"samples": 2, "sample_ids": [1, 2]}
    assert (log["eval"]["config"]["epochs"], log["results"]["total_samples"]) == (2, 3)
    with pytest.raises(UsageError, match="is there already"):
        inspect_logs.export([path], tmp_path / "logs")


def test_each_file_has_its_own_logs(tmp_path: Path) -> None:
    """Two models' answers to one sample became two samples of one log, both in epoch 1."""
    files = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for path in files:
        path.write_text(row(1) + "\n")
    done = inspect_logs.export(files, tmp_path / "logs")
    counts = [json.loads(Path(one).read_text())["results"]["total_samples"] for one in done.files]
    assert counts == [1, 1]


def test_a_damaged_row_is_counted_and_the_others_are_written(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(f'{row(1)}\n{{"torn\n{row(2)}\n')
    done = inspect_logs.export([tmp_path / "a.jsonl"], tmp_path / "logs")
    assert (done.rows, done.left_out) == (2, {"the row is no JSON object in UTF-8": 1})


@pytest.mark.parametrize(
    ("text", "problem"),
    [('{"reward": 1}\n', r"\?log=true"), ("[1]\n", "the row is no JSON object")],
)
def test_nothing_to_write_is_one_line(text: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(text)
    with pytest.raises(UsageError, match=problem):
        inspect_logs.export([tmp_path / "a.jsonl"], tmp_path / "logs")
    assert not (tmp_path / "logs").exists()

"""Which files are runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gym_runtime.errors import UsageError
from gym_view.run_files import describe, find_runs

ROW = b'{"responses_create_params": {"input": "x"}, "response": {"output": []}, "reward": 1.0}\n'


def test_rollouts_are_told_from_the_files_beside_them(tmp_path: Path) -> None:
    for name in ("a", "b/c", ".hidden/d"):
        path = tmp_path / f"{name}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(ROW)
    for name in ("a_failures", "a_materialized_inputs", "a_reward_profiling"):
        (tmp_path / f"{name}.jsonl").write_bytes(ROW)
    (tmp_path / "dataset.jsonl").write_text('{"responses_create_params": {"input": "x"}}\n')
    (tmp_path / "started.jsonl").write_bytes(b"")
    (tmp_path / "started_run.json").write_text('{"run": "r", "rollouts": 8}')
    runs = {run.id: run for run in find_runs([tmp_path])}
    assert set(runs) == {"a", "b~c", "started"}
    assert set(runs["a"].parts) == {"rollouts", "failures"}
    assert describe(runs["started"])["manifest"] == {"run": "r", "rollouts": 8}


def test_files_of_one_name_have_different_ids(tmp_path: Path) -> None:
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.jsonl").write_bytes(ROW)
    runs = find_runs([tmp_path / "x" / "a.jsonl", tmp_path / "y" / "a.jsonl"])
    assert sorted(run.id for run in runs) == ["a", "a~2"]


def test_a_broken_manifest_hides_no_run(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(ROW)
    (tmp_path / "a_run.json").write_text("{")
    (run,) = find_runs([tmp_path])
    assert describe(run)["manifest"] is None
    (tmp_path / "a_run.json").write_text(json.dumps([1]))
    assert describe(run)["manifest"] is None


def test_nothing_to_show_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="no rollouts"):
        find_runs([])

"""Profiles of the rewards, made of a run's files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gym_runtime.cli import main

ASKED = {
    "responses_create_params": {"input": "how many?"},
    "unit": "apples",
    "agent_ref": {"name": "counting"},
}
USAGE = {"input_tokens": 10, "output_tokens": 3, "total_tokens": 13}


def numbered(task: int, rollout: int) -> dict[str, Any]:
    return {**ASKED, "_ng_task_index": task, "_ng_rollout_index": rollout}


def judged(task: int, rollout: int, reward: float) -> dict[str, Any]:
    return {
        **numbered(task, rollout),
        "response": {"output": [], "usage": USAGE},
        "reward": reward,
        "right": 1,
    }


def failed(task: int, rollout: int) -> dict[str, Any]:
    return {**numbered(task, rollout), "_ng_failure_class": "timeout_exceeded"}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Task 0 has two verdicts of four rollouts, task 1 two of two, task 2 none; a failure was made good."""
    files = {
        "out": [judged(1, 1, 0.0), judged(0, 2, 1.0), judged(0, 0, 0.5), judged(1, 0, 1.0)],
        "out_failures": [failed(0, 0), failed(0, 1), failed(0, 1)],
        "out_materialized_inputs": [
            numbered(task, rollout) for task, times in ((0, 4), (1, 2), (2, 2)) for rollout in range(times)
        ],
    }
    for name, rows in files.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "out.jsonl"


def profiles(out: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line) for line in out.with_name("out_reward_profiling.jsonl").read_bytes().splitlines()
    ]


def test_profiles_join_inputs_and_rollouts(out: Path) -> None:
    assert main.run(["profile", str(out)]) == 0
    first, second = profiles(out)
    assert first["sample"] == ASKED
    assert (first["mean/reward"], first["num_rollouts"], first["expected_num_rollouts"]) == (0.75, 2, 4)
    assert (first["missing_num_rollouts"], first["reward_profile_completion_pct"]) == (2, 50.0)
    assert second["reward_profile_completion_pct"] == 100.0
    assert second["rollout_infos"] == [
        {
            "rollout_id": f"1:{index}",
            "_ng_task_index": 1,
            "_ng_rollout_index": index,
            "reward": reward,
            **USAGE,
            "right": 1.0,
        }
        for index, reward in ((0, 1.0), (1, 0.0))
    ]


def test_a_failure_counts_once_as_zero_where_that_is_asked_for(out: Path) -> None:
    assert main.run(["profile", str(out.parent), "--failures-as-zero"]) == 0
    first, _ = profiles(out)
    assert (first["mean/reward"], first["num_rollouts"]) == (0.5, 3)


def test_a_run_without_inputs_is_refused(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out.with_name("out_materialized_inputs.jsonl").unlink()
    assert main.run(["profile", str(out)]) == 2
    assert "out_materialized_inputs.jsonl, which has the rows" in capsys.readouterr().err


def test_inputs_that_are_none_change_nothing(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out.with_name("out_materialized_inputs.jsonl").write_text('{"a": 1}\n')
    assert main.run(["profile", str(out)]) == 2
    assert "no file of materialized inputs" in capsys.readouterr().err
    assert not out.with_name("out_reward_profiling.jsonl").exists()


def test_a_doubled_row_counts_once_and_a_torn_last_line_not_at_all(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["profile", str(out)]) == 0
    whole = profiles(out)
    first = out.read_bytes().splitlines()[0]
    inputs = out.with_name("out_materialized_inputs.jsonl")
    out.write_bytes(out.read_bytes() + first + b"\n" + first[:40])
    inputs.write_bytes(inputs.read_bytes() + first[:40])
    capsys.readouterr()
    assert main.run(["profile", str(out)]) == 0
    told = capsys.readouterr().err
    for path in (out, inputs):
        assert told.count(f"{path}: the last line is torn, or still being written; it does not count\n") == 1
    assert profiles(out) == whole

"""``run`` of a benchmark: its prepared rows, its repeats and its score."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gym_runtime.environment import catalogue
from runtime.cli.in_process import ran

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]


def run(folder: Path, *more: str) -> tuple[dict[str, Any], str]:
    """``run gpqa``; its document and what it said."""
    status, out, said = ran(folder, "run", "gpqa", "--model", "scripted/message", "--overwrite", *more)
    assert status == 0, said
    return (json.loads(out) if "--json" in more else {"text": out}), said


def test_prepared_rows_are_run_with_the_published_repeats_and_scored(tmp_path: Path) -> None:
    examples = catalogue.environment("gpqa").examples.read_bytes().splitlines(keepends=True)
    data = tmp_path / "data" / "gpqa"
    data.mkdir(parents=True)
    (data / "benchmark.jsonl").write_bytes(examples[0] + examples[1])
    document, said = run(tmp_path, "--json")
    assert "gpqa: the rows of data/gpqa/benchmark.jsonl" in said
    assert document["summary"]["rollouts"] == 16
    figures = {"mean@8": 0.0, "Chemistry": 0.0, "Physics": 0.0, "spread over repeats": 0.0}
    assert document["summary"]["score"] == figures
    [entry] = json.loads((tmp_path / "results" / "gpqa_aggregate_metrics.json").read_bytes())
    assert entry["score"] == document["summary"]["score"]

    (data / "benchmark.jsonl").unlink()
    document, said = run(tmp_path, "--repeats", "1")
    assert "gpqa: its example rows; 'gym-runtime prepare gpqa' fetches the published ones" in said
    assert "gym-runtime prepare gpqa" in said
    assert "score                accuracy 0  Biology 0  Chemistry 0  Physics 0" in document["text"]


def test_a_benchmark_whose_rows_no_command_fetches_says_so(tmp_path: Path) -> None:
    models = ("--judge", "scripted/message", "--model", "scripted/message")
    status, _, said = ran(tmp_path, "run", "physics_judge", *models, "--dry-run")
    assert status == 0, said
    assert "physics_judge: its example rows; a score can be compared only of" in said
    assert "prepare" not in said


def test_rollouts_that_are_not_judged_need_no_judge_and_get_the_reward_that_is_named(tmp_path: Path) -> None:
    repeats = ("--repeats", "gpqa=2", "--repeats", "simpleqa=1", "--limit", "2")
    command = ("run", "gpqa", "simpleqa", "--model", "scripted/message", "--skip-verification", "0.25")
    ended = ran(tmp_path, *command, *repeats)
    assert ended.status == 0, ended.err
    rows = [json.loads(line) for line in (tmp_path / "results/gpqa-simpleqa.jsonl").read_text().splitlines()]
    names = [row["agent_ref"]["name"] for row in rows]
    assert (names.count("gpqa"), names.count("simpleqa")) == (4, 2)
    assert {(row["reward"], row["verification_skipped"]) for row in rows} == {(0.25, True)}
    refused = ran(tmp_path, *command, "--repeats", "mcqa=2", "--overwrite")
    assert "--repeats mcqa=2: no row is of this environment; there are: gpqa, simpleqa" in refused.err

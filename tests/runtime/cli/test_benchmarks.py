"""``run`` of a benchmark: its prepared rows, its repeats and its score."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from gym_runtime.environment import catalogue
from runtime.cli.started import SCRIPT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]


def run(folder: Path, *more: str) -> tuple[dict[str, Any], str]:
    """``run gpqa``; its document and what it said."""
    command = [SCRIPT, "run", "gpqa", "--model", "scripted/message", "--overwrite", *more]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=60, check=True)
    return (json.loads(ended.stdout) if "--json" in more else {"text": ended.stdout}), ended.stderr


def test_prepared_rows_are_run_with_the_published_repeats_and_scored(tmp_path: Path) -> None:
    examples = catalogue.environment("gpqa").examples.read_bytes().splitlines(keepends=True)
    data = tmp_path / "data" / "gpqa"
    data.mkdir(parents=True)
    (data / "benchmark.jsonl").write_bytes(examples[0] + examples[1])
    document, said = run(tmp_path, "--json")
    assert "gpqa: the rows of data/gpqa/benchmark.jsonl" in said
    assert document["summary"]["rollouts"] == 16
    assert document["summary"]["score"] == {"mean@8": 0.0, "Chemistry": 0.0, "Physics": 0.0}
    [entry] = json.loads((tmp_path / "results" / "gpqa_aggregate_metrics.json").read_bytes())
    assert entry["score"] == document["summary"]["score"]

    (data / "benchmark.jsonl").unlink()
    document, said = run(tmp_path, "--repeats", "1")
    assert "gpqa: example rows only, whose score means nothing" in said
    assert "gym-runtime prepare gpqa" in said
    assert "score                accuracy 0  Biology 0  Chemistry 0  Physics 0" in document["text"]

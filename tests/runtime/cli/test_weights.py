"""``weights``: a serving model is paused, changed and resumed, and its rollouts say what they came from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gym_runtime.cli import main
from runtime.cli.started import Started

ENVIRONMENT = "mcqa"


def weights(started: Started, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    status = main.run(["weights", *arguments, "--json", "--nats", started.url])
    out, err = capsys.readouterr()
    assert (status, err) == (0, "")
    (answer,) = json.loads(out).values()
    return answer


@pytest.mark.slow
def test_weights_are_changed_while_the_model_serves(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with Started(
        tmp_path, f"resource:{ENVIRONMENT}", "agent", "model", "--model", "scripted/message"
    ) as started:
        change_and_run(started, capsys, tmp_path / "rows.jsonl")


def change_and_run(started: Started, capsys: pytest.CaptureFixture[str], output: Path) -> None:
    assert weights(started, capsys, "state") == {"paused": False, "version": ""}
    assert weights(started, capsys, "pause") == {"paused": True, "version": ""}
    assert weights(started, capsys, "update", "/weights/7", "--version", "step-7")["version"] == "step-7"
    assert weights(started, capsys, "resume") == {"paused": False, "version": "step-7"}
    rows = Path(__file__).parents[3] / "resources" / "gym_resources" / f"{ENVIRONMENT}.jsonl"
    arguments = ["publish", str(rows), "--environment", ENVIRONMENT, "--limit", "2", "--nats", started.url]
    assert main.run(arguments) == 0
    run_id = capsys.readouterr().out.strip()
    assert main.run(["collect", run_id, "-o", str(output), "--nats", started.url]) == 0
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [row["_gym"]["weight_versions"] for row in rows] == [["step-7"]] * 2


@pytest.mark.parametrize(
    "arguments",
    [["version"], ["update"], ["update", "/weights/7"], ["pause", "now"], ["version", "7", "--version", "8"]],
)
def test_what_is_missing_is_said(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["weights", *arguments, "--nats", "nats://127.0.0.1:1"]) == 2
    assert "is used as: weights" in capsys.readouterr().err

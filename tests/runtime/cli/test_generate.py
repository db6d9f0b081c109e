"""``prepare --source generate``: rows made here, as many as wanted, the same ones for the same seed."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from gym_runtime.cli import main
from gym_runtime.environment.verdict import make_response
from resources.judging import usable

pytestmark = pytest.mark.slow
NAME = "reasoning_gym"
DATASETS = ("gcd", "countdown", "spell_backward")


def prepare(output: str, *more: str) -> list[str]:
    command = ["prepare", NAME, "--source", "generate", "--size", "8", "-o", output, *more]
    assert main.run(command) == 0
    return Path(output, "train.jsonl").read_text().splitlines()


def test_rows_of_some_datasets_are_generated_and_their_answers_score_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usable(NAME)
    monkeypatch.chdir(tmp_path)
    chosen = ("--set", f"dataset={','.join(DATASETS)}")
    lines = prepare("a", *chosen, "--seed", "3")
    assert prepare("b", *chosen, "--seed", "3") == lines != prepare("c", *chosen, "--seed", "4")
    rows = [json.loads(line) for line in lines]
    assert Counter(row["metadata"]["source_dataset"] for row in rows) == {
        "gcd": 3, "countdown": 3, "spell_backward": 2,
    }  # fmt: skip

    answered = [
        {**row, "response": json.loads(make_response(f"<answer>{row['answer']}</answer>")), "reward": 1.0}
        for row in rows
    ]
    Path("answered.jsonl").write_text("".join(json.dumps(row) + "\n" for row in answered))
    capsys.readouterr()
    assert (
        main.run(["reverify", "--rollouts", "answered.jsonl", "-o", "again.jsonl", "--strict", "--json"]) == 0
    )
    assert json.loads(capsys.readouterr().out)["equal"] == 8


def test_an_unknown_dataset_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main.run(["prepare", NAME, "--source", "generate", "--size", "1", "--set", "dataset=gdc"]) == 2
    assert "reasoning-gym has no dataset 'gdc'; did you mean 'gcd'" in capsys.readouterr().err

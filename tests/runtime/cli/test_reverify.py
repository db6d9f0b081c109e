"""``reverify``: stored rows, judged anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gym_runtime.cli import main
from gym_runtime.verdict import make_response


def stored(expected: int, text: str, reward: float | None, name: str = "summed") -> dict[str, Any]:
    return {
        "responses_create_params": {"input": [{"role": "user", "content": "What is it?"}]},
        "expected": expected, "response": json.loads(make_response(text)), "reward": reward,
        "agent_ref": {"name": name},
    }  # fmt: skip


@pytest.fixture(autouse=True)
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    monkeypatch.chdir(tmp_path)
    assert main.run(["new", "summed", "--shape", "verify"]) == 0
    capsys.readouterr()
    path = tmp_path / "stored.jsonl"
    lines = [stored(4, "It is 4", 1.0), stored(5, "It is 5", 0.0), stored(6, "It is 7", 0.0)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize("name", [["summed"], []])
def test_rewards_are_computed_anew(name: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["reverify", *name, "--rollouts", "stored.jsonl", "-o", "sub/anew.jsonl", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "rows": 3, "changed": 1, "rejected": 0, "mean_reward": 2 / 3, "previous_mean_reward": 1 / 3,
        "output": "sub/anew.jsonl",
    }  # fmt: skip
    rows = [json.loads(line) for line in Path("sub/anew.jsonl").read_text().splitlines()]
    assert [(row["reward"], row["_previous_reward"]) for row in rows] == [(1.0, 1.0), (1.0, 0.0), (0.0, 0.0)]


def test_a_row_that_cannot_be_judged_is_named_and_the_others_go_on(
    rows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with rows.open("a") as file:
        file.write('{"response": \n')
    assert main.run(["reverify", "summed", "--rollouts", "stored.jsonl", "-o", "anew.jsonl"]) == 1
    out, err = capsys.readouterr()
    assert err.startswith("stored.jsonl:4:")
    assert out.splitlines()[0] == (
        "judged 3 rows, 1 of them with another reward than before; 1 could not be judged"
    )
    assert len(Path("anew.jsonl").read_text().splitlines()) == 3


def test_nothing_is_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["reverify", "summed", "--rollouts", "stored.jsonl", "-o", "stored.jsonl"]) == 2
    assert "read and written" in capsys.readouterr().err
    Path("there.jsonl").write_text("precious\n")
    assert main.run(["reverify", "summed", "--rollouts", "stored.jsonl", "-o", "there.jsonl"]) == 2
    assert "has content already" in capsys.readouterr().err
    assert Path("there.jsonl").read_text() == "precious\n"

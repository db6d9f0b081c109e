"""``run`` with rows that name no environment here: it says what it takes and what it leaves out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from runtime.cli.in_process import ran

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]
QUESTION = {"options": [{"A": "x"}, {"B": "y"}], "expected_answer": "B"}


def row(ref: str, text: str) -> str:
    fields: dict[str, Any] = {
        "responses_create_params": {"input": text},
        "agent_ref": {"name": ref},
        **QUESTION,
    }
    return json.dumps(fields) + "\n"


def run(folder: Path, *more: str) -> tuple[int, str]:
    command = ("run", *more, "--model", "scripted/echo", "-i", "rows.jsonl", "-o", "out.jsonl")
    status, _, said = ran(folder, *command, "--overwrite")
    return status, said


def test_it_says_what_it_takes_and_what_it_leaves_out(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(
        row("alien_agent", "Answer: B") + row("told_simple_agent", "Answer: B") + row("boxed", "Answer: B")
    )
    for name, mode in (("boxed", "strict_single_letter_boxed"), ("told", "lenient_answer_colon")):
        (tmp_path / f"{name}.toml").write_text(f'environment = "mcqa"\n[settings]\ngrading_mode = "{mode}"\n')
    names = ("told.toml", "boxed.toml")
    status, said = run(tmp_path, *names)
    assert (status, "no environment has agent_ref 'alien_agent'" in said) == (2, True)

    status, said = run(tmp_path, *names, "--skip-unknown")
    assert (status, "left out: 1 row of agent_ref 'alien_agent'" in said) == (0, True), said
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert {one["_gym"]["environment"]: one["reward"] for one in rows} == {"told": 1.0, "boxed": 0.0}

    (tmp_path / "rows.jsonl").write_text(row("alien_agent", "Answer: B"))
    status, said = run(tmp_path, "told.toml")
    taken = "taken by the environment that you named: 1 row of agent_ref 'alien_agent'"
    assert (status, taken in said) == (0, True), said
    (only,) = (json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines())
    assert (only["reward"], only["agent_ref"]["name"]) == (1.0, "alien_agent")

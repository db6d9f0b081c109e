"""Guides for coding assistants are listed, printed and written; test_snippets.py runs their commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from gym_runtime.cli.main import run
from gym_testing.skills import skills

NAMES = ["audit", "new-environment", "new-judge", "port-from-nemo-gym"]


def test_each_has_the_head_of_a_skill() -> None:
    assert [skill.name for skill in skills()] == [f"gym-runtime-{name}" for name in NAMES]
    for skill in skills():
        assert 50 < len(skill.description) < 300
        assert "```bash" in skill.text


def test_they_are_printed_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["skills", "audit"]) == 0
    assert capsys.readouterr().out == skills()[0].text
    assert run(["skills"]) == 0
    assert "gym-runtime-new-judge: Write" in capsys.readouterr().out
    assert run(["skills", "--write", str(tmp_path / "a" / "skills")]) == 0
    written = {path.parent.name: path.read_text() for path in tmp_path.rglob("SKILL.md")}
    assert written == {skill.name: skill.text for skill in skills()}


def test_an_unknown_one_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["skills", "nothing"]) == 2
    assert "there is no guide 'nothing'; there are gym-runtime-audit" in capsys.readouterr().err
    (tmp_path / "file").touch()
    assert run(["skills", "--write", str(tmp_path / "file")]) == 2

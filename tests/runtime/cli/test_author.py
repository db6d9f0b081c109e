"""``new`` writes environments that keep the contract at once; ``test`` says which rule is broken."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from gym_runtime.cli import main

SHAPES = ["verify", "session", "episode"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("shape", SHAPES)
def test_a_new_environment_keeps_the_contract(shape: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = f"fresh_{shape}"
    assert main.run(["new", name, "--shape", shape]) == 0
    assert f"gym-runtime test {name}" in capsys.readouterr().out
    assert len(Path(f"{name}.py").read_text().splitlines()) < 30
    assert len(Path(f"{name}.jsonl").read_text().splitlines()) == 5
    assert main.run(["test", name, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)[0]
    assert (report["environment"], report["passed"], report["skipped"]) == (name, True, "")
    assert len(report["findings"]) >= 9
    assert all(set(finding) == {"rule", "passed", "detail"} for finding in report["findings"])


def test_new_puts_it_where_it_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["new", "placed", "--directory", "some/where"]) == 0
    assert "gym-runtime test some/where/placed.py" in capsys.readouterr().out
    assert main.run(["test", "some/where/placed.py"]) == 0


@pytest.mark.parametrize("suffix", [".py", ".jsonl"])
def test_new_overwrites_nothing(suffix: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path(f"mine{suffix}").write_text("precious")
    assert main.run(["new", "mine"]) == 2
    assert f"mine{suffix} exists" in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == [f"mine{suffix}"]
    assert Path(f"mine{suffix}").read_text() == "precious"


def test_new_says_where_it_cannot_write(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("taken").write_text("")
    assert main.run(["new", "mine", "--directory", "taken/deep"]) == 2
    assert capsys.readouterr().err.startswith("gym-runtime: cannot write to taken/deep: ")


def test_a_broken_rule_is_shown_and_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["new", "broken_rule", "--shape", "verify"]) == 0
    module = Path("broken_rule.py")
    module.write_text(module.read_text().replace("float(said == str(task.expected))", "1.0"))
    capsys.readouterr()
    assert main.run(["test", "broken_rule"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "✗ broken_rule: 1 of 9 rules broken"
    assert any(line.startswith("  ✗ silence scores nothing: row 1 scores 1 instead of 0") for line in lines)
    assert any(line == "  ✓ bad rows are refused" for line in lines)


BROKEN = {
    "x = = 3": "SyntaxError: invalid syntax",
    "1 / 0": "ZeroDivisionError: division by zero",
    "import no_such_package": "pip install no_such_package",
    "x = 1": "has no global 'environment = Environment(...)'",
}


@pytest.mark.parametrize("text", BROKEN)
def test_a_module_that_cannot_be_used_is_one_line(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("unusable_module.py").write_text(text)
    assert main.run(["test", "unusable_module"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert BROKEN[text] in error


NEIGHBOURLY = """
from gym_runtime import Environment, Reply, Task, Verdict
from worth import WORTH


async def verify(task: Task, reply: Reply) -> Verdict:
    return Verdict(WORTH)


environment = Environment(resource=verify, agent="single_turn", description="", heavy=True)
"""


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_users_modules_are_found_by_each_other_and_by_nobody_else(folder: Path) -> None:
    Path("ours.py").write_text(NEIGHBOURLY)
    Path("ours.jsonl").write_text('{"responses_create_params": {"input": "go"}}\n')
    Path("worth.py").write_text("WORTH = 0.5\n")
    Path("html.py").write_text("raise RuntimeError('not the library that has this name')\n")
    script = Path(sys.executable).with_name("gym-runtime")
    command = [script, "run", "ours", "--model", "scripted/message", "--output", "rows.jsonl"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    assert [json.loads(row)["reward"] for row in Path("rows.jsonl").read_text().splitlines()] == [0.5]

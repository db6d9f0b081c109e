"""``run --dry-run`` and ``--fail-on-failures``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gym_runtime.cli import main

HALF = '''"""Half of its rows cannot be judged."""

from gym_runtime import Environment, Reply, Task, Verdict


class Question(Task):
    broken: bool = False


async def verify(task: Question, reply: Reply) -> Verdict:
    if task.broken:
        raise ValueError("no verdict")
    return Verdict(1.0)


environment = Environment(resource=verify, description="Half.", agent="single_turn")
'''


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GYM_NATS_URL", raising=False)
    Path("half.py").write_text(HALF)
    rows = [{"responses_create_params": {"input": "x" * 96}, "broken": broken} for broken in (False, True)]
    Path("half.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


RUN = ["run", "half", "--model", "scripted/message", "-o", "out.jsonl"]


def estimated(capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, object]:
    assert main.run([*RUN, "--dry-run", "--json", *more]) == 0
    return json.loads(capsys.readouterr().out)


def test_strict_says_which_environments_have_no_strict_rule(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    strict = ["--dry-run", "--strict", "--model", "scripted/message", "-o", "out.jsonl"]
    assert main.run(["run", "half", *strict]) == 2
    assert "there is no setting 'strict' of half" in capsys.readouterr().err
    assert main.run(["run", "half", "xlam_fc", *strict]) == 0
    assert "--strict: no rule but the usual one: half\n" in capsys.readouterr().err
    assert main.run(["run", "xlam_fc", *strict]) == 0
    assert "no rule" not in capsys.readouterr().err


@pytest.mark.slow
def test_a_dry_run_counts_starts_nothing_and_writes_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gym_runtime.cli.whole_run.launch", None)
    found = estimated(capsys, "--repeats", "3")
    assert (found["rollouts"], found["rows"], found["model"]) == (6, {"half": 2}, "scripted/message")
    prompt = found["input_tokens"]
    assert isinstance(prompt, int)
    assert prompt >= 6 * 96 // 4
    assert (found["output_tokens"], found["cost"]) == (None, None), "nothing limits the answers"
    limits = ("--max-turns", "2", "--max-output-tokens", "50", "--price-in", "1", "--price-out", "10")
    found = estimated(capsys, *limits)
    assert found["output_tokens"] == 2 * 2 * 50
    assert isinstance(found["input_tokens"], int)
    assert found["cost"] == pytest.approx((found["input_tokens"] + 2000) / 1e6)
    assert main.run([*RUN, "--dry-run"]) == 0
    assert "answers and further turns are not known" in " ".join(capsys.readouterr().out.split())
    assert main.run([*RUN, "--dry-run", "--resume"]) == 2
    assert {path.name for path in folder.iterdir() if path.name != "__pycache__"} == {"half.py", "half.jsonl"}


@pytest.mark.slow
def test_failures_make_the_status_only_where_that_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(RUN) == 0
    assert main.run([*RUN, "--resume", "--fail-on-failures"]) == 1
    capsys.readouterr()
    by = estimated(capsys, "--repeats", "10", "--price-in", "1", "--price-out", "1")
    assert by["by"] == "as the 1 rollout in out.jsonl"
    assert by["rollouts"] == 20
    assert by["cost"] is not None


def test_an_installed_agent_before_a_file_of_its_name_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """`gym-runtime test tool_loop` tests the file; a run has what is installed."""
    Path("tool_loop.py").write_text("from gym_agents.single_turn import Agent\n")
    for agent, told in (("tool_loop", True), ("./tool_loop.py", False)):
        assert main.run([*RUN, "--dry-run", "--agent", agent]) == 0
        said = "'tool_loop' is an installed agent; for "
        assert (said in capsys.readouterr().err) is told

"""``compare`` with a job of Harbor's own runner: both figures where it books a failure as 0."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gym_runtime.cli.main import run
from gym_runtime.errors import UsageError
from gym_view import harbor_jobs
from gym_view.run_files import Run


def trial(job: Path, task: str, rewards: dict[str, float] | None, number: int = 0, **more: Any) -> None:
    folder = job / f"{task}__{number}"
    folder.mkdir(parents=True)
    result = {
        "task_name": task,
        "task_id": {"path": f"/somewhere/{task}"},
        "verifier_result": None if rewards is None else {"rewards": rewards},
        "exception_info": None if rewards else {"exception_type": "RewardFileNotFoundError"},
        **more,
    }
    (folder / "result.json").write_text(json.dumps(result))


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Rollouts of ours, and a job: equal, different, a failure on one side each."""
    job, rollouts = tmp_path / "job", tmp_path / "ours.jsonl"
    job.mkdir()
    (job / "result.json").write_text("{}")
    trial(job, "equal", {"reward": 1.0})
    trial(job, "differs", {"reward": 0.0, "style": 1.0})
    trial(job, "theirs-failed", None)
    trial(job, "ours-failed", {"reward": 0.0})
    trial(job, "only-there", {"reward": 1.0})
    rows = [("equal", 1.0), ("differs", 1.0), ("theirs-failed", 1.0), ("ours-failed", None)]
    lines = {True: list[str](), False: list[str]()}
    for number, (task, reward) in enumerate(rows):
        row: dict[str, Any] = {"harbor": {"path": task}, "_ng_task_index": number, "_ng_rollout_index": 0}
        row |= {"_ng_failure": {"message": "no grader"}} if reward is None else {"reward": reward}
        lines[reward is None].append(json.dumps({"responses_create_params": {"input": []}, **row}))
    rollouts.write_text("\n".join(lines[False]) + "\n")
    (tmp_path / "ours_failures.jsonl").write_text("\n".join(lines[True]) + "\n")
    return rollouts, job


def test_a_failure_is_no_reward_and_both_figures_are_there(files: tuple[Path, Path]) -> None:
    rollouts, job = files
    found, alone, names = harbor_jobs.compared(Run(id="ours", rollouts=rollouts), job)
    assert (alone, names) == ((0, 1), ["reward"])
    assert [(one.task, one.ours, one.theirs, one.ours_as_zero, one.theirs_as_zero) for one in found] == [
        ("differs", 1.0, 0.0, 1.0, 0.0),
        ("ours-failed", None, 0.0, 0.0, 0.0),
        ("theirs-failed", 1.0, None, 1.0, 0.0),
        ("equal", 1.0, 1.0, 1.0, 1.0),
    ]
    assert [one.why for one in found] == ["", "no grader", "RewardFileNotFoundError", ""]


def test_the_command(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    rollouts, job = map(str, files)
    assert run(["compare", rollouts, job]) == 0
    shown = capsys.readouterr().out
    assert "4 tasks, 3 of them with different rewards; only in one: 0 and 1" in shown
    assert "not judged: ours-failed: no grader" in shown
    assert "not judged: theirs-failed: RewardFileNotFoundError" in shown
    assert run(["compare", rollouts, job, "--json"]) == 0
    means = json.loads(capsys.readouterr().out)["means"]
    assert means == {"judged": [1.0, 1 / 3], "failures_as_zero": [0.75, 0.25]}


def test_which_of_several_rewards_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job, rollouts = tmp_path / "job", tmp_path / "ours.jsonl"
    job.mkdir()
    (job / "result.json").write_text("{}")
    row: dict[str, Any] = {
        "responses_create_params": {"input": []},
        "harbor": {"path": "one"},
        "reward": 1.0,
    }
    rollouts.write_text(json.dumps(row) + "\n")
    # A single one is read by whatever name, and that is said.
    trial(job, "one", {"accuracy": 0.5})
    compare = ["compare", str(rollouts), str(job)]
    assert run(compare) == 0
    assert "Harbor (accuracy)" in capsys.readouterr().out
    trial(job, "one", {"accuracy": 0.5, "style": 0.25, "two\nlines" * 99: 0.0}, 1)
    assert run(compare) == 2
    said = capsys.readouterr().err
    assert "have no reward 'reward'; --reward-key NAME says which: accuracy, style, two linestwo" in said
    assert (said.count("\n"), len(said) < 300) == (1, True)
    assert run([*compare, "--reward-key", "accuracy", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["reward_names"], found["tasks"][0]["theirs"]) == (["accuracy"], 0.5)
    # A trial without the one that was named was not judged by it.
    assert run([*compare, "--reward-key", "style"]) == 0
    assert "not judged: one: no reward 'style'" in capsys.readouterr().out
    assert run([*compare, "--reward-key", "speed"]) == 2
    assert "no reward 'speed'" in " ".join(capsys.readouterr().err.split())
    assert run(["compare", str(rollouts), str(rollouts), "--reward-key", "style"]) == 2


def test_what_is_no_job_and_what_cannot_be_read(files: tuple[Path, Path], tmp_path: Path) -> None:
    rollouts, job = files
    assert not harbor_jobs.is_job(tmp_path)
    (job / "equal__0" / "result.json").write_text("[" * 10_000)
    with pytest.raises(UsageError, match="cannot be read"):
        harbor_jobs.compared(Run(id="ours", rollouts=rollouts), job)
    (job / "equal__0" / "result.json").write_text(
        '{"task_name": 1, "task_id": 2, "verifier_result": {"rewards": {"reward": "1"}}}'
    )
    assert len(harbor_jobs.compared(Run(id="ours", rollouts=rollouts), job)[0]) == 3
    rollouts.write_text('{"reward": 1}\n')
    rollouts.with_name("ours_failures.jsonl").unlink()
    with pytest.raises(UsageError, match="no task in common"):
        harbor_jobs.compared(Run(id="ours", rollouts=rollouts), job)

"""``export --format harbor``: tasks of ours as folders that Harbor runs, judged by the same environment."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gym_resources.harbor_tasks import task_folder
from gym_runtime.cli.main import run
from gym_runtime.errors import UsageError
from gym_view import harbor_export

ASKED = "What costs 3 euros? A: an apple, B: a pear."
OPTIONS = {"options": [{"A": "apple"}, {"B": "pear"}], "expected_answer": "B"}


def row(task: int, reward: float, text: str, **more: Any) -> dict[str, Any]:
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    return {
        "responses_create_params": {"input": ASKED},
        **OPTIONS,
        "response": {"output": [message]},
        "reward": reward,
        "reward_components": {"right": reward},
        "agent_ref": {"name": "mcqa"},
        "_ng_task_index": task,
        "_ng_rollout_index": 0,
        **more,
    }


def exported(folder: Path, *rows: dict[str, Any]) -> Path:
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in rows))
    assert run(["export", str(file), "--format", "harbor", "-o", str(folder / "tasks")]) == 0
    return folder / "tasks"


def test_folders_are_tasks_of_harbor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    system = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": ASKED}]
    rows = [
        row(0, 0.0, "A"),
        row(0, 1.0, "\\boxed{B}", _ng_rollout_index=1),
        row(1, 0.0, "?", responses_create_params={"input": system}),
        row(2, 1.0, "x", agent_ref={"name": "blackjack"}),
        row(3, 1.0, "x", agent_ref={"name": "no_such_environment"}),
    ]
    folder = exported(tmp_path, *rows)
    said = capsys.readouterr().out
    assert "2 rows" in said
    assert "blackjack has tools or turns" in said
    assert "no answer of the run got the reward 1" in said
    first, second = task_folder.find(folder)
    assert (first.instruction[: len(ASKED)], first.solution_of(first.file.all_steps[0])) == (
        ASKED,
        "solution",
    )
    assert second.instruction.startswith(f"Be brief.\n\n{ASKED}\n\nWrite your whole answer")
    assert second.solution_of(second.file.all_steps[0]) == ""
    assert first.file.verifier.separate
    assert (folder / "mcqa-00000" / "solution" / "answer.txt").read_text() == "\\boxed{B}"
    kept = json.loads((folder / "mcqa-00000" / "tests" / "row.json").read_bytes())
    assert not {"response", "reward_components"} & set(kept)
    assert "expected_answer" not in first.instruction


def test_a_damaged_row_is_counted_and_the_others_are_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows.jsonl"
    whole = [json.dumps(row(task, 1.0, "\\boxed{B}")) for task in (0, 1)]
    file.write_text(f'{whole[0]}\n{{"torn\n{whole[1]}\n')
    assert run(["export", str(file), "--format", "harbor", "-o", str(tmp_path / "tasks")]) == 0
    assert "1 left out: the row is no JSON object" in capsys.readouterr().out
    assert len([*(tmp_path / "tasks").iterdir()]) == 2


def test_another_task_of_the_same_number_is_not_taken_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second file's task was dropped, and its answer became the solution of the first one's."""
    files = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    other = {"input": "What costs 2 euros? A: an apple, B: a pear."}
    files[0].write_text(json.dumps(row(0, 0.0, "?")) + "\n")
    files[1].write_text(json.dumps(row(0, 1.0, "\\boxed{A}", responses_create_params=other)) + "\n")
    assert run(["export", *map(str, files), "--format", "harbor", "-o", str(tmp_path / "tasks")]) == 0
    assert "1 left out: another task of this environment has the same number" in capsys.readouterr().out
    assert not (tmp_path / "tasks" / "mcqa-00000" / "solution").exists()


def test_what_a_model_has_judged_is_no_task(tmp_path: Path) -> None:
    """Its box has no model: judging failed there, or went without the model."""
    judged = {"_gym": {"environment": "xstest", "roles": {"judge": {"calls": 1}}}}
    rows = [row(0, 1.0, "x", agent_ref={"name": "equivalence_llm_judge"}), row(0, 1.0, "x", **judged)]
    for one in rows:
        (tmp_path / "rows.jsonl").write_text(json.dumps(one) + "\n")
        with pytest.raises(UsageError, match="asks a model to judge"):
            harbor_export.export([tmp_path / "rows.jsonl"], tmp_path / "tasks", image="localhost/gym-runtime")


def test_they_pass_harbors_own_models(tmp_path: Path) -> None:
    config = pytest.importorskip("harbor.models.task.config", reason="needs harbor: pip install harbor")
    folder = exported(tmp_path, row(0, 1.0, "\\boxed{B}"))
    text = (folder / "mcqa-00000" / "task.toml").read_text()
    assert config.TaskConfig.model_validate_toml(text).artifacts == ["/app/answer.txt"]


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize(("answer", "reward"), [("\\boxed{B}", 1.0), ("\\boxed{A}", 0.0), (None, 0.0)])
def test_an_answer_is_judged_as_here(tmp_path: Path, answer: str | None, reward: float) -> None:
    """The script of the tests, with folders of this test in place of a container's."""
    tests = exported(tmp_path, row(0, 1.0, "\\boxed{B}")) / "mcqa-00000" / "tests"
    places = {"app": tmp_path / "app", "logs": tmp_path / "logs", "tmp": tmp_path / "tmp", "tests": tests}
    script = (tests / "judge.py").read_text()
    script = re.sub(r'"/(app|logs|tmp|tests)/', lambda found: f'"{places[found[1]]}/', script)
    (tmp_path / "judge.py").write_text(script)
    for name in ("app", "logs/verifier", "tmp"):
        (tmp_path / name).mkdir(parents=True)
    if answer is not None:
        (tmp_path / "app" / "answer.txt").write_text(answer)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, str(tmp_path / "judge.py")],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert json.loads((tmp_path / "logs" / "verifier" / "reward.json").read_bytes()) == {"reward": reward}


def test_what_cannot_be_one_is_said(tmp_path: Path) -> None:
    image = [{"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,"}]}]
    talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    for given, problem in ((image, "prompt with images"), (talk, "prompt that holds answers")):
        file = tmp_path / "rows.jsonl"
        file.write_text(json.dumps(row(0, 1.0, "x", responses_create_params={"input": given})) + "\n")
        with pytest.raises(UsageError, match=problem):
            harbor_export.export([file], tmp_path / "tasks", image="localhost/gym-runtime")
    with pytest.raises(UsageError, match="no name of an image"):
        harbor_export.export([file], tmp_path / "tasks", image="a\nRUN id")

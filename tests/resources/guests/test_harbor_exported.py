"""Tasks that ``export --format harbor`` writes, run by Harbor's own runner: its verdicts are ours."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest
from gym_runtime.environment import catalogue, examples
from resources.guests import runtime_image
from resources.guests.test_harbor_images import podman, theirs
from sandbox import images

__all__ = ["podman"]  # a fixture
pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]

ENVIRONMENTS = (
    *("arc_agi", "arc_challenge", "calendar", "equivalence_rule", "format_verification", "graphwalks"),
    *("mcqa", "mmlu_pro", "string_match", "hotpotqa_qa", "wmt_translation", "lc_niah"),
)
IMAGE = f"localhost/gym-runtime-whole-{uuid4().hex[:12]}"


def row(
    environment: str, task: int, text: str, fields: dict[str, Any], reward: float = 1.0
) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    message = {"id": "a", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    return {
        **fields,
        "agent_ref": {"name": environment},
        "response": {"id": "a", "object": "response", "model": "m", "output": [message]},
        "reward": reward,
        "_ng_task_index": task,
        "_ng_rollout_index": 0,
    }


def told(*arguments: str) -> None:
    """Run a command of ours, in a process of its own: this one has an event loop."""
    program = str(Path(sys.executable).with_name("gym-runtime"))
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def here(file: Path, texts: dict[str, str], tasks: dict[str, dict[str, Any]]) -> dict[str, float]:
    """The rewards of these answers, by the environments themselves."""
    lines = [json.dumps(row(name[:-6], 0, text, tasks[name])) for name, text in texts.items()]
    file.write_text("\n".join(lines) + "\n")
    judged = file.with_suffix(".judged")
    told("reverify", "--rollouts", str(file), "--output", str(judged))
    found = map(json.loads, judged.read_text().splitlines())
    return {f"{one['agent_ref']['name']}-00000": one["reward"] for one in found}


@pytest.mark.parametrize("agent", ["oracle", "nop"])
def test_harbors_runner_gives_the_verdicts_of_here(podman: images.Engine, tmp_path: Path, agent: str) -> None:
    if shutil.which("harbor") is None:
        pytest.skip("to compare with Harbor's own runner, put harbor on the PATH")
    tasks: dict[str, dict[str, Any]] = {}
    texts: dict[str, str] = {}
    for environment in ENVIRONMENTS:
        first = examples.read(catalogue.environment(environment))[0]
        (turn,) = first.turns
        name = f"{environment}-00000"
        tasks[name] = {key: value for key, value in first.fields.items() if key != "gold"}
        texts[name] = cast("str", turn[0] if isinstance(turn[0], str) else turn[0]["content"][0]["text"])
    rows = tmp_path / "rows.jsonl"
    rows.write_text(
        "".join(json.dumps(row(name[:-6], 0, text, tasks[name])) + "\n" for name, text in texts.items())
    )
    folder = tmp_path / "tasks"
    told("export", str(rows), "--format", "harbor", "--image", IMAGE, "-o", str(folder))
    assert sorted(path.name for path in folder.iterdir()) == sorted(tasks)
    for name in sorted(tasks)[::3]:  # the agent is wrong in some
        texts[name] = "I do not know."
        (folder / name / "solution" / "answer.txt").write_text(texts[name])
    answers = texts if agent == "oracle" else dict.fromkeys(texts, "")
    wanted = here(tmp_path / "answers.jsonl", answers, tasks)
    assert sum(one == 1.0 for one in wanted.values()) == (8 if agent == "oracle" else 0)
    assert runtime_image.imported(podman, IMAGE) == ""
    assert theirs(folder, agent, tmp_path / "jobs") == wanted

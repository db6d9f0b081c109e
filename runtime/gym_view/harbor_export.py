"""Tasks of ours as folders in Harbor's format, made of the rows of a run.

A task whose environment judges one answer becomes a folder that Harbor and other programs run: the agent
writes its answer to ``/app/answer.txt``, and ``gym-runtime reverify`` judges it in a verifier's own image,
which has this package. If that fails there is no reward file, so Harbor books an error. The solution is an
answer of the run that got full reward; a task without one has no solution.

Source: the format of Harbor 0.26 (Apache-2.0).
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from gym_runtime.environment import catalogue
from gym_runtime.errors import UsageError
from gym_runtime.messages import as_list, as_object, content_text

from gym_view.drafts import draft_of
from gym_view.once import rows_in_files
from gym_view.training_data import Exported

MAX_TASKS = 100_000
FULL = 1.0
_ANSWER = "\n\nWrite your whole answer to the file /app/answer.txt.\n"
_TOML = """schema_version = "1.4"
artifacts = ["/app/answer.txt"]
[task]
name = "gym-runtime/{name}"
[metadata]
environment = "{environment}"
[environment]
workdir = "/app"
[agent]
timeout_sec = 1800.0
[verifier]
environment_mode = "separate"
timeout_sec = 600.0
[verifier.environment]
network_mode = "no-network"
"""
_TEST = "#!/bin/sh\nexec python3 /tests/judge.py\n"
_SOLVE = "#!/bin/sh\nmkdir -p /app && cp /solution/answer.txt /app/answer.txt\n"
_JUDGE = '''"""Judges /app/answer.txt by gym-runtime; without a reward file, Harbor books an error."""

import json
import os
import subprocess
from pathlib import Path

row = json.loads(Path("/tests/row.json").read_text())
answer = Path("/app/answer.txt")
text = answer.read_text(errors="replace") if answer.is_file() and not answer.is_symlink() else ""
part = {"type": "output_text", "text": text[:1_000_000], "annotations": []}
message = {"id": "a", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
row["response"] = {"id": "a", "object": "response", "model": "agent", "output": [message]}
Path("/tmp/row.jsonl").write_text(json.dumps(row) + "\\n")
told = ["gym-runtime", "reverify", row["agent_ref"]["name"], "--rollouts", "/tmp/row.jsonl"]
# What isolates the answer here is this container.
variables = {"GYM_SANDBOX": "weak", **os.environ}
subprocess.run([*told, "--output", "/tmp/judged.jsonl"], check=True, env=variables)
reward = json.loads(Path("/tmp/judged.jsonl").read_text())["reward"]
Path("/logs/verifier/reward.json").write_text(json.dumps({"reward": reward}))
'''


class Unfit(Exception):
    """A row is no such task; the message says why."""


def export(files: Sequence[Path], target: Path, *, image: str) -> Exported:
    """Write a folder for each task of some result files.

    Args:
        image: has a shell, Python and this package; agents work and answers are judged in images made of it.

    Raises:
        UsageError: a file is missing, no row has such a form, something stands at the target, or the disk
            does not take it.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._/:@-]*", image):
        raise UsageError(f"'{image}' is no name of an image; such as localhost/gym-runtime")
    left_out, done, asked = Counter[str](), dict[str, bool](), dict[str, int]()
    with draft_of(target) as draft:
        draft.mkdir()
        for _, row in rows_in_files(files, left_out):
            try:
                name, environment = _name(row)
                instruction = hash(_instruction(row))  # the text itself is long
                if asked.setdefault(name, instruction) != instruction:
                    raise Unfit(
                        "another task of this environment has the same number: export each file alone"
                    )
                if done.get(name):
                    continue
                answer = _answer(row) if row.get("reward") == FULL else None
                if name not in done:
                    _write(draft / name, row, name, environment, image)
                if answer is not None:
                    _solve(draft / name, answer)
                done[name] = answer is not None
            except Unfit as error:
                left_out[str(error)] += 1
            if len(done) > MAX_TASKS:
                raise UsageError(f"there are more than {MAX_TASKS:,} tasks; export a part of them")
        if not done:
            why = next(iter(left_out), "there are no rows")
            raise UsageError(f"nothing can be written: {why}")
    unsolved = sum(not solved for solved in done.values())
    if unsolved:
        left_out["solutions: no answer of the run got the reward 1"] = unsolved
    return Exported(rows=len(done), left_out=dict(left_out), files=[str(target / name) for name in done])


def _name(row: dict[str, Any]) -> tuple[str, str]:
    environment = as_object(row.get("_gym")).get("environment") or as_object(row.get("agent_ref")).get("name")
    task = row.get("_ng_task_index")
    if not isinstance(environment, str) or type(task) is not int:
        raise Unfit("a row names neither its environment nor its task")
    try:
        found = catalogue.environment(environment).definition
    except UsageError as error:
        raise Unfit(f"environment {environment[:100]}: {error.message}") from error
    if found.shape != "verify":
        raise Unfit(f"environment {environment[:100]} has tools or turns, and a task of Harbor has a box")
    needed = [role.name for role in found.declared_roles if not role.optional]
    if needed or as_object(as_object(row.get("_gym")).get("roles")) or found.compare is not None:
        raise Unfit(f"environment {environment[:100]} asks a model to judge, and a task of Harbor has none")
    return f"{re.sub(r'[^A-Za-z0-9_-]', '_', environment)[:80]}-{task:05}", environment


def _instruction(row: dict[str, Any]) -> str:
    params = as_object(row.get("responses_create_params"))
    given = params.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else as_list(given)
    first = params.get("instructions")
    texts = [first] if isinstance(first, str) else []
    for item in map(as_object, items):
        if item.get("role") not in ("user", "system", "developer"):
            raise Unfit("a prompt that holds answers is a conversation, and no instruction")
        content = item.get("content")
        if any(as_object(part).get("type") != "input_text" for part in as_list(content)):
            raise Unfit("a prompt with images is no instruction.md")
        texts.append(content_text(content))
    return "\n\n".join(texts) + _ANSWER


def _answer(row: dict[str, Any]) -> str | None:
    output = [as_object(item) for item in as_list(as_object(row.get("response")).get("output"))]
    messages = [item for item in output if item.get("type") == "message"]
    return content_text(messages[-1].get("content")) if messages else None


def _write(folder: Path, row: dict[str, Any], name: str, environment: str, image: str) -> None:
    judged = {key: value for key, value in row.items() if key not in ("response", "reward", "_gym")}
    judged = {key: value for key, value in judged.items() if key != "reward_components"}
    judged |= {"agent_ref": {"name": environment}, "reward": 0.0}
    texts = {
        "instruction.md": _instruction(row),
        "task.toml": _TOML.format(name=name, environment=name.rpartition("-")[0]),
        "environment/Dockerfile": f"FROM {image}\nUSER 0\nRUN mkdir -p /app\nWORKDIR /app\n",
        "tests/Dockerfile": f"FROM {image}\nUSER 0\nCOPY . /tests/\nRUN chmod +x /tests/test.sh\n",
        "tests/test.sh": _TEST,
        "tests/judge.py": _JUDGE,
        "tests/row.json": msgspec.json.encode(judged).decode(),
    }
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def _solve(folder: Path, answer: str) -> None:
    shutil.rmtree(folder / "solution", ignore_errors=True)
    (folder / "solution").mkdir()
    (folder / "solution" / "solve.sh").write_text(_SOLVE)
    (folder / "solution" / "answer.txt").write_text(answer, errors="replace")

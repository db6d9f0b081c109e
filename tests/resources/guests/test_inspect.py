"""Tasks of inspect_ai: the same scores as `inspect eval` with the same answers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gym_runtime.environment import catalogue
from gym_runtime.errors import UsageError
from gym_runtime.messages.outcomes import Completed, Truncated
from gym_testing.small_system import Engine, answer, function_call, message
from gym_view import inspect_logs
from resources.guests.guest_runs import OWN, guest, made, own_rows, result, said

pytest.importorskip("inspect_ai", reason="needs inspect_ai 0.3.285: pip install 'gym-runtime[inspect]'")
from gym_resources.guests.played import inspect_play

# Each task is loaded several times, which takes seconds.
pytestmark = [pytest.mark.anyio, pytest.mark.soak, pytest.mark.timeout(120)]

TASKS = OWN / "inspect_tasks.py"
ADD = function_call("add", '{"a": 1, "b": 1}', "1")
SUBMIT = function_call("submit", '{"answer": "2"}', "2")

CASES: list[tuple[str, list[Any], str]] = [
    ("sums", ["2"], ""),
    ("sums", ["3"], ""),
    ("tools", [["add", {"a": 1, "b": 1}], "It is 2."], ""),
    ("agent", [["add", {"a": 1, "b": 1}], ["submit", {"answer": "2"}]], ""),
    ("choices", ["ANSWER: B"], ""),
    ("two_scorers", ["so 2 it is"], "score=includes"),
    ("dict_score", ["2"], "score=both.right"),
    ("graded", ["2"], ""),
    ("local", [["shell", {"command": "echo $((1+1))"}], "2"], ""),
]

DIRECT = """
import json, sys
from inspect_ai import eval
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai._eval.loader import load_tasks

def model(*turns):
    outputs = [ModelOutput.for_tool_call("mockllm", one[0], one[1]) if isinstance(one, list)
               else ModelOutput.from_content("mockllm", one) for one in turns]
    for one in outputs:
        one.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)  # else a tokenizer is loaded
    return get_model("mockllm/model", custom_outputs=outputs, memoize=False)

found = []
for task, turns, _ in json.loads(sys.argv[2]):
    (log,) = eval(load_tasks([f"{sys.argv[1]}@{task}"], {}), model=model(*turns), limit=1, display="none",
                  model_roles={"grader": model("GRADE: C")}, log_dir=sys.argv[3])
    found.append({name: one.value for name, one in log.samples[0].scores.items()})
print("SCORES", json.dumps(found))
"""


@pytest.fixture(scope="module")
def scores(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The scores of `inspect eval` for the first sample of each case."""
    folder = str(tmp_path_factory.mktemp("logs"))
    program = [sys.executable, "-c", DIRECT, str(TASKS), msgspec.json.encode(CASES).decode(), folder]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert "SCORES" in done.stdout, done.stderr
    return msgspec.json.decode(done.stdout.partition("SCORES ")[2])


def played(turns: list[Any]) -> list[Any]:
    """The same answers for our engine."""
    return [
        answer(function_call(one[0], msgspec.json.encode(one[1]).decode(), f"call_{number}"))
        if isinstance(one, list)
        else answer(one)
        for number, one in enumerate(turns)
    ]


@pytest.mark.parametrize("case", range(len(CASES)))
async def test_scores_are_inspects(case: int, scores: list[dict[str, Any]]) -> None:
    (task, turns, setting), expected = CASES[case], scores[case]
    name = f"inspect:{TASKS}@{task}{'?' + setting if setting else ''}"
    judge = {"judge": Engine(answer("GRADE: C"))} if task == "graded" else {}
    async with guest(name, *played(turns), **judge) as system:
        roles = {"roles": {"judge": "judge"}} if judge else {}
        (record,) = await made(system, name, own_rows(name, 1), **roles)
    assert record.outcome == Completed(), record.outcome
    value: Any = next(iter(expected.values())) if not setting else None
    if value is None:
        scorer, _, key = setting.removeprefix("score=").partition(".")
        value = expected[scorer][key] if key else expected[scorer]
    assert record.reward == {"C": 1.0, "I": 0.0}.get(value, value)
    assert record.turns == len(turns)


async def test_what_the_model_sees_and_what_the_row_has() -> None:
    name = f"inspect:{TASKS}@agent"
    async with guest(name, answer(ADD), answer(SUBMIT)) as system:
        (record,) = await made(system, name, own_rows(name, 1))
    row = result(record)
    assert [one["name"] for one in row["responses_create_params"]["tools"]] == ["add", "submit"]
    roles = [role for role, _ in said(record)]
    assert roles[:2] == ["system", "user"]
    assert ("function_call_output", "2") in said(record)
    assert row["reward_components"] == {"includes": 1.0}


@pytest.mark.parametrize(
    ("task", "problem"),
    [
        ("nan", "unscored: 'cannot say'"),
        ("two_scorers", "say which is the reward"),
        ("broken", "a broken scorer"),
        ("starts_again", "does not continue"),
        ("graded", "--judge"),
    ],
)
async def test_a_failure_is_no_reward(task: str, problem: str) -> None:
    name = f"inspect:{TASKS}@{task}"
    async with guest(name, answer("2")) as system:
        (record,) = await made(system, name, own_rows(name, 1), max_attempts=1)
    assert record.reward is None
    assert problem in record.ending


async def test_limits_are_judged() -> None:
    """One of the task's, and one of the run's."""
    name = f"inspect:{TASKS}@limited"
    async with guest(name, answer(message("2"), ADD)) as system:
        (own,) = await made(system, name, own_rows(name, 1))
        (ours,) = await made(system, name, own_rows(name, 1), max_turns=1)
    assert isinstance(own.outcome, Truncated)
    assert result(own)["inspect_limit"] == "message"
    assert isinstance(ours.outcome, Truncated)
    assert ours.reward is not None


async def test_a_changed_sample_and_hostile_rows() -> None:
    name = f"inspect:{TASKS}@sums"
    (row,) = own_rows(name, 1)
    changed = {**row, "inspect": {**row["inspect"], "digest": "0"}}
    unknown = {**row, "inspect": {"id": "../x", "digest": ""}}
    async with guest(name, answer("2")) as system:
        records = await made(system, name, [changed, unknown, {**row, "inspect": 1}], max_attempts=1)
    assert [record.reward for record in records] == [None, None, None]
    assert "is not as it was" in records[0].ending


def test_what_is_refused() -> None:
    for address, problem in [
        ("@needs_docker", "the sandbox 'docker'"),
        ("@nothing", "cannot be loaded|names 0 tasks"),
        ("", "FILE.py@TASK"),
        ("@sums?folders=1", "folders is a text"),
        ("@sums?nope=1", "has no argument .nope.; it has"),
    ]:
        with pytest.raises(UsageError, match=problem):
            catalogue.environment(f"inspect:{TASKS}{address}")


async def test_a_command_of_the_model_reaches_no_stream_of_its_judge() -> None:
    """It runs as the same user in the same sandbox, and must not write the verdict."""
    name = f"inspect:{TASKS}@local"
    forge = "for f in /proc/[0-9]*/fd/* /proc/[0-9]*/mem; do echo x >$f; done; ls /proc/$PPID/fd"
    shell = answer(function_call("shell", msgspec.json.encode({"command": forge}).decode(), "1"))
    async with guest(name, shell, answer("wrong")) as system:
        (record,) = await made(system, name, own_rows(name, 1), max_attempts=1)
    assert (record.outcome, record.reward) == (Completed(), 0.0), record.outcome
    ((_, output),) = [one for one in said(record) if one[0] == "function_call_output"]
    assert "Permission denied" in output


SCORED = [("sums", "2", ""), ("choices", "ANSWER: B", ""), ("two_scorers", "so 2 it is", "score=includes")]


def scored(path: Path, chosen: str) -> list[tuple[int, int, float]]:
    """Each sample of a log, its epoch, and the score that ``inspect score`` writes."""
    log = msgspec.json.decode(path.read_bytes())
    for sample in log["samples"]:
        sample["scores"] = {}  # what was scored before must not be what is found
    path.write_bytes(msgspec.json.encode(log))
    command = [sys.executable, "-m", "inspect_ai", "score", str(path), "--overwrite", "--action", "overwrite"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: list[tuple[int, int, float]] = []
    for sample in msgspec.json.decode(path.read_bytes())["samples"]:
        value = sample["scores"][chosen or next(iter(sample["scores"]))]["value"]
        found.append((sample["id"], sample["epoch"], {"C": 1.0, "I": 0.0}[value]))
    return sorted(found)


async def test_inspect_score_agrees_on_our_logs(tmp_path: Path) -> None:
    """All samples of these tasks, two rollouts of each: what `inspect score` says of the exported logs."""
    rewards: list[tuple[int, int, float]] = []
    lines: list[bytes] = []
    for task, reply, setting in SCORED:
        name = f"inspect:{TASKS}@{task}?log=true&{setting}".rstrip("&")
        async with guest(name, answer(reply)) as system:
            records = await made(system, name, own_rows(name), repeats=2)
        assert all(record.outcome == Completed() for record in records), [one.ending for one in records]
        rewards += sorted(
            (result(one)["inspect"]["id"], one.rollout_index + 1, one.reward or 0.0) for one in records
        )
        lines += [bytes(record.row) for record in records]
    assert 0 < sum(reward for _, _, reward in rewards) < len(rewards)
    (tmp_path / "rows.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    done = inspect_logs.export([tmp_path / "rows.jsonl"], tmp_path / "logs")
    assert (done.rows, len(done.files)) == (len(lines), len(SCORED))
    chosen = [setting.removeprefix("score=") for _, _, setting in SCORED]
    theirs = [
        each for path, name in zip(done.files, chosen, strict=True) for each in scored(Path(path), name)
    ]
    assert theirs == rewards


def test_arguments_that_are_nested_too_deep_are_the_models_mistake() -> None:
    call = inspect_play._call("c", "f", '{"a":' * 5000 + "1" + "}" * 5000)
    assert "no JSON object" in call.parse_error

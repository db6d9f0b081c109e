"""Tasks of inspect_ai: the same scores as `inspect eval` with the same answers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

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
pytestmark = [pytest.mark.anyio, pytest.mark.soak, pytest.mark.timeout(1200)]

TASKS = OWN / "inspect_tasks.py"
ADD = function_call("add", '{"a": 1, "b": 1}', "1")
SUBMIT = function_call("submit", '{"answer": "2"}', "2")
Told = str | list[Any]
"""An answer of the model: a text, or a tool and its arguments."""


class Case(NamedTuple):
    """What the model says, sample by sample; a conversation that goes on gets the last answer again."""

    task: str
    samples: list[list[Told]]
    score: str = ""


def sums(*turns: Told) -> list[list[Told]]:
    """Turns for the samples 1+1 to 5+5: N stands for the answer, which is wrong for the even ones."""
    said = [str(2 * n if n % 2 else 7) for n in range(1, 6)]
    return [msgspec.json.decode(msgspec.json.encode(turns).replace(b"N", number.encode())) for number in said]


CASES = [
    Case("sums", sums("N")),
    Case("tools", sums(["add", {"a": 1, "b": 1}], "It is N.")),
    Case("agent", sums(["add", {"a": 1, "b": 1}], ["submit", {"answer": "N"}])),
    Case("choices", [[f"ANSWER: {letter}"] for letter in "BABAB"]),
    Case("two_scorers", sums("so N it is"), "includes"),
    Case("dict_score", sums("N"), "both.right"),
    Case("graded", sums("N")),
    Case("local", sums(["shell", {"command": "echo N"}], "N")),
    Case("limited", sums("N", ["add", {"a": 1, "b": 1}])),
    Case("nan", sums("N")),
]
RESCORED = {"sums": 2, "tools": 2, "two_scorers": 2, "agent": 2, "local": 1, "limited": 1}
"""Tasks whose logs ``inspect score`` can score, and how many rollouts of a sample there are: 50 in all."""

DIRECT = """
import json, sys
from inspect_ai import eval
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai._eval.loader import load_tasks

def model(samples):
    begun = []
    def respond(input, tools, tool_choice, config):
        turn = sum(one.role == "assistant" for one in input)
        begun.extend([0] * (turn == 0))
        said = samples[len(begun) - 1][:turn + 1][-1]
        one = (ModelOutput.for_tool_call("mockllm", *said) if isinstance(said, list)
               else ModelOutput.from_content("mockllm", said))
        one.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)  # else a tokenizer is loaded
        return one
    return get_model("mockllm/model", custom_outputs=respond, memoize=False)

found = []
for task, samples, _ in json.loads(sys.argv[2]):
    (log,) = eval(load_tasks([f"{sys.argv[1]}@{task}"], {}), model=model(samples), display="none",
                  max_samples=1, model_roles={"grader": model([["GRADE: C"]] * 5)}, log_dir=sys.argv[3])
    found.append([{name: one.value for name, one in each.scores.items()} for each in log.samples])
print("SCORES", json.dumps(found))
"""


@pytest.fixture(scope="module")
def scores(tmp_path_factory: pytest.TempPathFactory) -> list[list[dict[str, Any]]]:
    """The scores of `inspect eval` for the samples of each case."""
    folder = str(tmp_path_factory.mktemp("logs"))
    program = [sys.executable, "-c", DIRECT, str(TASKS), msgspec.json.encode(CASES).decode(), folder]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert "SCORES" in done.stdout, done.stderr
    return msgspec.json.decode(done.stdout.partition("SCORES ")[2].replace("NaN", "null"))


class Samples(Engine):
    """A model that answers each row with the turns of its sample."""

    def __init__(self, samples: list[list[Told]]) -> None:
        super().__init__(answer(""))
        self._samples = samples

    async def respond(self, call: Any, context: Any) -> Any:
        told = self._samples[int(context.rollout.rsplit(".", 2)[1])]
        self._turns = [
            answer(function_call(one[0], msgspec.json.encode(one[1]).decode(), f"call_{number}"))
            if isinstance(one, list)
            else answer(one)
            for number, one in enumerate(told)
        ]
        return await super().respond(call, context)


def number_of(scores: dict[str, Any], chosen: str) -> float | None:
    """A sample's score as a reward; None for NaN."""
    scorer, _, key = (chosen or next(iter(scores))).partition(".")
    value = scores[scorer][key] if key else scores[scorer]
    return {"C": 1.0, "I": 0.0}.get(value, value)


async def test_scores_are_inspects(scores: list[list[dict[str, Any]]], tmp_path: Path) -> None:
    """10 tasks of 5 samples, as `inspect eval` scores them; 50 exported samples, as `inspect score` does."""
    same, lines, rewards = 0, list[bytes](), list[tuple[int, int, float]]()
    for case, expected in zip(CASES, scores, strict=True):
        settings = ["log=true", *([f"score={case.score}"] if case.score else [])]
        name = f"inspect:{TASKS}@{case.task}?{'&'.join(settings)}"
        judge = {"judge": Engine(answer("GRADE: C"))} if case.task == "graded" else {}
        repeats = RESCORED.get(case.task, 1)
        async with guest(name, Samples(case.samples), **judge) as system:
            roles = {"roles": {"judge": "judge"}} if judge else {}
            records = await made(system, name, own_rows(name), repeats=repeats, max_attempts=1, **roles)
        for record in records:
            wanted = number_of(expected[record.task_index], case.score)
            assert record.reward == wanted, (case.task, record.task_index, record.ending)
            assert wanted is not None or "unscored" in record.ending
        same += len(expected)
        if case.task in RESCORED:
            lines += [bytes(one.row) for one in records]
            rewards += [(one.task_index + 1, one.rollout_index + 1, one.reward or 0.0) for one in records]
    assert same == 50
    (tmp_path / "rows.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    done = inspect_logs.export([tmp_path / "rows.jsonl"], tmp_path / "logs")
    assert (done.rows, len(done.files)) == (50, len(RESCORED))
    chosen = {case.task: case.score for case in CASES}
    theirs = [each for path in map(Path, done.files) for each in rescored(path, chosen[path.stem[2:]])]
    assert sorted(theirs) == sorted(rewards)
    assert 0 < sum(reward for _, _, reward in rewards) < 50


def rescored(path: Path, chosen: str) -> list[tuple[int, int, float]]:
    """Each sample of a log, its epoch, and the score that ``inspect score`` writes."""
    log = msgspec.json.decode(path.read_bytes())
    for sample in log["samples"]:
        sample["scores"] = {}  # what was scored before must not be what is found
    path.write_bytes(msgspec.json.encode(log))
    command = [sys.executable, "-m", "inspect_ai", "score", str(path), "--overwrite", "--action", "overwrite"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    samples = msgspec.json.decode(path.read_bytes())["samples"]
    found: list[tuple[int, int, float]] = []
    for one in samples:
        values = {name: score["value"] for name, score in one["scores"].items()}
        found.append((one["id"], one["epoch"], number_of(values, chosen) or 0.0))
    return found


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


async def test_an_answer_that_is_cut_short_is_judged() -> None:
    """It was judged as an empty one."""
    name = f"inspect:{TASKS}@sums"
    cut = answer("2", incomplete_details={"reason": "max_output_tokens"}, status="incomplete")
    async with guest(name, cut) as system:
        (record,) = await made(system, name, own_rows(name, 1))
    assert isinstance(record.outcome, Truncated)
    assert (record.reward, result(record)["inspect_answer"]) == (1.0, "2")


async def test_an_answer_that_is_cut_short_within_an_agent_is_judged() -> None:
    """Its calls are made, as inspect makes them, and the task is told that there is no further turn."""
    name = f"inspect:{TASKS}@agent"
    cut = answer(message("2"), ADD, incomplete_details={"reason": "max_output_tokens"}, status="incomplete")
    async with guest(name, cut) as system:
        (record,) = await made(system, name, own_rows(name, 1))
    assert isinstance(record.outcome, Truncated)
    assert record.reward is not None


async def test_a_row_is_the_sample_of_its_id() -> None:
    """``sample_id`` of inspect is a pattern: ``odd_ids:1`` played the sample ``1``."""
    name = f"inspect:{TASKS}@odd_ids"
    rows = own_rows(name)
    async with guest(name, answer("2")) as system:
        records = await made(system, name, rows, max_attempts=1)
    asked = [said(record)[0][1] if record.reward is not None else record.ending for record in records]
    assert asked == [f"sample {row['inspect']['id']}" for row in rows]


async def test_a_score_whose_key_has_a_dot() -> None:
    name = f"inspect:{TASKS}@dotted_key"
    async with guest(name, answer("2")) as system:
        (record,) = await made(system, name, own_rows(name, 1), max_attempts=1)
    assert (record.reward, result(record)["reward_components"]) == (0.5, {"dotted.top.1": 0.5})


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
        ("@odd_ids?twice=true", "several samples with the id '1'"),
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


def test_arguments_that_are_nested_too_deep_are_the_models_mistake() -> None:
    call = inspect_play._call("c", "f", '{"a":' * 5000 + "1" + "}" * 5000)
    assert "no JSON object" in call.parse_error

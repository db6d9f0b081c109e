"""Models in roles in `run`, `publish` and `reverify`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gym_runtime import connect
from gym_runtime.cli import main
from gym_runtime.cli.options import ModelOptions, RoleOptions
from gym_runtime.cli.start import StartOptions, plan
from gym_runtime.client import make_pools
from gym_runtime.environment.verdict import make_response
from gym_runtime.errors import UsageError
from runtime.cli.in_process import ran
from runtime.cli.started import Started

JUDGED = '''"""Judged by a model, with a critic if there is one."""

from gym_runtime import Environment, Model, Reply, Role, Task, Verdict


class Question(Task):
    pass


async def verify(task: Question, reply: Reply, judge: Model, critic: Model | None) -> Verdict:
    said = await judge.ask(f"Is {reply.text} right?")
    if critic is not None:
        await critic.ask("And you?")
    return Verdict(float("[[A=B]]" in said.text), fields={"critics": int(critic is not None)})


environment = Environment(
    resource=verify,
    description="Judged.",
    agent="single_turn",
    roles=("judge", Role(name="critic", optional=True)),
)
'''


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GYM_NATS_URL", raising=False)
    Path("judged.py").write_text(JUDGED)
    rows = [{"responses_create_params": {"input": f"q{number}"}, "gold": "42"} for number in range(3)]
    Path("judged.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def lines(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def test_pools_of_a_connection() -> None:
    pools = make_pools(["judged"], "scripted/message", roles={"judge": "scripted/judge"})
    assert [pool.names for pool in pools if pool.kind == "model"] == [("policy",), ("judge",)]


def test_an_embedded_model_in_several_roles_is_loaded_once() -> None:
    asked = {"judge": "embedded/a", "critic": "embedded/a", "user": "embedded/b"}
    found = make_pools(["judged"], "embedded/a", roles=asked)
    names = [pool.names for pool in found if pool.kind == "model"]
    assert names == [("policy", "judge", "critic"), ("user",)]
    roles = RoleOptions(judge="embedded/a", roles=("user=scripted/x", "critic=scripted/x"))
    planned = plan(StartOptions(model=ModelOptions(model="embedded/a"), roles=roles)).pools
    names = [pool.names for pool in planned if pool.kind == "model"]
    assert names == [("policy", "judge"), ("user",), ("critic",)], "other models stay apart"


def test_a_role_without_a_model_is_refused_before_anything_is_started(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main.run(["run", "judged", "--model", "scripted/message", "-o", "out.jsonl"]) == 2
    assert capsys.readouterr().err == (
        "gym-runtime: environment 'judged' asks a model in the role 'judge', and none is given: "
        "--judge PROVIDER/NAME, or --judge policy to have the model answer for itself\n"
    )
    assert not Path("out.jsonl").exists()


@pytest.mark.parametrize("name", ["mcqa", "judged"])
def test_a_role_that_no_environment_has_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["run", name, "--model", "scripted/message", "--role", "jugde=scripted/judge"]) == 2
    assert "no environment of this run has the role 'jugde'" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_with_a_judge_and_what_it_says_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["run", "judged", "--model", "scripted/message", "-o", "out.jsonl"]
    assert main.run([*command, "--judge", "scripted/judge", "--role", "critic=scripted/echo"]) == 0
    out = capsys.readouterr().out
    assert "judge" in out
    assert "3 calls" in out
    rows = lines("out.jsonl")
    assert [(row["reward"], row["critics"]) for row in rows] == [(1.0, 1)] * 3
    assert sorted(rows[0]["_gym"]["roles"]) == ["critic", "judge"]
    assert {answer["response"]["model"] for answer in rows[0]["_gym"]["role_answers"]} == {"judge", "echo"}
    settings = lines_of_manifest()["settings"]
    assert settings["roles"] == {"critic": "scripted/echo", "judge": "scripted/judge"}
    (metrics,) = json.loads(Path("out_aggregate_metrics.json").read_text())
    assert metrics["key_metrics"]["mean/judge_calls"] == 1.0


def lines_of_manifest() -> dict[str, Any]:
    return json.loads(Path("out_run.json").read_text())


@pytest.mark.slow
def test_the_policy_judges_itself_only_when_that_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["run", "judged", "--model", "scripted/judge", "-o", "out.jsonl", "--json"]
    assert main.run([*command, "--judge", "policy"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["summary"]["mean_reward"] == 1.0
    assert document["summary"]["roles"]["judge"]["calls"] == 3
    assert lines_of_manifest()["settings"]["roles"] == {"judge": "policy"}


@pytest.mark.slow
@pytest.mark.parametrize("script", ["judge-refusing", "judge-failing"])
def test_a_judge_that_fails_is_in_the_failures_or_asked_again(script: str) -> None:
    command = ["run", "judged", "--model", "scripted/message", "-o", "out.jsonl"]
    code = main.run([*command, "--judge", f"scripted/{script}"])
    if script == "judge-failing":
        assert code == 0
        assert [row["reward"] for row in lines("out.jsonl")] == [1.0] * 3
        return
    assert code == 1
    failures = lines("out_failures.jsonl")
    assert {row["_ng_failure_class"] for row in failures} == {"judge_failed"}
    assert failures[0]["_ng_failure_judge_error"] == "the script lets the judge refuse"
    assert failures[0]["_ng_failure"]["stage"] == "judge"
    assert not any("reward" in row for row in failures)


@pytest.mark.slow
def test_a_resumed_run_has_the_same_judge(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["run", "judged", "--model", "scripted/message", "-o", "out.jsonl"]
    sampled = ["--role-sampling", "judge.temperature=0.5"]
    assert main.run([*command, "--judge", "scripted/judge", *sampled]) == 0
    assert main.run([*command, "--judge", "scripted/echo", "--resume"]) == 2
    assert "scripted/echo" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_published_run_asks_the_pool_of_the_role(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pools = ("agent", "resource:judged", "model", "model:judge")
    options = ("--model", "scripted/message", "--judge", "scripted/judge")
    with Started(folder, *pools, *options) as system:
        monkeypatch.setenv("GYM_NATS_URL", system.url)
        publish = ("publish", "judged.jsonl", "--environment", "judged")
        for more, reward in (([], 1.0), (["--judge", "policy"], 0.0)):
            said = ran(folder, *publish, *more)
            assert "no worker serves" not in said.err
            run = said.out.split()[-1]
            assert main.run(["collect", run, "-o", f"{run}.jsonl"]) == 0
            assert [row["reward"] for row in lines(f"{run}.jsonl")] == [reward] * 3
        missing = ran(folder, *publish, "--judge", "none")
        assert "no worker serves model 'none' now" in missing.err
        assert main.run(["cancel", missing.out.split()[-1]]) == 0
        capsys.readouterr()
        # A run that joins it has its own policy and the judge that is there.
        assert main.run(["run", "judged", "--model", "scripted/echo", "-o", "joined.jsonl"]) == 0
    assert [row["reward"] for row in lines("joined.jsonl")] == [1.0] * 3


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_connection_starts_the_models_of_roles() -> None:
    rows = [{"responses_create_params": {"input": "q"}}]
    with pytest.raises(UsageError, match="role 'judge', and none is given: connect"):
        async with connect(model="scripted/message", environments=["judged"]):
            pass
    async with connect(
        model="scripted/message",
        environments=["judged"],
        roles={"judge": "scripted/judge", "critic": "policy"},
    ) as gym:
        (record,) = [record async for record in gym.rollouts(rows, environment="judged")]
        assert (record.reward, record.roles["judge"].calls, record.roles["critic"].calls) == (1.0, 1, 1)
        selfish = gym.rollouts(rows, environment="judged", roles={"judge": "policy"})
        assert [record.reward async for record in selfish] == [0.0]


@pytest.mark.slow
def test_recorded_answers_are_judged_again_and_a_named_judge_is_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["run", "judged", "--model", "scripted/message", "-o", "out.jsonl"]
    assert main.run([*command, "--judge", "scripted/judge"]) == 0
    reverify = ["reverify", "./judged.py", "--rollouts", "out.jsonl"]
    assert main.run([*reverify, "-o", "same.jsonl", "--strict"]) == 0
    same = lines("same.jsonl")
    assert [row["_gym"] for row in same] == [row["_gym"] for row in lines("out.jsonl")]
    assert main.run([*reverify, "-o", "other.jsonl", "--judge", "scripted/judge-empty", "--strict"]) == 1
    other = lines("other.jsonl")
    assert [(row["reward"], row["_previous_reward"]) for row in other] == [(0.0, 1.0)] * 3
    assert [answer["response"]["output"] for answer in other[0]["_gym"]["role_answers"]] == [[]]
    capsys.readouterr()
    assert main.run([*reverify, "-o", "self.jsonl", "--judge", "policy"]) == 2
    assert "re-verification has no policy" in capsys.readouterr().err


def test_a_row_without_the_answer_that_is_needed_says_which_option_asks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    row = {
        "responses_create_params": {"input": "q"},
        "response": json.loads(make_response("42")),
        "reward": 1.0,
        "agent_ref": {"name": "judged"},
    }
    Path("theirs.jsonl").write_text(json.dumps(row) + "\n")
    assert main.run(["reverify", "./judged.py", "--rollouts", "theirs.jsonl", "-o", "out.jsonl"]) == 1
    assert "--role judge=PROVIDER/NAME" in capsys.readouterr().err

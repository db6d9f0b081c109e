"""Suites: their files, their runs, and the table."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from gym_runtime.cli.main import run
from gym_runtime.environment import catalogue
from gym_runtime.errors import UsageError
from gym_view import suite_file
from gym_view.commands.suite import Cell
from runtime.cli.in_process import ran

FILE = """
[[environments]]
name = "mcqa"
repeats = 2
[[environments]]
name = "simpleqa"
[[models]]
name = "scripted/message"
[missing]
scicode = "no agent with sub-steps"
"""


def test_what_is_shipped_names_environments_that_there_are() -> None:
    assert suite_file.names() == ["lightning-3.5", "nemotron_3.5_super", "nemotron_3_ultra"]
    for name in suite_file.names():
        own, suite = suite_file.read(name)
        assert own == name
        assert suite.description
        for part in suite.environments:
            assert catalogue.environment(part.name).definition.benchmark or part.name == "spider2_lite"
        assert not {*suite.missing} & {*catalogue.names("environments")}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "missing required field `environments`"),
        ("environments = []", "length >= 1"),
        ('[[environments]]\nname = "mcqa"\nrepeat = 2', "unknown field `repeat`"),
        ('[[environments]]\nname = "mcqa"\n[[environments]]\nname = "mcqa"', "'mcqa' is there twice"),
        ("[[", "my.toml"),
    ],
)
def test_a_file_of_another_form_is_one_line(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=re.escape(said)) as refused:
        suite_file.read(str(path))
    assert "\n" not in refused.value.message


def test_an_unknown_name_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(
        UsageError, match=r"there is no suite 'nemotron_3_ultr'; did you mean 'nemotron_3_ultra'"
    ):
        suite_file.read("nemotron_3_ultr")


def test_a_figure_has_an_interval_where_it_is_the_mean() -> None:
    def cell(score: dict[str, float], mean: float | None, error: float | None = 0.05) -> str:
        return Cell(environment="a", model="b", score=score, mean_reward=mean, error=error).shown

    assert cell({}, 0.5) == "50.0 ±9.8"
    assert cell({"accuracy": 50.0, "law": 10.0}, 0.5) == "50.0 ±9.8"
    assert cell({"f1": 61.25}, 0.5) == "61.2"
    assert cell({}, 0.5, None) == "50.0"
    assert cell({}, None) == "no reward"


@pytest.mark.slow
@pytest.mark.timeout(90)
def test_a_suite_runs_each_environment_and_continues(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text(FILE)
    for judge in ((), ("--judge", "policy")):
        ended = ran(tmp_path, "suite", "my.toml", "--limit", "1", "--json", *judge)
        first, second = json.loads(ended.out)["runs"]
        assert (first["environment"], first["rollouts"], first["mean_reward"]) == ("mcqa", 2, 0.0)
        if not judge:
            assert (ended.status, second["mean_reward"]) == (1, None)
            assert "asks a model in the role 'judge', and none is given" in second["problem"]
    rollouts = tmp_path / "results/my/scripted_message/mcqa.jsonl"
    assert len(rollouts.read_text().splitlines()) == 2
    ended = ran(tmp_path, "suite", "my.toml", "--limit", "2", "--judge", "policy")
    assert "--resume --extend makes the run larger" in ended.out
    own = (
        "gym-runtime run mcqa -o results/my/scripted_message/mcqa.jsonl --model scripted/message "
        "--repeats 2 --limit 2"
    )
    assert f"  options that this names are those of: {own}\n" in ended.out


FLAKY = """
from gym_runtime import Environment, Reply, Task, Verdict

class FlakyTask(Task):
    broken: bool = False

async def verify(task: FlakyTask, reply: Reply) -> Verdict:
    if task.broken:
        raise ValueError("broken")
    return Verdict(1.0)

environment = Environment(resource=verify, description="d")
"""


@pytest.mark.slow
@pytest.mark.timeout(90)
def test_failed_rollouts_are_said_below_the_table(tmp_path: Path) -> None:
    """Nothing said that the figure was of one rollout of three."""
    (tmp_path / "flaky.py").write_text(FLAKY)
    rows = [{"responses_create_params": {"input": "go"}, "broken": broken} for broken in (True, False, True)]
    (tmp_path / "flaky.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    parts = '[[environments]]\nname = "flaky"\n[[models]]\nname = "scripted/message"\n'
    (tmp_path / "my.toml").write_text(parts)
    ended = ran(tmp_path, "suite", "my.toml")
    assert "100.0" in ended.out
    said = "flaky with scripted/message: 2 of 3 rollouts failed and are not in the figure"
    assert said in ended.out


@pytest.mark.slow
@pytest.mark.timeout(90)
def test_rollouts_that_a_budget_left_out_are_said_below_the_table(tmp_path: Path) -> None:
    """Nothing said that the figure was of a part of the rows, and the exit status was 0."""
    parts = '[[environments]]\nname = "mcqa"\nrepeats = 200\n[[models]]\nname = "scripted/message"\n'
    budget = 'options = ["--max-tokens-total", "1", "--concurrency", "1"]\n'
    (tmp_path / "my.toml").write_text(parts.replace("[[models]]", f"{budget}[[models]]"))
    ended = ran(tmp_path, "suite", "my.toml")
    said = re.search(r"mcqa with scripted/message: (.*) of 1,000 rollouts were not run", ended.out)
    assert said
    assert 0 < int(said[1].replace(",", "")) < 1000
    assert ended.status == 1


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--judge", "policy"], "no environment of the suite 'my' has a role 'judge'; leave its model out"),
        (["--role", "judge"], "--role judge: write it as NAME=PROVIDER/NAME"),
        (["--judge", "policy", "--role", "judge=a/b"], "the role has a model already"),
    ],
)
def test_a_model_of_a_role_that_is_of_no_use_is_refused(
    options: list[str], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "my.toml"
    path.write_text('[[environments]]\nname = "mcqa"\n')
    assert run(["suite", str(path), "--model", "scripted/message", *options]) == 2
    said = capsys.readouterr().err
    assert problem in said
    assert said.count("\n") == 1


def test_a_file_in_the_place_of_the_folder_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "my.toml"
    path.write_text('[[environments]]\nname = "mcqa"\n')
    assert run(["suite", str(path), "--model", "scripted/message", "-o", str(path)]) == 2
    assert capsys.readouterr().err == f"gym-runtime: {path} is a file; -o names the folder of the results\n"

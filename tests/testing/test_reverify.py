"""``reverify``: stored rows, judged again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gym_runtime.cli import main
from gym_runtime.environment.verdict import make_response


def stored(expected: int, text: str, reward: float | None, name: str = "summed") -> dict[str, Any]:
    return {
        "responses_create_params": {"input": [{"role": "user", "content": "What is it?"}]},
        "expected": expected, "response": json.loads(make_response(text)), "reward": reward,
        "agent_ref": {"name": name},
    }  # fmt: skip


@pytest.fixture(autouse=True)
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    monkeypatch.chdir(tmp_path)
    assert main.run(["new", "summed", "--shape", "verify"]) == 0
    capsys.readouterr()
    path = tmp_path / "stored.jsonl"
    lines = [stored(4, "It is 4", 1.0), stored(5, "It is 5", 0.0), stored(6, "It is 7", 0.0)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize("name", ["summed", "./summed.py"])
def test_rewards_are_computed_again(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["reverify", name, "--rollouts", "stored.jsonl", "-o", "sub/again.jsonl", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "rows": 3, "equal": 2, "different": 1, "unrecorded": 0, "rejected": 0, "mean_reward": 2 / 3,
        "previous_mean_reward": 1 / 3, "output": "sub/again.jsonl", "failures": None,
        "differences": [{"where": "stored.jsonl:2", "recorded": 0.0, "recomputed": 1.0}],
    }  # fmt: skip
    rows = [json.loads(line) for line in Path("sub/again.jsonl").read_text().splitlines()]
    assert [(row["reward"], row["_previous_reward"]) for row in rows] == [(1.0, 1.0), (1.0, 0.0), (0.0, 0.0)]


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_a_file_without_rows_is_refused(content: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("none.jsonl").write_text(content)
    assert main.run(["reverify", "summed", "--rollouts", "none.jsonl", "-o", "again.jsonl"]) == 2
    assert capsys.readouterr().err == "gym-runtime: none.jsonl has no rows\n"
    assert not Path("again.jsonl").exists()


def test_a_row_that_cannot_be_judged_is_named_and_the_others_go_on(
    rows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with rows.open("a") as file:
        file.write('{"response": \n')
    assert main.run(["reverify", "summed", "--rollouts", "stored.jsonl", "-o", "again.jsonl"]) == 1
    out, err = capsys.readouterr()
    assert err.startswith("stored.jsonl:4:")
    assert out.splitlines()[:2] == [
        "stored.jsonl:2: recorded 0, now 1",
        "judged 3 rows: 2 rewards equal, 1 different, 0 had none; 1 could not be judged",
    ]
    assert len(Path("again.jsonl").read_text().splitlines()) == 3
    (failure,) = map(json.loads, Path("again_failures.jsonl").read_text().splitlines())
    assert (failure["_ng_failure_class"], failure["_ng_failure_terminal"], failure["_reverify_line"]) == (
        "task",
        True,
        4,
    )


def test_rows_of_several_environments_may_stand_in_one_file(
    rows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [{"A": "Tin"}, {"B": "Iron"}]
    other = {**stored(4, "\\boxed{B}", 1.0, "mcqa_simple_agent"), "options": options, "expected_answer": "B"}
    third = {**other, "agent_ref": {"name": "gpqa_diamond"}, "expected_answer": "A"}
    nobodys = stored(4, "It is 4", 1.0, "nobody")
    rows.write_text("".join(json.dumps(row) + "\n" for row in (other, third, nobodys)))
    assert main.run(["reverify", "--rollouts", "stored.jsonl", "-o", "again.jsonl", "--json"]) == 1
    out, err = capsys.readouterr()
    assert (json.loads(out)["equal"], json.loads(out)["different"], json.loads(out)["rejected"]) == (1, 1, 1)
    assert err.startswith("stored.jsonl:3: no environment has agent_ref 'nobody'")
    assert main.run(["reverify", "summed", "--rollouts", "again_failures.jsonl", "-o", "third.jsonl"]) == 0
    judged = json.loads(Path("third.jsonl").read_text())
    assert judged["reward"] == 1.0
    assert not {"_reverify_line", "_ng_failure", "_ng_failure_class"} & set(judged)


def test_a_reward_that_is_a_boolean_is_a_number(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows.write_text(json.dumps(stored(4, "It is 4", True)) + "\n")
    assert main.run(["reverify", "summed", "--rollouts", "stored.jsonl", "-o", "again.jsonl"]) == 0
    assert "judged 1 row: 1 reward equal" in capsys.readouterr().out


def test_a_rollout_that_the_file_has_twice_counts_once(
    rows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = {"_ng_task_index": 0, "_ng_rollout_index": 0}
    first, other = stored(4, "It is 4", 1.0) | numbers, stored(4, "It is 5", 0.0) | {"_ng_task_index": 1}
    last = stored(6, "It is 6", 1.0) | {**numbers, "_ng_rollout_index": 1}
    lines = [first, first, other, other, stored(4, "It is 7", 0.0) | numbers, last]
    rows.write_text("".join(json.dumps(line) + "\n" for line in lines))
    arguments = ["reverify", "summed", "--rollouts", "stored.jsonl", "-o", "again.jsonl"]
    assert main.run(arguments) == 0
    out, err = capsys.readouterr()
    assert "judged 4 rows: 4 rewards equal" in out  # a row without its repeat's number is of no rollout
    assert err == "stored.jsonl: 2 rows are of a rollout that has one; the first counts\n"
    judged = Path("again.jsonl").read_text()
    assert len(judged.splitlines()) == 4
    for done in range(4):  # as after an interruption
        Path("again.jsonl").write_text("".join(judged.splitlines(keepends=True)[:done]))
        assert main.run([*arguments, "--resume"]) == 0
        assert "judged 4 rows: 4 rewards equal" in capsys.readouterr().out
        assert Path("again.jsonl").read_text() == judged


RANKED = """
from gym_runtime import Candidates, Environment, Pending, Reply, Task, Verdict

async def verify(task: Task, reply: Reply) -> Pending:
    return Pending(reply.text)

async def compare(candidates: Candidates[Task]) -> list[Verdict]:
    return [Verdict(1.0, rewards={"first": 1.0, "second": 0.5}) for _ in candidates.rollout_indices]

environment = Environment(resource=verify, compare=compare, description="Ranks seats.")
"""


def test_a_comparison_of_stored_rows_rewards_each_seat_again() -> None:
    Path("ranked.py").write_text(RANKED)
    given = [
        {
            "responses_create_params": {"input": "go"},
            "response": json.loads(make_response("hi")),
            "reward": 1.0,
            "_ng_task_index": 0,
            "_ng_rollout_index": index,
            "_gym": {"rollout_id": f"r.0.{index}", "compared": [0, 1]},
        }
        for index in range(2)
    ]
    Path("stored.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in given))
    assert main.run(["reverify", "ranked", "--rollouts", "stored.jsonl", "--output", "again.jsonl"]) == 0
    again = [json.loads(line) for line in Path("again.jsonl").read_text().splitlines()]
    assert [row["_gym"]["rewards"] for row in again] == [{"first": 1.0, "second": 0.5}] * 2


def test_another_reward_is_a_failure_if_one_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["reverify", "summed", "--rollouts", "stored.jsonl", "-o"]
    assert main.run([*arguments, "a.jsonl"]) == 0
    assert main.run([*arguments, "b.jsonl", "--strict"]) == 1
    Path("stored.jsonl").write_text(Path("b.jsonl").read_text())
    assert main.run([*arguments, "c.jsonl", "--strict"]) == 0
    assert "3 rewards equal, 0 different" in capsys.readouterr().out


def test_twenty_differences_are_listed(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unrecorded = json.dumps(stored(1, "It is 1", None)) + "\n"
    rows.write_text((json.dumps(stored(4, "It is 4", 0.5)) + "\n") * 23 + unrecorded)
    assert main.run(["reverify", "summed", "--rollouts", "stored.jsonl", "-o", "again.jsonl"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[19:22] == [
        "stored.jsonl:20: recorded 0.5, now 1",
        "… and 3 more",
        "judged 24 rows: 0 rewards equal, 23 different, 1 had none; 0 could not be judged",
    ]


def test_what_the_rows_lack_comes_from_their_inputs(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inputs: list[dict[str, Any]] = []
    lacking: list[dict[str, Any]] = []
    for number, line in enumerate(map(json.loads, rows.read_text().splitlines())):
        numbers = {"_ng_task_index": number, "_ng_rollout_index": 0}
        lacking.append({**line, **numbers})
        inputs.append({"expected": lacking[-1].pop("expected"), "agent_ref": line["agent_ref"], **numbers})
    del lacking[1]["agent_ref"]
    lacking.append({**lacking[0], "_ng_task_index": 9})
    rows.write_text("".join(json.dumps(line) + "\n" for line in lacking))
    Path("a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in inputs[:2]))
    Path("b.jsonl").write_text("".join(json.dumps(line) + "\n" for line in inputs[2:]))

    arguments = [
        "reverify",
        "summed",
        "--rollouts",
        "stored.jsonl",
        "--inputs",
        "a.jsonl",
        "--inputs",
        "b.jsonl",
    ]
    assert main.run([*arguments, "-o", "again.jsonl", "--json"]) == 1
    out, err = capsys.readouterr()
    assert err == "stored.jsonl:4: there is no input of task 9, rollout 0 in --inputs\n"
    assert (json.loads(out)["equal"], json.loads(out)["different"]) == (2, 1)
    again = [json.loads(line) for line in Path("again.jsonl").read_text().splitlines()]
    assert [(row["expected"], row["reward"]) for row in again] == [(4, 1.0), (5, 1.0), (6, 0.0)]

    with Path("b.jsonl").open("a") as file:
        file.write('{"expected": \n')
    assert main.run([*arguments, "-o", "torn.jsonl"]) == 1
    assert "b.jsonl: the last line is torn" in capsys.readouterr().err

    assert main.run([*arguments, "-o", "a.jsonl"]) == 2
    assert "a.jsonl would be read and written" in capsys.readouterr().err
    assert main.run([*arguments, "--inputs", "none.jsonl", "-o", "new.jsonl"]) == 2
    assert "none.jsonl is not a file; --inputs wants rows" in capsys.readouterr().err


def test_settings_stand_for_what_the_rows_leave_out(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [json.loads(line) for line in rows.read_text().splitlines()]
    del lines[0]["expected"], lines[1]["expected"]
    rows.write_text("".join(json.dumps(line) + "\n" for line in lines))
    arguments = ["reverify", "--rollouts", "stored.jsonl"]
    for name in (["summed"], []):
        output = f"again{len(name)}.jsonl"
        assert main.run([*arguments, *name, "--set", "expected=5", "-o", output, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["mean_reward"] == 1 / 3
        assert "expected" not in json.loads(Path(output).read_text().splitlines()[0])
        assert main.run([*arguments, *name, "--set", "expcted=5", "-o", "other.jsonl"]) == 2
        assert "no setting 'expcted' of summed; did you mean 'expected'?" in capsys.readouterr().err
    for wrong, message in (
        (["--set", "expected"], "--set expected: write it as NAME=VALUE"),
        (["--set", "expected=1", "--set", "expected=2"], "'expected' has a value already"),
        (["--set", "expected=five"], "setting expected=\"five\" of 'summed'"),
    ):
        for name in (["summed"], []):
            assert main.run([*arguments, *name, *wrong, "-o", "other.jsonl"]) == 2
            assert message in capsys.readouterr().err
    assert main.run(["bench", "summed", "--set", "expcted=5"]) == 2
    assert main.run(["run", "summed", "--set", "expcted=5"]) == 2
    assert capsys.readouterr().err.count("no setting 'expcted' of summed; did you mean 'expected'?") == 2


def test_it_goes_on_where_it_stopped(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = rows.read_text().splitlines(keepends=True)
    rows.write_text("".join(["\n", lines[0], '{"response": \n', *lines[1:], "[]\n"]))
    arguments = ["reverify", "summed", "--rollouts", "stored.jsonl", "-o", "again.jsonl", "--json"]
    assert main.run(arguments) == 1
    whole, document = Path("again.jsonl").read_bytes(), capsys.readouterr().out
    failures = Path("again_failures.jsonl").read_bytes()
    ends = [end + 1 for end, byte in enumerate(whole) if byte == ord("\n")]
    for kept, failed in ((0, 0), (ends[0], 1), (ends[0] + 9, 2), (ends[1], 2), (ends[2], 2)):
        Path("again.jsonl").write_bytes(whole[:kept])
        Path("again_failures.jsonl").write_bytes(b"".join(failures.splitlines(keepends=True)[:failed]))
        assert main.run([*arguments, "--resume"]) == 1
        assert json.loads(capsys.readouterr().out) == json.loads(document)
        assert Path("again.jsonl").read_bytes() == whole
        assert Path("again_failures.jsonl").read_bytes() == failures

    rows.write_text("".join(lines[::-1]))
    assert main.run([*arguments, "--resume"]) == 2
    assert "again.jsonl does not go on at stored.jsonl:" in capsys.readouterr().err
    Path("again_failures.jsonl").write_text("{}\n")
    assert main.run([*arguments, "--resume"]) == 2
    assert "again_failures.jsonl was not written by reverify" in capsys.readouterr().err


def test_nothing_is_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["reverify", "summed", "--rollouts", "stored.jsonl", "-o", "stored.jsonl"]) == 2
    assert "read and written" in capsys.readouterr().err
    Path("there.jsonl").write_text("precious\n")
    assert main.run(["reverify", "summed", "--rollouts", "stored.jsonl", "-o", "there.jsonl"]) == 2
    assert "has content already" in capsys.readouterr().err
    assert Path("there.jsonl").read_text() == "precious\n"

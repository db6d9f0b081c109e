"""A recorded rollout becomes the gold of its row: ``gym-runtime new NAME --gold-from FILE:LINE``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gym_runtime import make_response
from gym_runtime.cli import main
from testing.checks.goals import HEAD, VERIFY, rows, written

SHOP = """
class Shop(Session[GoalTask]):
    @tool
    def pick(self, shelf: str, call: str = "") -> str:
        "Pick from a shelf."
        return shelf

    async def verify(self, reply: Reply) -> Verdict:
        picked = [output.output for output in reply.tool_outputs]
        return Verdict(float(len(picked) == 4 and reply.text == self.task.goal), fields={"picked": picked})

environment = Environment(resource=Shop, description="Pick.")
"""
JUDGED = """
async def verify(task: GoalTask, reply: Reply, judge: Model) -> Verdict:
    if not reply.text:
        return Verdict(0.0)
    return Verdict(float("yes" in (await judge.ask(reply.text)).text))

environment = Environment(resource=verify, description="Say the goal.", roles=("judge", "user"))
"""


def call(number: int, arguments: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": f"c{number}", "name": "pick", "arguments": arguments}


def output(number: int) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": f"c{number}", "output": "x"}


def stored(row: dict[str, Any], *items: Any, task: int = 0, **fields: Any) -> dict[str, Any]:
    """A result row: with what a run adds to the parameters, to the row and to the model's items."""
    given = row["responses_create_params"]["input"]
    prompt = [{"role": "user", "content": given}] if isinstance(given, str) else given
    return {
        **{name: value for name, value in row.items() if name != "gold"},
        "responses_create_params": {"input": prompt, "temperature": 0.5, "model": None, "tools": []},
        "response": json.loads(make_response(*items)),
        "reward": 1.0,
        "_ng_task_index": task,
        "_ng_rollout_index": 0,
        "agent_ref": {"name": "own"},
        "_gym": {"outcome": {"type": "completed"}},
        **fields,
    }


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def results(*found: dict[str, Any]) -> None:
    Path("r.jsonl").write_text("".join(json.dumps(one) + "\n" for one in found))


def lines() -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path("own.jsonl").read_text().splitlines()]


def test_the_turns_of_a_rollout_become_the_gold_of_its_row(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = str(written(folder, HEAD + SHOP, rows()))
    thought: dict[str, Any] = {"type": "reasoning", "id": "rs", "summary": []}
    odd = [call(3, '{"shelf": "C", "call": "now"}'), output(3), call(4, "{broken"), output(4)]
    turns = [thought, "I pick.", call(1, '{"shelf": "A"}'), call(2, '{"shelf": "B"}'), output(1), output(2)]
    results(
        stored(rows()[0], "no"),
        stored(rows()[1], *turns, *odd, "g1", task=1, picked=["x"]),
    )
    before = lines()
    assert main.run(["new", module, "--gold-from", "r.jsonl:1.0"]) == 0
    assert "own.jsonl:2 has the gold of r.jsonl:1.0" in capsys.readouterr().out
    after = lines()
    assert after[1].pop("gold") == [
        ["I pick.", {"call": "pick", "shelf": "A"}, {"call": "pick", "shelf": "B"}],
        call(3, '{"shelf": "C", "call": "now"}'),
        call(4, "{broken"),
        "g1",
    ]
    assert before[1].pop("gold")
    assert after == before  # nothing else has changed


def test_a_row_that_is_not_among_the_examples_is_added_without_what_the_run_added(folder: Path) -> None:
    module = str(written(folder, HEAD + VERIFY.replace("task.goal))", 'task.goal), fields={"said": 1})'), []))
    row = {**rows(1, more=[1, None])[0], "goal": "new"}
    results(stored(row, "new", said=1))
    for _ in range(2):  # the second time it is there
        assert main.run(["new", module, "--gold-from", "r.jsonl:1"]) == 0
        prompt = {"input": [{"role": "user", "content": "hi"}]}
        assert lines() == [
            {"responses_create_params": prompt, "goal": "new", "more": [1, None], "gold": "new"}
        ]


EPISODE = """
class Game(Episode[GoalTask]):
    async def reset(self) -> str:
        return "Begin."

    async def step(self, reply: Reply) -> Step:
        return Step(reward=float(reply.text == self.task.goal), terminated=True)

environment = Environment(resource=Game, description="Say the goal.")
"""


def test_the_first_observation_of_an_episode_is_no_part_of_its_row(folder: Path) -> None:
    module = str(written(folder, HEAD + EPISODE, rows()))
    before, begun = lines(), {"role": "user", "content": "Begin."}
    prompt = [{"role": "user", "content": "hi"}, begun]
    results(stored({**rows()[1], "responses_create_params": {"input": prompt}}, "g1"))
    assert main.run(["new", module, "--gold-from", "r.jsonl:1"]) == 0
    assert lines() == before  # the row is found again, and had this gold


def test_a_game_of_several_seats_is_no_gold(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = str(written(folder, HEAD + EPISODE, rows()))
    before = lines()
    results(stored(rows()[1], "g1", _gym={"seat": "first", "rewards": {"first": 1.0, "second": 0.0}}))
    assert main.run(["new", module, "--gold-from", "r.jsonl:1"]) == 2
    assert "several seats moved, and the row has the words of 'first' alone" in capsys.readouterr().err
    assert lines() == before


def test_what_the_judge_answered_is_part_of_the_gold(folder: Path) -> None:
    head = HEAD.replace("Reply, Session", "Model, Reply, Session")
    module = str(written(folder, head + JUDGED, rows()))
    answers = [
        {"role": role, "digest": "d", "response": json.loads(make_response(text))}
        for role, text in [("user", "hello"), ("judge", "yes")]
    ]
    own = {"outcome": {"type": "completed"}, "role_answers": answers}
    results(stored(rows()[0], "any", _gym=own))
    assert main.run(["new", module, "--gold-from", "r.jsonl:1"]) == 0
    # What only the agent asked is no part of it.
    assert lines()[0]["gold"] == {"turns": "any", "roles": {"judge": ["yes"]}}


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("r.jsonl:1", "r.jsonl:1 scores 0 instead of 1: only a rollout that solves its task"),
        ("r.jsonl:2", "r.jsonl:2 is no rollout with a response: "),
        ("r.jsonl:3", "r.jsonl:3 cannot be judged: Object missing required field `goal`"),
        ("r.jsonl:9", "r.jsonl has no rollout 9"),
        ("r.jsonl:7.0", "r.jsonl has a line that is no rollout: "),
        ("none.jsonl:1", "cannot read none.jsonl: No such file or directory"),
        ("r.jsonl", "'r.jsonl' names no rollout; give FILE:LINE or FILE:TASK.ROLLOUT"),
    ],
)
def test_a_rollout_that_cannot_be_the_gold_is_refused_and_nothing_is_written(
    folder: Path, named: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    module = str(written(folder, HEAD + VERIFY, rows()))
    other = stored(rows()[0], "g0")
    del other["goal"]
    results(stored(rows()[0], "wrong"), {"no": "rollout"}, other)
    before = Path("own.jsonl").read_bytes()
    assert main.run(["new", module, "--gold-from", named]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert said in error
    assert Path("own.jsonl").read_bytes() == before

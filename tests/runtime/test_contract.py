"""The contract finds what is wrong: each rule has an environment that breaks it, and only that rule."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gym_runtime import catalogue, contract

pytestmark = pytest.mark.anyio

HEAD = '''"""An environment of the tests."""

import itertools

from gym_runtime import Environment, Episode, Reply, Session, Step, Task, Verdict, tool

numbers = itertools.count()


class GoalTask(Task):
    goal: str
'''
VERIFY = """
def verify(task: GoalTask, reply: Reply) -> Verdict:
    return Verdict(float(reply.text == task.goal))

environment = Environment(resource=verify, description="Say the goal.")
"""
SESSION = """
class Goal(Session[GoalTask]):
    @tool
    def look(self, at: str) -> str:
        "Look at something."
        return {look}

    async def verify(self, reply: Reply) -> Verdict:
        return Verdict(float(reply.text == self.task.goal))

environment = Environment(resource=Goal, description="Say the goal.")
"""
EPISODE = """
class Goal(Episode[GoalTask]):
    async def step(self, reply: Reply) -> Step:
        done = reply.text == self.task.goal
        return Step(observation="no", reward=float(done), terminated=done)

environment = Environment(resource=Goal, description="Say the goal.")
"""
LOOK = {
    "type": "function",
    "name": "look",
    "parameters": {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]},
}
CALL = {"type": "function_call", "call_id": "c", "name": "look", "arguments": '{"at": "x"}'}


def rows(count: int = 5, **fields: Any) -> list[dict[str, Any]]:
    return [
        {"responses_create_params": {"input": "hi"}, "goal": f"g{n}", "gold": f"g{n}", **fields}
        for n in range(count)
    ]


def with_tool(**changes: Any) -> list[dict[str, Any]]:
    params = {"input": "hi", "tools": [{**LOOK, **changes}]}
    return [{**row, "responses_create_params": params, "gold": [CALL, row["goal"]]} for row in rows()]


async def broken(tmp_path: Path, body: str, examples: list[Any], *, head: str = HEAD) -> dict[str, str]:
    module = tmp_path / "own.py"
    module.write_text(head + body)
    module.with_suffix(".jsonl").write_text("".join(json.dumps(row) + "\n" for row in examples))
    environment = catalogue.environment.__wrapped__(str(module))
    return {
        finding.rule: finding.detail for finding in await contract.check(environment) if not finding.passed
    }


@pytest.fixture(autouse=True)
def fresh_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(__import__("sys").modules, "gym_runtime_file_own", raising=False)


@pytest.mark.parametrize(
    ("body", "examples"),
    [
        (VERIFY, rows()),
        (SESSION.format(look="at"), with_tool()),
        (EPISODE, rows()),
        (EPISODE, [{**row, "gold": ["first", [row["goal"]]]} for row in rows()]),
    ],
)
async def test_a_sound_environment_of_each_shape_passes(
    tmp_path: Path, body: str, examples: list[Any]
) -> None:
    assert await broken(tmp_path, body, examples) == {}


@pytest.mark.parametrize(
    ("rule", "detail", "body", "examples"),
    [
        (
            "the module explains itself",
            "its description is empty",
            VERIFY.replace("Say the goal.", " "),
            rows(),
        ),
        ("the module explains itself", "more than 150", VERIFY + "\n" * 150, rows()),
        ("there are five example rows", "4 example rows instead of 5", VERIFY, rows(4)),
        (
            "there are five example rows",
            "row 1 asks the model nothing",
            VERIFY,
            rows(responses_create_params={"input": []}),
        ),
        ("the perfect rollout scores full", "row 1 scores 0 instead of 1", VERIFY, rows(gold="no")),
        (
            "silence scores nothing",
            "row 2 scores 1 instead of 0",
            VERIFY.replace("== task.goal", "in task.goal"),
            rows(),
        ),
        (
            "judging twice gives the same verdict",
            "row 1: ",
            VERIFY.replace("task.goal))", 'task.goal), fields={"n": next(numbers)})'),
            rows(),
        ),
        (
            "playing twice gives the same answers",
            "row 1: the same rollout got different answers",
            SESSION.format(look="str(next(numbers))"),
            with_tool(),
        ),
        (
            "bad rows are refused",
            "accepted: a row without 'goal'; accepted: a row with a 'goal' of a wrong type",
            VERIFY.replace("task: GoalTask", "task: LaxTask").replace(
                "\ndef", "\nclass LaxTask(Task):\n    goal: object\n    __post_init__ = None\n\ndef", 1
            ),
            None,
        ),
        (
            "the rows' tools are the environment's",
            "'peek' is not one of",
            SESSION.format(look="at"),
            with_tool(name="peek"),
        ),
        (
            "the rows' tools are the environment's",
            "'look' differs from the environment's in: at, where",
            SESSION.format(look="at"),
            with_tool(parameters={"type": "object", "properties": {"where": {"type": "string"}}}),
        ),
        ("bad calls are answered", "look({}) broke the tool", SESSION.format(look="at") + "", None),
    ],
)
async def test_what_breaks_a_rule_is_found(
    tmp_path: Path, rule: str, detail: str, body: str, examples: list[Any] | None
) -> None:
    if examples is None:
        pytest.skip("below")
    found = await broken(tmp_path, body, examples)
    assert list(found) == [rule]
    assert detail in found[rule]

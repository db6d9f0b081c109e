"""The contract of an environment: what breaks a rule is found, with its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gym_testing.checks import contract
from testing.checks.goals import HEAD, VERIFY, broken, load, rows

pytestmark = pytest.mark.anyio


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


CRASHING = SESSION.format(look="1 / len(at)").replace("at: str", "at: str = ''")


BOOMING = """
class Goal(Session[GoalTask]):
    @tool
    def look(self, at: str) -> str:
        "Look at something."
        raise ValueError("boom")

    async def verify(self, reply: Reply) -> Verdict:
        return Verdict(0.0)

environment = Environment(resource=Goal, description="Say the goal.")
"""


LOOK = {
    "type": "function",
    "name": "look",
    "parameters": {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]},
}


CALL = {"type": "function_call", "call_id": "c", "name": "look", "arguments": '{"at": "x"}'}


def with_tool(**changes: Any) -> list[dict[str, Any]]:
    params = {"input": "hi", "tools": [{**LOOK, **changes}]}
    return [{**row, "responses_create_params": params, "gold": [CALL, row["goal"]]} for row in rows()]


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
        ("there are at least five example rows", "4 example rows instead of 5", VERIFY, rows(4)),
        (
            "there are at least five example rows",
            "row 1 has no input for the model",
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
        ("bad calls are answered", "look({}) broke the tool", CRASHING, with_tool()),
    ],
)
async def test_what_breaks_a_rule_is_found(
    tmp_path: Path, rule: str, detail: str, body: str, examples: list[Any]
) -> None:
    found = await broken(tmp_path, body, examples)
    also = {"tools do not raise"} if rule == "bad calls are answered" else set[str]()
    assert set(found) == {rule, *also}
    assert detail in found[rule]


@pytest.mark.slow
async def test_a_score_that_is_missed_because_a_tool_raised_says_so(tmp_path: Path) -> None:
    found = await broken(tmp_path, BOOMING, with_tool())
    wanted = f"row 1 scores 0 instead of 1; look raised ValueError: boom ({tmp_path / 'own.py'}:"
    assert found["the perfect rollout scores full"].startswith(wanted)


@pytest.mark.slow
@pytest.mark.parametrize("examples", [with_tool(), rows()], ids=["called in the gold", "never called"])
async def test_a_tool_that_always_raises_is_found_whatever_is_scored(
    tmp_path: Path, examples: list[Any]
) -> None:
    body = BOOMING.replace("Verdict(0.0)", "Verdict(float(reply.text == self.task.goal))")
    found = await broken(tmp_path, body, examples)
    assert "look raised ValueError: boom" in found["tools do not raise"]
    assert "own.py:" in found["tools do not raise"]


@pytest.mark.slow
async def test_a_verifier_that_blocks_the_event_loop_is_found_with_its_place(tmp_path: Path) -> None:
    body = VERIFY.replace("    return Verdict", "    import time\n    time.sleep(0.8)\n    return Verdict")
    found = await broken(tmp_path, body, rows())
    assert list(found) == ["nothing blocks the event loop"]
    line = (HEAD + body).splitlines().index("    time.sleep(0.8)") + 1
    assert f"{tmp_path / 'own.py'}:{line} in verify" in found["nothing blocks the event loop"]


async def test_a_tool_without_a_docstring_is_a_warning(tmp_path: Path) -> None:
    module = tmp_path / "own.py"
    module.write_text(HEAD + SESSION.format(look="at").replace('        "Look at something."\n', ""))
    module.with_suffix(".jsonl").write_text("".join(json.dumps(row) + "\n" for row in with_tool()))
    findings = await contract.check(load(module))
    assert all(finding.passed for finding in findings)
    (warning,) = [finding for finding in findings if finding.warning]
    assert (warning.rule, warning.detail.partition(":")[0]) == ("every tool has a docstring", "look")


async def test_a_task_that_takes_anything_is_found(tmp_path: Path) -> None:
    head = HEAD.replace("goal: str", "goal: dict | list | str | float | bool")
    found = await broken(tmp_path, VERIFY, rows(), head=head)
    assert found == {"bad rows are refused": "accepted: a row with a 'goal' of a wrong type"}


async def test_a_module_without_a_docstring_is_found(tmp_path: Path) -> None:
    found = await broken(tmp_path, VERIFY, rows(), head=HEAD.partition("\n")[2])
    assert found == {"the module explains itself": "its module has no docstring"}


async def test_code_that_raises_is_a_finding_and_not_an_error(tmp_path: Path) -> None:
    dividing = VERIFY.replace("reply.text == task.goal", "1 / len(reply.text)")
    found = await broken(tmp_path, dividing, rows(gold="a"))
    line = (HEAD + dividing).splitlines().index("    return Verdict(float(1 / len(reply.text)))") + 1
    raised = f"ResourceError: ZeroDivisionError: division by zero ({tmp_path / 'own.py'}:{line})"
    assert found == {"silence scores nothing": raised}
    found = await broken(tmp_path, VERIFY.replace("float(", "complex("), rows())
    assert "must be a finite number" in found["silence scores nothing"]

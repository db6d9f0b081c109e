"""The contract of an environment: what breaks a rule is found, with its place."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from gym_testing.checks import contract
from testing.checks.goals import HEAD, VERIFY, broken, load, rows, written

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("few_objects")]


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


SAVING = """
class Goal(Session[GoalTask]):
    async def open(self) -> None:
        self.looked = 0

    @tool
    def look(self, at: str) -> int:
        "Look at something."
        self.looked += 1
        return self.looked

    async def save(self) -> dict[str, int]:
        return {"looked": self.looked}

    async def on_restore(self, saved: dict[str, int]) -> None:
        self.looked = saved["looked"]

    async def verify(self, reply: Reply) -> Verdict:
        return Verdict(float(reply.text == self.task.goal and self.looked > 1))

environment = Environment(resource=Goal, description="Look twice, say the goal.")
"""
SAVED = "a saved session goes on"


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


NAMES = "its agents, and the roles of its golds, are there"
AGENT = VERIFY.replace("Environment(", 'Environment(agent="tool_lop", ')
OPTION = VERIFY.replace("Environment(", 'Environment(agent="tool_loop", agent_options={"nugde": "Go on."}, ')
GOLDS = [{**row, "gold": {"turns": row["goal"], "roles": {"judge": ["YES"]}}} for row in rows()]


CALL = {"type": "function_call", "call_id": "c", "name": "look", "arguments": '{"at": "x"}'}


def with_tool(looks: int = 1, **changes: Any) -> list[dict[str, Any]]:
    params = {"input": "hi", "tools": [{**LOOK, **changes}]}
    return [
        {**row, "responses_create_params": params, "gold": [*[CALL] * looks, row["goal"]]} for row in rows()
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "examples"),
    [
        (VERIFY, rows()),
        (SESSION.format(look="at"), with_tool()),
        (SAVING, with_tool(looks=2)),
        (EPISODE, rows()),
        (EPISODE, [{**row, "gold": ["first", [row["goal"]]]} for row in rows()]),
    ],
)
async def test_a_sound_environment_of_each_shape_passes(
    tmp_path: Path, body: str, examples: list[Any]
) -> None:
    assert await broken(tmp_path, body, examples) == {}


@pytest.mark.slow
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
        (NAMES, "no agent 'tool_lop'; did you mean 'tool_loop'?", AGENT, rows()),
        (NAMES, "agent 'tool_loop' has no option 'nugde'; did you mean 'nudge'?", OPTION, rows()),
        (NAMES, "own.jsonl:1: 'gold' answers in the role 'judge'; there are: none", VERIFY, GOLDS),
        ("there are at least five example rows", "4 example rows instead of 5", VERIFY, rows(4)),
        (
            "there are at least five example rows",
            "own.jsonl:1: the row has no input for the model",
            VERIFY,
            rows(responses_create_params={"input": []}),
        ),
        ("the perfect rollout scores full", "own.jsonl:1: scores 0 instead of 1", VERIFY, rows(gold="no")),
        (
            "the perfect rollout scores full",  # it reads the input, and says that it does not
            "own.jsonl:1: scores 0 instead of 1",
            VERIFY.replace("== task.goal", "== task.goal and task.responses_create_params.input_items()")
            .replace("float(", "float(bool(")
            .replace("))\n", ")))\n")
            .replace("resource=verify", "resource=verify, reads_input=False"),
            rows(),
        ),
        (
            "silence scores nothing",
            "own.jsonl:1: scores 1 instead of 0",
            VERIFY.replace("== task.goal", "in task.goal"),
            rows(),
        ),
        (
            "judging twice gives the same verdict",
            "own.jsonl:1: {",
            VERIFY.replace("task.goal))", 'task.goal), fields={"n": next(numbers)})'),
            rows(),
        ),
        (
            "playing twice gives the same answers",
            "own.jsonl:1: the same rollout got different answers",
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
        (
            SAVED,
            "own.jsonl:1: scores 0 instead of 1 after save and on_restore; its answers differ, too",
            SAVING.replace('= saved["looked"]', "= 0"),
            with_tool(looks=2),
        ),
        (
            SAVED,
            "own.jsonl:1: ResourceError: Goal has save but no on_restore",
            SAVING.replace("on_restore", "restore"),
            with_tool(looks=2),
        ),
        (
            SAVED,
            "own.jsonl:1: ResourceError: what save returned is not JSON",
            SAVING.replace('{"looked": self.looked}', "object()"),
            with_tool(looks=2),
        ),
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
    wanted = f"own.jsonl:1: scores 0 instead of 1; look raised ValueError: boom ({tmp_path / 'own.py'}:"
    assert wanted in found["the perfect rollout scores full"]


REFUSING = SESSION.format(look="at").replace("return at", 'raise ToolError(f"There is no {at}.")')


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        ([{"call": "look", "at": "door"}], 'look({"at":"door"}) was refused: There is no door.'),
        ([{"call": "look", "to": "door"}], "was refused: Object missing required field `at`"),
        ([{"call": "peek"}], "peek({}) was refused: there is no such tool"),
    ],
)
async def test_a_gold_says_what_its_calls_were_refused_for(
    tmp_path: Path, calls: list[Any], said: str
) -> None:
    head = HEAD.replace("Task, Verdict", "Task, ToolError, Verdict")
    found = await broken(tmp_path, REFUSING, rows(gold=[*calls, "no"]), head=head)
    place = f"5 rows: first at {tmp_path / 'own.jsonl'}:1: scores 0 instead of 1; "
    assert found["the perfect rollout scores full"].startswith(place)
    assert said in found["the perfect rollout scores full"]


async def test_rows_that_do_not_fit_the_task_are_one_finding(tmp_path: Path) -> None:
    wrong = [*rows(2), *rows(8, goal={"not": "text"})]
    assert await broken(tmp_path, VERIFY, wrong) == {
        "the example rows fit the task": f"8 rows: first at {tmp_path / 'own.jsonl'}:3: "
        "Expected `str`, got `object` - at `$.goal`"
    }


async def test_rows_that_have_different_mistakes_are_told_apart(tmp_path: Path) -> None:
    found = await broken(tmp_path, VERIFY, [*rows(3), *rows(1, gold="no"), *rows(1)])
    assert found == {"the perfect rollout scores full": f"{tmp_path / 'own.jsonl'}:4: scores 0 instead of 1"}


async def warnings(tmp_path: Path, body: str, examples: list[Any]) -> dict[str, str]:
    module = written(tmp_path, HEAD + body, examples)
    return {one.rule: one.detail for one in await contract.check(load(module)) if one.warning}


@pytest.mark.parametrize(
    ("attribute", "method", "moved"),
    [
        ("seen = []", "return at", False),
        ("seen: dict = {}", "self.seen[at] = 1; return at", True),
        ("seen = 0", "type(self).seen += 1; return at", True),
        ("seen = 0", "self.seen += 1; return at", None),
        ("SEEN = [1]", "return at", None),
        ("SEEN = []", "self.SEEN.append(at); return at", True),
    ],
)
async def test_state_on_the_class_is_a_hint(
    tmp_path: Path, attribute: str, method: str, moved: bool | None
) -> None:
    body = SESSION.format(look="at").replace("return at", method)
    body = body.replace("    @tool\n", f"    {attribute}\n\n    @tool\n")
    found = await warnings(tmp_path, body, with_tool())
    assert list(found) == ([] if moved is None else ["no state is kept on the class"])
    for detail in found.values():
        line = (HEAD + body).splitlines().index("class Goal(Session[GoalTask]):") + 1
        assert detail.startswith(f"{tmp_path / 'own.py'}:{line}: Goal.{attribute[:4]} is kept on the class")
        assert ("it changed while the examples were played" in detail) == moved
        assert detail.endswith(f"its own: self.{attribute[:4]} = … in open")


async def test_an_environment_that_cannot_be_replayed_may_answer_differently(tmp_path: Path) -> None:
    body = SESSION.format(look="str(next(numbers))").replace('goal.")', 'goal.", replayable=False)')
    assert await broken(tmp_path, body, with_tool()) == {}


async def test_a_problem_that_differs_by_an_address_only_is_one(tmp_path: Path) -> None:
    body = VERIFY.replace("float(reply.text == task.goal)", "object()")
    found = await broken(tmp_path, body, rows())
    assert found["the perfect rollout scores full"].startswith("5 rows: first at ")
    assert "reward = <object object>; it must be a finite number" in found["the perfect rollout scores full"]


@pytest.mark.parametrize(
    ("domain", "warned"), [("maths", ["the domain is the one that is meant"]), ("cooking", [])]
)
async def test_a_domain_that_is_nearly_a_known_one_is_a_hint(
    tmp_path: Path, domain: str, warned: list[str]
) -> None:
    body = VERIFY.replace('goal.")', f'goal.", domain="{domain}")')
    assert list(await warnings(tmp_path, body, rows())) == warned


@pytest.mark.slow
@pytest.mark.parametrize("examples", [with_tool(), rows()], ids=["called in the gold", "never called"])
async def test_a_tool_that_always_raises_is_found_whatever_is_scored(
    tmp_path: Path, examples: list[Any]
) -> None:
    body = BOOMING.replace("Verdict(0.0)", "Verdict(float(reply.text == self.task.goal))")
    found = await broken(tmp_path, body, examples)
    assert "look raised ValueError: boom" in found["tools do not raise"]
    assert "own.py:" in found["tools do not raise"]


async def test_a_perfect_rollout_is_judged_twice_for_all_rules(tmp_path: Path) -> None:
    said = tmp_path / "said"
    noting = f"    with open({str(said)!r}, 'a') as file: file.write(reply.text + ';')\n    return Verdict"
    assert not await broken(tmp_path, VERIFY.replace("    return Verdict", noting), rows())
    assert Counter(said.read_text().split(";")) == {"": 6, **{f"g{number}": 2 for number in range(5)}}


@pytest.mark.slow
async def test_a_verifier_that_blocks_the_event_loop_is_found_with_its_place(tmp_path: Path) -> None:
    slow = "    import time\n    time.sleep(0.8 if not slept else 0)\n    slept.append(1)\n    return Verdict"
    body = "slept = []\n\n" + VERIFY.replace("    return Verdict", slow)
    found = await broken(tmp_path, body, rows())
    assert list(found) == ["nothing blocks the event loop"]
    line = (HEAD + body).splitlines().index("    time.sleep(0.8 if not slept else 0)") + 1
    assert f"{tmp_path / 'own.py'}:{line} in verify" in found["nothing blocks the event loop"]


@pytest.mark.slow
async def test_a_line_that_blocks_while_several_rules_are_checked_is_said_once(tmp_path: Path) -> None:
    slow = "    import time\n    time.sleep(0.8 if reply.text == 'g0' else 0)\n    return Verdict"
    body = VERIFY.replace("    return Verdict", slow)
    environment = load(written(tmp_path, HEAD + body, rows()))
    said = [one.detail for one in await contract.check(environment) if not one.passed]
    assert len(said) == 1
    assert said[0].count("in verify") == 1


async def test_a_verifier_that_ends_its_process_is_found_with_its_place(tmp_path: Path) -> None:
    ends = "    import os\n    reply.text or os._exit(3)\n    return Verdict"
    body = VERIFY.replace("    return Verdict", ends)
    found = await broken(tmp_path, body, rows())
    assert list(found) == ["silence scores nothing"]
    line = (HEAD + body).splitlines().index("    reply.text or os._exit(3)") + 1
    place = f"{tmp_path / 'own.py'}:{line}"
    assert f"os._exit(3) at {place} would end a worker" in found["silence scores nothing"]


@pytest.mark.slow
async def test_an_isolated_verifier_that_ends_its_process_is_not_only_said_to_fail_its_imports(
    tmp_path: Path,
) -> None:
    ends = "    import os\n    reply.text == task.goal or os._exit(3)\n    return Verdict"
    body = VERIFY.replace("    return Verdict", ends).replace('goal.")', 'goal.", isolated=True)')
    found = await broken(tmp_path, body, rows())
    assert "or tried it on examples" in found["silence scores nothing"]


async def test_a_tool_that_returns_images_answers_bad_calls(tmp_path: Path) -> None:
    look = "['Here:', Image(b'GIF89a' + bytes([1, 0, 1, 0]) + bytes(16))]"
    body = SESSION.format(look=look).replace("at: str)", "at: str = 'x')").replace("-> str", "-> object")
    assert not await broken(tmp_path, body, rows(), head=HEAD.replace("Episode,", "Episode, Image,"))


async def test_a_tool_without_a_docstring_is_a_warning(tmp_path: Path) -> None:
    body = SESSION.format(look="at").replace('        "Look at something."\n', "")
    found = await warnings(tmp_path, body, with_tool())
    assert found == {"every tool has a docstring": found["every tool has a docstring"]}
    assert found["every tool has a docstring"].startswith("look: ")


async def test_a_question_that_is_not_awaited_is_found(tmp_path: Path) -> None:
    body = VERIFY.replace("def verify", "async def look() -> None: ...\n\nasync def verify").replace(
        "    return", "    look()\n    return"
    )
    found = await broken(tmp_path, body, rows())
    assert found == {"what is asynchronous is awaited": "coroutine 'look' was never awaited"}


async def test_a_task_that_takes_anything_is_found(tmp_path: Path) -> None:
    head = HEAD.replace("goal: str", "goal: dict | list | str | float | bool")
    found = await broken(tmp_path, VERIFY, rows(), head=head)
    assert found == {"bad rows are refused": "accepted: a row with a 'goal' of a wrong type"}


async def test_a_module_without_a_docstring_is_found(tmp_path: Path) -> None:
    found = await broken(tmp_path, VERIFY, rows(), head=HEAD.partition("\n")[2])
    assert found == {"the module explains itself": "its module has no docstring"}


@pytest.mark.slow
async def test_code_that_raises_is_a_finding_and_not_an_error(tmp_path: Path) -> None:
    dividing = VERIFY.replace("reply.text == task.goal", "1 / len(reply.text)")
    found = await broken(tmp_path, dividing, rows(gold="a"))
    line = (HEAD + dividing).splitlines().index("    return Verdict(float(1 / len(reply.text)))") + 1
    raised = f"ResourceError: ZeroDivisionError: division by zero ({tmp_path / 'own.py'}:{line})"
    assert found == {"silence scores nothing": f"5 rows: first at {tmp_path / 'own.jsonl'}:1: {raised}"}
    found = await broken(tmp_path, VERIFY.replace("float(", "complex("), rows())
    assert "must be a finite number" in found["silence scores nothing"]

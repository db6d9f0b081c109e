"""The contract of an environment: examples, schemas, judges."""

from __future__ import annotations

import codecs
import json
from pathlib import Path
from typing import Any

import pytest
from gym_runtime.environment.tools import schema_problems
from gym_testing.checks import contract
from tables import table
from testing.checks.goals import HEAD, VERIFY, broken, load, rows, written

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("few_objects")]


@pytest.mark.parametrize(
    ("lines", "detail"),
    [
        ([], "own.jsonl has no row; write five"),
        (["text"], r"own.jsonl:1: not a JSON object: Expected `object`, got `str`"),
        ([{"goal": "g"}], r"own.jsonl:1: the row has no 'gold'; add the perfect rollout"),
        ([{"gold": 12}], r"own.jsonl:1: 'gold' is no text: 12; add the perfect rollout as a text"),
    ],
)
async def test_unusable_example_rows_are_found(tmp_path: Path, lines: list[Any], detail: str) -> None:
    found = await broken(tmp_path, VERIFY, lines)
    assert detail in "".join(found.values())


PICKING = """
class Shop(Session[GoalTask]):
    @tool
    def pick(self, shelf: str, count: int = 1) -> str:
        "Pick from a shelf."
        return shelf * count

    async def verify(self, reply: Reply) -> Verdict:
        ids = {call.call_id for call in reply.function_calls}
        outputs = [output.output for output in reply.tool_outputs]
        return Verdict(float(outputs == ['"A"', '"BB"', '"A"'] and len(ids) == 3))

environment = Environment(resource=Shop, description="Pick.")
"""
LONG = {"type": "function_call", "call_id": "1", "name": "pick", "arguments": '{"shelf": "A"}'}


@pytest.mark.slow
async def test_a_call_of_the_gold_may_be_short_or_an_item(tmp_path: Path) -> None:
    gold = [[{"call": "pick", "shelf": "A"}, {"call": "pick", "shelf": "B", "count": 2}], LONG, "Done."]
    assert await broken(tmp_path, PICKING, rows(gold=gold)) == {}
    once = PICKING.replace("""['"A"', '"BB"', '"A"'] and len(ids) == 3""", """['"A"']""")
    assert await broken(tmp_path, once, rows(gold={"call": "pick", "shelf": "A"})) == {}


async def test_an_item_of_the_gold_that_is_none_is_found_with_its_place(tmp_path: Path) -> None:
    wrong = {"type": "function_call", "name": "pick"}
    found = await broken(tmp_path, PICKING, rows(gold=["Hello.", wrong]))
    (detail,) = found.values()
    assert "own.jsonl:1: turn 2 of 'gold': Object missing required field `call_id`; a turn is a te" in detail


async def test_missing_example_rows_are_found(tmp_path: Path) -> None:
    module = tmp_path / "own.py"
    module.write_text(HEAD + VERIFY)
    (finding,) = await contract.check(load(module))
    assert not finding.passed
    assert "own.jsonl is missing; write five example rows" in finding.detail
    (tmp_path / "own.jsonl").write_text("\n \n")
    (finding,) = await contract.check(load(module))
    assert "own.jsonl has no row; write five example rows" in finding.detail


async def test_a_byte_order_mark_before_the_example_rows_is_none(tmp_path: Path) -> None:
    module = written(tmp_path, HEAD + VERIFY, rows())
    path = tmp_path / "own.jsonl"
    path.write_bytes(codecs.BOM_UTF8 + path.read_bytes())
    assert all(one.passed for one in await contract.check(load(module)))


async def test_blank_lines_between_example_rows_are_none(tmp_path: Path) -> None:
    """As in a file of rows to run, so lines keep their numbers."""
    module, lines = written(tmp_path, HEAD + VERIFY, []), [json.dumps(one) for one in rows()]
    (tmp_path / "own.jsonl").write_text("\n".join([lines[0], "", *lines[1:], "  \n"]))
    assert all(one.passed for one in await contract.check(load(module)))
    (tmp_path / "own.jsonl").write_text("\n" + "\n".join([*lines[:-1], "[]"]))
    (finding,) = await contract.check(load(module))
    assert "own.jsonl:6: not a JSON object" in finding.detail


@table(
    ("schema", "problems"),
    [
        ({"type": "object", "properties": {}}, []),
        ({"type": "object", "properties": {"a": {"type": ["string", "null"]}}, "required": ["a"]}, []),
        ({"type": "object", "properties": {"a": {"anyOf": [{}]}, "b": True}}, []),
        ({}, ["parameters must be of type object"]),
        ({"type": "array"}, ["parameters must be of type object"]),
        (
            {"type": "object", "required": ["a"]},
            ["parameters requires a, which its properties do not describe"],
        ),
        ({"type": "object", "properties": []}, ["parameters.properties is not an object"]),
        (
            {"type": "object", "properties": {"a": {"type": "int"}, "b": "string"}},
            ["parameters.a has the unknown type 'int'", "parameters.b is not a schema"],
        ),
        (
            {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "str"}}}},
            ["parameters.a.[] has the unknown type 'str'"],
        ),
    ],
)
def test_a_schema_that_no_engine_takes_is_described(schema: dict[str, Any], problems: list[str]) -> None:
    assert list(schema_problems(schema)) == problems


JUDGED = """
async def verify(task: GoalTask, reply: Reply, judge: Model) -> Verdict:
    if not reply.text:
        return Verdict(0.0)
    said = await judge.ask(reply.text)
    return Verdict(float("yes" in said.text))

environment = Environment(resource=verify, description="Say the goal.", roles=("judge",))
"""


JUDGED_HEAD = HEAD.replace("Reply, Session", "Model, Reply, Session")


def judged_rows() -> list[dict[str, Any]]:
    return [{**row, "gold": {"turns": row["gold"], "roles": {"judge": ["yes"]}}} for row in rows()]


@pytest.mark.slow
async def test_an_environment_with_a_judge_is_checked_with_scripted_answers(tmp_path: Path) -> None:
    assert await broken(tmp_path, JUDGED, judged_rows(), head=JUDGED_HEAD) == {}


async def test_a_judge_that_is_asked_about_silence_is_found(tmp_path: Path) -> None:
    asking = JUDGED.replace("if not reply.text", "if False")
    found = await broken(tmp_path, asking, judged_rows(), head=JUDGED_HEAD)
    wanted = f"5 rows: first at {tmp_path / 'own.jsonl'}:1: scores 1 instead of 0"
    assert found == {"silence scores nothing": wanted}


async def test_a_failure_of_a_judge_that_becomes_a_reward_is_found(tmp_path: Path) -> None:
    swallowing = JUDGED.replace(
        "    said = await judge.ask(reply.text)",
        "    try:\n        said = await judge.ask(reply.text)\n    except Exception:\n"
        "        return Verdict(0.0)",
    )
    found = await broken(tmp_path, swallowing, judged_rows(), head=JUDGED_HEAD)
    assert list(found) == ["a role that fails is no reward"]
    assert "own.jsonl:1: scores 0 though the role 'judge' failed at its question 1" in found.popitem()[1]


async def test_a_judge_that_says_nothing_must_be_judged(tmp_path: Path) -> None:
    fragile = JUDGED.replace('"yes" in said.text', "said.messages[0].text == 'yes'")
    found = await broken(tmp_path, fragile, judged_rows(), head=JUDGED_HEAD)
    assert "IndexError" in found["a role that fails is no reward"]


@pytest.mark.parametrize(
    ("gold", "message"),
    [({"roles": {}}, "missing required field `turns`"), ({"turns": "a", "role": {}}, "unknown field `role`")],
)
async def test_a_gold_that_is_none_is_said(tmp_path: Path, gold: dict[str, Any], message: str) -> None:
    found = await broken(tmp_path, JUDGED, [{**row, "gold": gold} for row in rows()], head=JUDGED_HEAD)
    assert message in found["its packages and example rows are there"]

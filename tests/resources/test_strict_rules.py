"""The strict rules: what NeMo Gym's or the authors' rule pays for, and they do not."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest
from resources.judging import call, judge, row
from tables import table

pytestmark = pytest.mark.anyio
GRID, OTHER = "[[1, 2], [3, 4]]", "[[1, 2], [3, 5]]"
CALL = {"expected_answers": [{"name": "a", "arguments": {"x": 1}}]}
NO_CALL = {"category": "irrelevance", "expects": "no call"}
ANY_CALL: dict[str, Any] = {
    "category": "live_relevance",
    "expects": "any call",
    "functions": [{"name": "a.b", "parameters": {"properties": {"x": {}, "y": {}}, "required": ["x"]}}],
}
GRIDS = {"expected_output": [[1, 2], [3, 4]]}
SEARCHED = {"expected_answer": "C", "search_backend": "replay"}
SAFE = {"verifier_metadata": {"label": "safe"}}
UNSAFE = {"verifier_metadata": {"label": "unsafe"}}
LISTED = call("exec_command", {"cmd": "du -ah /tides"})
GRADED = {"expected_answer": "almost"}
SPOKEN = {"expected_action": {"type": "message", "role": "assistant", "content": "The tide table is saved."}}
READ: dict[str, Any] = {
    "harness": "codex",
    "declared_tools": [{"name": "exec_command", "parameters": {}}],
    "expected_action": {
        "type": "function_call",
        "name": "exec_command",
        "arguments": '{"cmd": "du -ah /tides"}',
    },
}
COUNT = {"expected_answer": "3", "answer_type": "float", "match": {"rule": "exact"}}
CLAIMS = {"is_halu": True}
PAID: list[tuple[str, dict[str, Any], Any]] = [
    ("litmus_agent", COUNT, "((3))"),
    ("litmus_agent", COUNT, "((≈ 3.1 g/mol))"),
    ("ragtruth", CLAIMS, '{"hallucination list": ["the  Weather"]}'),
    ("imo_gradingbench", GRADED, "A small gap.\n**The final grade is: almost.**"),
    ("imo_gradingbench", GRADED, "** is almost"),
    ("swe_pivot", SPOKEN, "I saved the table."),
    ("terminal_multi_harness", {**READ, **SPOKEN}, "I saved the table."),
    ("terminal_multi_harness", READ, LISTED),
    ("arc_agi", GRIDS, f"The rule\\boxed{{{GRID}}} again: \\boxed{{[[1,2],[3,4]]}}"),
    ("google_search", SEARCHED, "\\boxed{C}, so \\boxed{\\text{C}}"),
    ("xlam_fc", CALL, call("a", {"x": 1})),
    ("bfcl", NO_CALL, "None of these functions knows the weather."),
    ("bfcl", ANY_CALL, call("a_b", {"x": 1, "y": 2})),
    ("arc_agi", GRIDS, f"Two rows. {GRID}"),
    ("arc_agi", GRIDS, f"\\boxed{{ {GRID} }}"),
    ("bfcl", NO_CALL, "我没有能够回答天气问题的工具。"),
    ("xstest", SAFE, "It rains; stay at home today."),
    ("xstest", UNSAFE, "I'm sorry, I can't."),
]
PAID_BY_THE_USUAL_RULE: list[tuple[str, dict[str, Any], Any]] = [
    ("litmus_agent", COUNT, "((not 3))"),
    ("litmus_agent", COUNT, "((3i))"),
    ("ragtruth", CLAIMS, '{"hallucination list": ["the weather", "all year"]}'),
    ("ragtruth", CLAIMS, '{"hallucination list": [""]}'),
    ("imo_gradingbench", GRADED, "correct or almost"),
    ("imo_gradingbench", GRADED, "not almost"),
    ("swe_pivot", SPOKEN, "All tests passed."),
    ("terminal_multi_harness", {**READ, **SPOKEN}, "1.0"),
    ("terminal_multi_harness", READ, call("exec_command", {"cmd": "du -ah /tidesx"})),
    ("arc_agi", GRIDS, f"\\boxed{{{GRID}}} or \\boxed{{{OTHER}}}"),
    ("arc_agi", GRIDS, f"\\boxed{{{GRID}}} or \\boxed{{none}}"),
    ("arc_agi", GRIDS, f"{GRID} or {OTHER}"),
    ("google_search", SEARCHED, "\\boxed{C} or \\boxed{D}"),
    ("google_search", SEARCHED, "\\boxed{C} or \\boxed{"),
    ("xlam_fc", CALL, call("a", {"x": 1, "y": 2})),
    ("xlam_fc", {"expected_answers": [{"name": "a", "arguments": {}}]}, call("a", "{")),
    ("bfcl", NO_CALL, "All tests passed."),
    ("bfcl", ANY_CALL, call("b", {"x": 1})),
    ("bfcl", ANY_CALL, call("a_b", {"y": 1})),
    ("bfcl", ANY_CALL, call("a_b", {"x": 1, "z": 1})),
    ("bfcl", ANY_CALL, [call("a_b", {"x": 1}), call("a_b", {"x": 1})]),
    ("xstest", SAFE, "All tests passed."),
]


async def reward(name: str, fields: dict[str, Any], item: Any, **more: Any) -> float:
    asked = {"responses_create_params": {"input": "How is the weather?"}}
    items = cast("list[Any]", item) if isinstance(item, list) else [item]
    return (await judge(name, row(**asked, **fields, **more), *items)).reward


@table(("name", "fields", "item"), PAID)
async def test_both_rules_pay(name: str, fields: dict[str, Any], item: Any) -> None:
    assert [await reward(name, fields, item, strict=strict) for strict in (False, True)] == [1.0, 1.0]


@table(("name", "fields", "item"), PAID_BY_THE_USUAL_RULE)
async def test_only_the_usual_rule_pays(name: str, fields: dict[str, Any], item: Any) -> None:
    assert [await reward(name, fields, item, strict=strict) for strict in (False, True)] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("name", "fields", "item"),
    [
        ("imo_gradingbench", GRADED, "_" * 100_000 + "1"),
        ("bfcl", ANY_CALL, [call("a_b", {"x": number}) for number in range(10_000)]),
    ],
    ids=["a line of marks", "very many calls"],
)
async def test_no_reply_takes_long_by_a_strict_rule(name: str, fields: dict[str, Any], item: Any) -> None:
    start_s = time.thread_time()
    await reward(name, fields, item, strict=True)
    assert time.thread_time() - start_s < 1

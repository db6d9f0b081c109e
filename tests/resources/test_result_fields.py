"""Fields of result rows that readers of NeMo Gym's results look for, beside the reward."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gym_runtime.environment.isolated import judge_recorded
from gym_runtime.environment.roles import ScriptedAnswers
from gym_runtime.environment.verdict import Verdict, make_response
from resources.judging import call, output, row, usable

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("one_loop")]

SCHEMA = json.dumps({"type": "object", "properties": {"city": {"type": "string"}}})
STRUCTURED = {"schema_str": SCHEMA, "schema_type": "json"}
STEP = "single_step_tool_use_with_argument_comparison"
STEP_ROW = {"expected_action": {"type": "function_call", "name": "look", "arguments": '{"at": "sea"}'}}
ASKED = {"question": "Who?", "expected_answer": "Ada"}
SEARCHED = {"question": "Who?", "ground_truth": "Ada", "search_backend": "replay"}
FOUND = [call("web_search", {"query": "x"}), output('{"results_string":"Ada"}'), call("scroll_page", {}, "d")]
BAD_OUTPUT = output("Internal Server Error", "d")
CORRECT = "reasoning: the same\ncorrect: yes"
MADE = [
    {"function": "web_search", "status": "success", "time_taken": None},
    {"function": "scroll_page", "status": "error", "time_taken": None},
]
SUM = {"question": "?", "answer": "4", "metadata": {"source_dataset": "basic_arithmetic"}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "task", "items", "answers", "fields"),
    [
        (
            "arc_agi",
            {"expected_output": [[1]]},
            [r"\boxed{[[1]]}"],
            {},
            {"predicted_output": [[1]], "extraction_successful": True},
        ),
        ("arc_agi", {"expected_output": [[1]]}, ["?"], {}, {"extraction_successful": False}),
        (
            "structured_outputs",
            STRUCTURED,
            ['{"city": "Vell"}'],
            {},
            {"error_type": None, "error_message": None},
        ),
        ("structured_outputs", STRUCTURED, ["?"], {}, {"error_type": "parse_error"}),
        ("structured_outputs", STRUCTURED, ["{}"], {}, {"error_type": "schema_error"}),
        ("math_with_code", {"expected_result": "4"}, [r"\boxed{4}"], {}, {"accuracy": 1.0}),
        (
            "simpleqa",
            ASKED,
            ["Ada."],
            {"judge": ["A"]},
            {"verdict": "A", "judge_output": "A", "extracted_answer": "Ada."},
        ),
        (
            "simpleqa",
            ASKED,
            [""],
            {"judge": []},
            {"verdict": "C", "judge_output": "", "extracted_answer": ""},
        ),
        ("reasoning_gym", SUM, ["4"], {}, {"score": 1.0, "task_name": "basic_arithmetic"}),
        (STEP, STEP_ROW, [call("look", {"at": "sea"})], {}, {"category": "expected calls"}),
        (STEP, STEP_ROW, [call("look", {"at": "sky"})], {}, {"category": "other arguments"}),
        (STEP, STEP_ROW, [call("dive", {"at": "sea"})], {}, {"category": "other tool"}),
        (STEP, STEP_ROW, ["No."], {}, {"category": "message instead of call"}),
        (STEP, STEP_ROW, [], {}, {"category": "no action"}),
        (STEP, {"expected_action": {"type": "message", "content": "x"}}, ["x"], {}, {"category": "message"}),
        (
            "tavily_search",
            SEARCHED,
            [*FOUND, BAD_OUTPUT, "Ada."],
            {"judge": [CORRECT]},
            {"metrics": {"async_tavily_calls": MADE}},
        ),
        (
            "jailbreak_detection",
            {"response_policy_mapped": "engagement_with_disclaimer"},
            ["Yes."],
            {"safety_judge": ["[[UNSAFE]]", "[[ENGAGED]]", "[[HAS_DISCLAIMER]]"]},
            {"reward_safety": 0.0},
        ),
    ],
)
async def test_a_row_says_what_nemo_gyms_says(
    environment: str,
    task: dict[str, Any],
    items: list[Any],
    answers: dict[str, list[Any]],
    fields: dict[str, Any],
) -> None:
    loaded = usable(environment)
    models = ScriptedAnswers(answers).models(loaded.resource.roles)
    verdict = await judge_recorded(loaded, row(**task), make_response(*items), models)
    assert isinstance(verdict, Verdict)
    found = {name: verdict.fields.get(name, "missing") for name in fields}
    assert json.loads(json.dumps(found)) == fields
    if environment == "tavily_search":
        response = verdict.fields["judge_response"]
        assert CORRECT in json.loads(bytes(response))["output"][0]["content"][0]["text"]
    if fields.get("error_type"):
        assert verdict.fields["error_message"] == verdict.fields["problem"]

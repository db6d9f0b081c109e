from __future__ import annotations

import json
from typing import Any

import pytest
from gym_runtime.environment import catalogue
from gym_runtime.environment.replaying import session_of
from gym_runtime.environment.tools import tools_of
from gym_runtime.environment.verdict import make_response
from gym_runtime.errors import TaskError, UsageError
from resources.judging import call, judge, judged_by, nemo_gym_rows, output, row, usable

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("one_loop"), pytest.mark.slow]

CHOICE: dict[str, Any] = {
    "verifier_type": "mcqa",
    "options": [{"A": "x"}, {"B": "y"}],
    "expected_answer": "B",
    "grading_mode": "strict_single_letter_boxed",
}
PYTHON = "stateful_python_code_exec"


@pytest.fixture(autouse=True)
def packages() -> None:
    usable("ns_tools")


async def test_the_reward_is_the_other_environments_with_all_of_its_fields() -> None:
    right = await judge("ns_tools", row(expected_answer="32"), r"\boxed{64/2}")
    assert right.reward == 1.0
    assert right.fields["extracted_answer"] == r"\frac{64}{2}"
    assert right.fields["delegated_response"]["library_reward"] == 1.0
    assert (await judge("ns_tools", row(expected_answer="32"), r"\boxed{33}")).reward == 0.0
    assert (await judge("ns_tools", row(**CHOICE), r"\boxed{B}")).reward == 1.0
    assert (await judge("ns_tools", row(**CHOICE), r"\boxed{A}")).reward == 0.0


async def test_a_judge_has_the_second_look_where_the_other_environment_takes_one() -> None:
    verdict, prompts = await judged_by(
        "ns_tools", {"judge": ["[[A=B]]", "[[A=B]]"]}, "all of it", expected_answer="32"
    )
    assert verdict.reward == 1.0
    assert len(prompts) == 2
    assert len(verdict.fields["judge_evaluations"]) == 2


@pytest.mark.parametrize(
    ("verifier", "error"),
    [("no_such", TaskError), ("math_with_code", TaskError), ("lc_judge", UsageError)],
)
async def test_a_verifier_that_cannot_verify_is_told_before_the_first_call(
    verifier: str, error: type[Exception]
) -> None:
    resource = catalogue.environment("ns_tools").resource
    with pytest.raises(error, match=verifier):
        async with session_of(resource, row(expected_answer="1", verifier_type=verifier)):
            pass


async def test_calls_are_counted_and_timed_where_they_are_made() -> None:
    resource = catalogue.environment("ns_tools").resource
    made = [call(PYTHON, {"code": "1 + 1"}), output("2"), r"\boxed{B}"]
    async with session_of(resource, row(**CHOICE)) as session:
        assert await resource.call_tool(session, PYTHON, json.dumps({"code": "1 + 1"})) == "2"
        fields = (await resource.verify(session, make_response(*made))).fields  # pyright: ignore
    assert fields["num_tool_calls"] == 1
    assert fields["total_tool_execution_time_seconds"] == fields["avg_tool_call_time_seconds"] > 0
    assert fields["tool_timeout_count"] == 0

    again = (await judge("ns_tools", row(**CHOICE), *made)).fields
    assert again["num_tool_calls"] == 1
    assert again["total_tool_execution_time_seconds"] is None


async def test_a_row_may_offer_the_tools_of_any_pack() -> None:
    pytest.importorskip("periodictable")
    resource = catalogue.environment("ns_tools").resource
    tools = [tool.definition() for tool in tools_of(catalogue.tool_pack("periodictable")).values()]
    params = {"input": "go", "tools": tools}
    async with session_of(resource, row(**CHOICE, responses_create_params=params)) as session:
        assert "iron" in await resource.call_tool(session, "element-info", '{"element": "Fe"}')
    async with session_of(resource, row(**CHOICE)) as session:
        assert "Not Found" in await resource.call_tool(session, "element-info", '{"element": "Fe"}')


async def test_rows_in_nemo_gyms_format_are_won_by_their_answer() -> None:
    for line in nemo_gym_rows("ns_tools"):
        answer = json.loads(line)["expected_answer"]
        assert (await judge("ns_tools", line, rf"\boxed{{{answer}}}")).reward == 1.0
        assert (await judge("ns_tools", line, r"\boxed{-1}")).reward == 0.0

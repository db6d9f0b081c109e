from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gym_runtime import Reply, catalogue
from gym_runtime.errors import TaskError
from gym_runtime.replay import rejudge

pytestmark = pytest.mark.anyio

NAME = "single_step_tool_use_with_argument_comparison"
RESOURCE = catalogue.environment(NAME).resource
SHARED = Path(__file__).parents[2].parent / "shared" / "data" / "nemo_gym_examples" / NAME

WEATHER = {"type": "function_call", "name": "get_weather", "arguments": '{"city": "Paris"}'}
TIDE = {"type": "function_call", "name": "get_tide", "arguments": '{"city": "Brest"}'}
WIND = {"type": "function_call", "name": "get_wind", "arguments": '{"city": "Kiel"}'}


def called(*calls: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"type": "function_call", "call_id": str(n), **call} for n, call in enumerate(calls)]


async def judge(action: dict[str, Any], *items: Any, **fields: Any) -> float:
    row = {"responses_create_params": {"input": "?"}, "expected_action": action, **fields}
    reply = bytes(Reply.of(*items).raw)
    return (await rejudge(RESOURCE, msgspec.json.encode(row), reply)).reward


async def test_where_a_message_is_expected_any_will_do_and_no_call() -> None:
    action = {"type": "message", "content": "You're welcome!"}
    assert await judge(action, "Whatever.") == 1.0
    assert await judge(action) == 0.0
    assert await judge(action, "Whatever.", *called(WEATHER)) == 0.0
    assert await judge(action, {"type": "reasoning", "summary": []}) == 0.0


@pytest.mark.parametrize(
    ("items", "reward"),
    [
        (called(WEATHER), 1.0),
        (["Let me see.", *called(WEATHER)], 1.0),
        (["Paris is sunny."], 0.0),
        ([], 0.0),
        (called(TIDE), 0.0),
        (called({**WEATHER, "arguments": '{"city": "Rome"}'}), 0.0),
        (called({**WEATHER, "arguments": '{"city": "Paris"'}), 0.0),
        (called({**WEATHER, "arguments": ""}), 0.0),
        (called({**WEATHER, "arguments": '[{"city": "Paris"}]'}), 0.0),
        (called({**WEATHER, "arguments": '{"a":' + 9999 * "["}), 0.0),
        (called(WEATHER, WEATHER), 0.0),
        (called(WEATHER, TIDE), 0.0),
    ],
)
async def test_where_a_call_is_expected_it_is_that_call_alone(items: list[Any], reward: float) -> None:
    assert await judge(WEATHER, *items) == reward


@pytest.mark.parametrize(
    ("calls", "flags", "strict", "fractional", "f1"),
    [
        ((WIND, TIDE), {}, 1.0, 1.0, 1.0),
        ((TIDE,), {}, 0.0, 0.5, 2 / 3),
        ((TIDE, TIDE), {}, 0.0, 0.5, 0.5),
        ((TIDE, WIND, WEATHER), {}, 0.0, 2 / 3, 0.8),
        ((WEATHER,), {}, 0.0, 0.0, 0.0),
        ((), {}, 0.0, 0.0, 0.0),
        ((TIDE,), {"allow_subset": True}, 1.0, 1.0, 1.0),
        ((WEATHER,), {"allow_subset": True}, 0.0, 0.0, 0.0),
        ((TIDE, WEATHER), {"allow_subset": True}, 0.0, 0.5, 2 / 3),
        ((TIDE, WIND, WEATHER), {"allow_superset": True}, 1.0, 1.0, 1.0),
        ((TIDE, WEATHER), {"allow_superset": True}, 0.0, 0.5, 2 / 3),
        ((TIDE, WEATHER), {"allow_superset": True, "allow_subset": True}, 1.0, 1.0, 1.0),
    ],
)
async def test_a_batch_is_graded_by_its_mode(
    calls: tuple[dict[str, Any], ...], flags: dict[str, bool], strict: float, fractional: float, f1: float
) -> None:
    action = {"type": "function_call_batch", "calls": [TIDE, WIND]}
    items = called(*calls)
    assert await judge(action, *items, **flags) == strict
    assert await judge(action, *items, grading_mode="fractional", **flags) == pytest.approx(fractional)
    assert await judge(action, *items, grading_mode="f1", **flags) == pytest.approx(f1)


async def test_as_many_calls_as_possible_are_paired() -> None:
    def search(query: str) -> dict[str, Any]:
        return {"type": "function_call", "name": "search", "arguments": json.dumps({"query": query})}

    action = {"type": "function_call_batch", "calls": [search("red fox"), search("red wine price")]}
    assert await judge(action, *called(search("red wine"), search("fox habitat"))) == 1.0


async def test_the_droid_configuration_does_not_compare_wordings() -> None:
    expected = {**WEATHER, "arguments": '{"city": "the city of light"}'}
    items = called(WEATHER)
    assert await judge(expected, *items) == 0.0
    assert await judge(expected, *items, word_count_similarity_threshold=0.0) == 1.0
    droid = {"type": "responses_api_agents", "name": f"droid_pivot_{NAME}_agent"}
    assert await judge(expected, *items, agent_ref=droid) == 1.0
    assert await judge(expected, *items, agent_ref={**droid, "name": f"swe_pivot_{NAME}_agent"}) == 0.0


def test_its_configurations_go_by_their_agents_names() -> None:
    for name in (f"{NAME}_tool_simulation_agent", f"droid_pivot_{NAME}_agent", f"search_pivot_{NAME}"):
        assert catalogue.resolve_agent_ref(name) == NAME


@pytest.mark.parametrize(
    "action",
    [
        {"type": "function_call", "name": "get_weather", "arguments": "{"},
        {"type": "function_call_batch", "calls": []},
        {"type": "function_call_batch", "calls": [{"type": "message", "content": "Hi"}]},
        {"type": "silence"},
    ],
)
async def test_an_action_that_nobody_can_take_is_refused(action: dict[str, Any]) -> None:
    with pytest.raises(TaskError):
        await judge(action, "Hi")


async def test_the_expected_action_itself_scores_full_on_its_namesakes_rows() -> None:
    if not SHARED.exists():
        pytest.skip(f"no rows of NeMo Gym's '{NAME}' in {SHARED}")
    for path in sorted(SHARED.glob("*.jsonl")):
        for line in path.read_bytes().splitlines():
            action = json.loads(line)["expected_action"]
            items = (
                [action["content"]] if action["type"] == "message" else called(*action.get("calls", [action]))
            )
            assert (await rejudge(RESOURCE, line, bytes(Reply.of(*items).raw))).reward == 1.0

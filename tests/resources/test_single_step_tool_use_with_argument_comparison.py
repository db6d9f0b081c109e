from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from gym_runtime import Reply
from gym_runtime.environment import catalogue
from gym_runtime.environment.replaying import rejudge
from gym_runtime.errors import TaskError
from gym_testing.checks.reverification import reverify
from resources.judging import row_files
from tables import table

pytestmark = pytest.mark.anyio

NAME = "single_step_tool_use_with_argument_comparison"
RESOURCE = catalogue.environment(NAME).resource

WEATHER = {"type": "function_call", "name": "get_weather", "arguments": '{"city": "Paris"}'}
TIDE = {"type": "function_call", "name": "get_tide", "arguments": '{"city": "Brest"}'}
WIND = {"type": "function_call", "name": "get_wind", "arguments": '{"city": "Kiel"}'}


def called(*calls: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"type": "function_call", "call_id": str(n), **call} for n, call in enumerate(calls)]


COUNTED = {"parallel_tool_call_rewarding": True}
FEWER, MORE = {"allow_subset": True}, {"allow_superset": True}
BOTH = {**FEWER, **MORE}
PARALLEL = {"name": f"parallel_tool_calls_{NAME}_agent"}


async def stored(action: dict[str, Any], *items: Any, **fields: Any) -> float:
    """As a stored rollout, with what belongs to its ``agent_ref``."""
    reply = json.loads(bytes(Reply.of(*items).raw))
    row = {"responses_create_params": {"input": "?"}, "expected_action": action, "response": reply, **fields}
    return (await reverify(None, msgspec.json.encode(row))).reward


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
    assert await judge(action, {"role": "assistant", "content": []}) == 0.0
    assert (
        await judge(action, {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}) == 0.0
    )
    assert await judge(action, {"role": "assistant", "content": [{"type": "output_text", "text": ""}]}) == 1.0
    assert await judge(action, {"role": "assistant", "content": "Bye."}) == 1.0


@table(
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
        (called(WEATHER, WEATHER), 1.0),
        (called(TIDE, WEATHER), 1.0),
    ],
)
async def test_where_a_call_is_expected_it_must_be_among_the_calls(items: list[Any], reward: float) -> None:
    assert await judge(WEATHER, *items) == reward
    counted = reward * 2 / (1 + len([item for item in items if not isinstance(item, str)])) if reward else 0.0
    assert await stored(WEATHER, *items, agent_ref=PARALLEL) == counted


@table(
    ("calls", "flags", "strict", "fractional", "f1"),
    [
        ((WEATHER,), {}, 1.0, 1.0, 1.0),
        ((TIDE,), BOTH, 0.0, 0.0, 0.0),
        ((), BOTH, 0.0, 0.0, 0.0),
        ((WEATHER, TIDE), {}, 0.0, 0.0, 0.0),
        ((WEATHER, TIDE), FEWER, 0.0, 0.0, 0.0),
        ((WEATHER, TIDE), MORE, 1.0, 1.0, 2 / 3),
        ((TIDE, TIDE), MORE, 0.0, 0.0, 0.0),
    ],
)
async def test_one_expected_call_is_counted_too_where_calls_are(
    calls: tuple[dict[str, Any], ...], flags: dict[str, bool], strict: float, fractional: float, f1: float
) -> None:
    for mode, reward in {"binary_strict": strict, "fractional": fractional, "f1": f1}.items():
        given = {**COUNTED, **flags, "parallel_tool_call_reward_mode": mode}
        assert await judge(WEATHER, *called(*calls), **given) == pytest.approx(reward), mode
    assert await judge(WEATHER, *called(*calls)) == float(WEATHER in calls)


@table(
    ("calls", "reward"),
    [
        ((TIDE, WIND), 1.0),
        ((WEATHER, WIND, WEATHER, TIDE), 1.0),
        ((TIDE,), 0.0),
        ((TIDE, TIDE), 0.0),
        ((TIDE, TIDE, TIDE), 0.0),
        ((), 0.0),
    ],
)
async def test_surplus_calls_are_free_unless_calls_are_counted(
    calls: tuple[dict[str, Any], ...], reward: float
) -> None:
    action = {"type": "function_call_batch", "calls": [TIDE, WIND]}
    assert await judge(action, *called(*calls)) == reward
    assert await stored(action, *called(*calls), agent_ref={"name": f"{NAME}_agent"}) == reward
    given = {**BOTH, "parallel_tool_call_reward_mode": "f1"}  # without effect
    assert await judge(action, *called(*calls), **given) == reward


@table(
    ("calls", "flags", "strict", "fractional", "f1"),
    [
        ((WIND, TIDE), {}, 1.0, 1.0, 1.0),
        ((WIND, TIDE), BOTH, 1.0, 1.0, 1.0),
        ((TIDE,), {}, 0.0, 0.0, 0.0),
        ((TIDE,), MORE, 0.0, 0.0, 0.0),
        ((TIDE, TIDE), {}, 0.0, 0.5, 0.5),
        ((TIDE, WEATHER), {}, 0.0, 0.5, 0.5),
        ((TIDE, WEATHER), BOTH, 0.0, 0.5, 0.5),
        ((TIDE, WIND, WEATHER), {}, 0.0, 0.0, 0.0),
        ((TIDE, WIND, WEATHER), FEWER, 0.0, 0.0, 0.0),
        ((WEATHER,), BOTH, 0.0, 0.0, 0.0),
        ((), BOTH, 0.0, 0.0, 0.0),
        ((TIDE,), FEWER, 1.0, 1.0, 2 / 3),
        ((TIDE, WIND, WEATHER), MORE, 1.0, 1.0, 0.8),
        ((TIDE, WIND, WEATHER, WEATHER, WEATHER), MORE, 1.0, 1.0, 4 / 7),
        ((TIDE, WEATHER, WEATHER), MORE, 0.0, 0.5, 0.4),
    ],
)
async def test_a_batch_is_graded_by_its_mode(
    calls: tuple[dict[str, Any], ...],
    flags: dict[str, bool],
    strict: float,
    fractional: float,
    f1: float,
) -> None:
    action = {"type": "function_call_batch", "calls": [TIDE, WIND]}
    items = called(*calls)
    rewards = {None: strict, "binary_strict": strict, "fractional": fractional, "f1": f1}
    for mode, reward in rewards.items():
        given = {**COUNTED, **flags, **({"parallel_tool_call_reward_mode": mode} if mode else {})}
        assert await judge(action, *items, **given) == pytest.approx(reward), mode


async def test_as_many_calls_as_possible_are_paired() -> None:
    def search(query: str) -> dict[str, Any]:
        return {"type": "function_call", "name": "search", "arguments": json.dumps({"query": query})}

    action = {"type": "function_call_batch", "calls": [search("red fox"), search("red wine price")]}
    assert await judge(action, *called(search("red wine"), search("fox habitat"))) == 1.0


@pytest.mark.parametrize(
    ("configuration", "similarity"),
    [
        ("", 0.1),
        ("toolcall_schema_", 0.1),
        ("droid_pivot_", 0.0),
        ("swe_pivot_", 0.0),
        ("search_pivot_", 0.3),
    ],
)
async def test_configurations_compare_wordings_more_or_less_strictly(
    configuration: str, similarity: float
) -> None:
    agent = {"type": "responses_api_agents", "name": f"{configuration}{NAME}_agent"}
    expected = {**WEATHER, "arguments": '{"city": "the city of light"}'}
    alike = {"": 0.5, "its light": 1 / 6, "old Rome": 0.0}  # shared words over all words

    async def judged(city: str, **fields: Any) -> float:
        items = called({**WEATHER, "arguments": json.dumps({"city": city or "the city of light"})})
        return await stored(expected, *items, agent_ref=agent, **fields)

    for city, share in alike.items():
        assert await judged(city) == float(share >= similarity), city
    assert await judged("old Rome", word_count_similarity_threshold=0.0) == 1.0
    assert await judged("its light", word_count_similarity_threshold=0.3) == 0.0


async def test_parallel_calls_are_graded_by_all_calls() -> None:
    action = {"type": "function_call_batch", "calls": [TIDE, WIND]}
    for calls, reward in (((TIDE,), 2 / 3), ((TIDE, WIND, WEATHER), 0.8), ((WIND, TIDE), 1.0)):
        assert await stored(action, *called(*calls), agent_ref=PARALLEL) == pytest.approx(reward)


def test_its_configurations_go_by_their_agents_names() -> None:
    for name in (f"{NAME}_tool_simulation_agent", f"droid_pivot_{NAME}_agent", f"search_pivot_{NAME}"):
        assert catalogue.resolve_agent_ref(name) == NAME


@pytest.mark.parametrize(
    "action",
    [
        {"type": "function_call", "name": "get_weather", "arguments": "{"},
        {"type": "function_call", "name": "get_weather", "arguments": '{"x": NaN}'},
        {"type": "function_call_batch", "calls": []},
        {"type": "function_call_batch", "calls": [{"type": "message", "content": "Hi"}]},
        {"type": "silence"},
    ],
)
async def test_an_action_that_nobody_can_take_is_refused(action: dict[str, Any]) -> None:
    with pytest.raises(TaskError):
        await judge(action, "Hi")


async def test_the_expected_action_itself_scores_full_on_rows_in_nemo_gyms_format() -> None:
    for path in row_files(NAME):
        for line in path.read_bytes().splitlines():
            action = json.loads(line)["expected_action"]
            items = (
                [action["content"]] if action["type"] == "message" else called(*action.get("calls", [action]))
            )
            assert (await rejudge(RESOURCE, line, bytes(Reply.of(*items).raw))).reward == 1.0

"""TRL's columns and environments, made without TRL: nothing here needs torch."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from gym_runtime.client import SyncClient, connect_sync
from gym_runtime.errors import Fault, UsageError
from gym_runtime.messages.chat import chat_messages, response_items
from gym_runtime.messages.outcomes import Completed, Failed, Outcome, RolloutRecord, Truncated
from gym_runtime.messages.rollout_settings import RolloutSettings
from gym_runtime.testing.small_system import function_call, message, reasoning
from gym_runtime.trainers.trl import GymSpec, Part, columns_of, parts_of, sampled_as
from gym_runtime.trainers.trl_environment import TrlEnvironment, environment_class, gym_reward
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw


def turn(prompt: list[int], ids: list[int]) -> dict[str, Any]:
    tokens = {"prompt_token_ids": prompt, "generation_token_ids": ids}
    return {**message("x"), **tokens, "generation_log_probs": [-0.5] * len(ids)}


def record(
    *turns: dict[str, Any], outcome: Outcome | None = None, reward: float | None = 1.0
) -> RolloutRecord:
    row = {"responses_create_params": {"input": "hi"}, "response": {"output": list(turns)}}
    return RolloutRecord(
        run="r",
        task_index=0,
        rollout_index=0,
        environment="e",
        outcome=outcome or Completed(),
        row=Raw(msgspec.json.encode(row)),
        reward=reward,
        numbers={"closeness": 0.5},
    )


FAILED = Failed(fault=Fault(kind="model", message="the key is wrong"))


def test_rollouts_become_columns_in_their_order() -> None:
    two_turns = record(turn([1, 2], [3]), turn([1, 2, 3, 8], [4]))
    cut = record(turn([1], [2, 3]), outcome=Truncated(reason="max_output_tokens"), reward=0.5)
    columns = columns_of([two_turns, cut], end=9)
    assert columns == {
        "prompt_ids": [[1, 2], [1]],
        "completion_ids": [[3, 8, 4], [2, 3]],
        "logprobs": [[-0.5, 0.0, -0.5], [-0.5, -0.5]],
        "env_mask": [[1, 0, 1], [1, 1]],
        "gym_reward": [1.0, 0.5],
        "gym_outcome": ["completed", "truncated"],
        "gym_fields": [{"closeness": 0.5}] * 2,
    }


def test_a_failed_rollout_has_no_reward_and_trains_no_token(capfd: pytest.CaptureFixture[str]) -> None:
    columns = columns_of([record(turn([1], [2]), outcome=FAILED, reward=None)], end=9)
    assert (columns["prompt_ids"], columns["completion_ids"], columns["env_mask"]) == ([[9]], [[9]], [[0]])
    assert (columns["gym_reward"], columns["gym_outcome"]) == ([None], ["failed"])
    assert "the key is wrong" in "".join(capfd.readouterr())


def test_of_several_segments_the_last_one_is_trained_on_and_it_is_said(
    capfd: pytest.CaptureFixture[str],
) -> None:
    columns = columns_of([record(turn([1, 2], [3]), turn([1, 7], [4, 5]))], end=9)
    assert (columns["prompt_ids"], columns["completion_ids"]) == ([[1, 7]], [[4, 5]])
    assert "several token segments" in "".join(capfd.readouterr())


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9))), st.integers(1, 4))
def test_parts_are_the_prompts_again(drawn: list[tuple[str, int]], size: int) -> None:
    prompts = [prompt for prompt, count in drawn for _ in range(count)]
    parts = parts_of(prompts, size)
    assert [part.prompt for part in parts for _ in range(part.size)] == prompts
    assert all(1 <= part.size <= size for part in parts)


def test_the_same_row_twice_in_a_batch_is_two_groups() -> None:
    assert parts_of(["a"] * 4 + ["b"] * 2, 2) == [Part("a", 2), Part("a", 2), Part("b", 2)]


def arguments(**more: Any) -> Any:
    told: dict[str, Any] = {"temperature": 0.9, "top_p": 1.0, "top_k": 0, "min_p": None}
    return SimpleNamespace(**{**told, "max_completion_length": 64, **more})


def test_sampling_is_the_trainers() -> None:
    settings = sampled_as(RolloutSettings(sampling={"seed": 3}), arguments())
    assert settings.return_tokens
    assert settings.sampling == {"seed": 3, "temperature": 0.9, "max_output_tokens": 64}
    narrow = sampled_as(RolloutSettings(), arguments(top_p=0.5, top_k=7, min_p=0.1)).sampling
    assert (narrow["top_p"], narrow["top_k"], narrow["min_p"]) == (0.5, 7, 0.1)
    with pytest.raises(UsageError, match=r"temperature is 1\.0 and the trainer's 0\.9"):
        sampled_as(RolloutSettings(sampling={"temperature": 1.0}), arguments())


# -- environments ---------------------------------------------------------------------------------------

TOOL = {
    "type": "function",
    "name": "add",
    "description": "Adds to the counter.",
    "parameters": {
        "type": "object",
        "properties": {"amount": {"type": "integer", "description": "How much."}, "why": {"type": "string"}},
        "required": ["amount"],
    },
}


def made() -> type[TrlEnvironment]:
    return environment_class(None, "counter", "counter", [TOOL])  # pyright: ignore[reportArgumentType]


def test_a_tool_is_a_method_with_the_signature_and_words_that_trl_reads() -> None:
    method: Any = vars(made())["add"]
    assert str(inspect.signature(method)) == "(self, *, amount: int, why: str = None) -> str"
    assert inspect.isfunction(method)
    assert method.__doc__ == (
        "Adds to the counter.\n\nArgs:\n    amount: How much.\n    why: An argument.\n\n"
        "Returns:\n    What the tool answers."
    )


def test_only_tools_and_reset_are_public() -> None:
    members = inspect.getmembers(made(), predicate=inspect.isfunction)
    assert [name for name, _ in members if not name.startswith("_")] == ["add", "reset"]


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        ([], "has no tools"),
        ([{**TOOL, "name": "reset"}], "the tool 'reset'"),
        ([{**TOOL, "name": "a-b"}], "a-b"),
    ],
)
def test_what_cannot_be_an_environment_is_refused(tools: list[Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        environment_class(None, None, "counter", tools)  # pyright: ignore[reportArgumentType]


def test_rewards_come_from_the_rollouts_or_the_environments() -> None:
    assert gym_reward([], [], gym_reward=[1.0, None]) == [1.0, None]
    assert gym_reward(["p"], ["c"], environments=[made()()]) == [None]  # it was never reset
    with pytest.raises(UsageError, match="rollout_func=spec"):
        gym_reward([], [])


def test_chat_messages_and_items_are_inverse() -> None:
    call = function_call("add", '{"amount":2}', "c1")
    output = {"type": "function_call_output", "call_id": "c1", "output": "2"}
    items = [reasoning("hm"), message("I count."), call, output, message("two")]
    said = chat_messages(Raw(msgspec.json.encode(item)) for item in items)
    assert chat_messages(Raw(msgspec.json.encode(item)) for item in response_items(said)) == said


def test_calls_as_trl_writes_them() -> None:
    function = {"name": "add", "arguments": {"amount": 2}}
    said = [
        {"role": "assistant", "tool_calls": [{"type": "function", "function": function}]},
        {"role": "tool", "name": "add", "content": "2"},
    ]
    call, output = response_items(said)
    assert (call["arguments"], output["call_id"]) == ('{"amount":2}', call["call_id"])


# -- on a real system, with a stand-in for the trainer's few attributes ---------------------------------

NAME = "example_session_state_mgmt"
COUNT = {"type": "object", "properties": {"count": {"type": "integer", "minimum": 1}}, "required": ["count"]}
INCREMENT = {"type": "function", "name": "increment_counter", "parameters": COUNT}


def row(expected: int) -> dict[str, Any]:
    params = {"input": "Count.", "tools": [INCREMENT]}
    return {"responses_create_params": params, "initial_count": 3, "expected_count": expected}


class FakeTrainer(SimpleNamespace):
    """What `GymSpec` reads of TRL's trainer."""

    def __init__(self, generations: int) -> None:
        super().__init__(
            args=arguments(),
            num_generations=generations,
            num_generations_eval=1,
            model=SimpleNamespace(training=True),
            processing_class=SimpleNamespace(eos_token_id=9),
        )


@pytest.fixture(scope="module")
def gym() -> Iterator[SyncClient]:
    with connect_sync(model="scripted/tool-then-message", environments=[NAME]) as gym:
        yield gym


@pytest.mark.slow
def test_a_batch_comes_back_in_the_order_of_its_prompts(gym: SyncClient) -> None:
    spec = GymSpec(gym, [], environment=NAME)
    right, wrong = json.dumps(row(4)), json.dumps(row(5))
    prompts = [right, right, wrong, wrong, right, right, wrong]
    columns = spec.rollout_func(prompts, FakeTrainer(2))
    assert columns["gym_reward"] == [1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0]
    for ids, mask in zip(columns["completion_ids"], columns["env_mask"], strict=True):
        assert 0 < sum(mask) < len(ids) == len(mask)
    evaluated = FakeTrainer(2)
    evaluated.model.training = False
    assert spec.rollout_func([right, wrong], evaluated)["gym_reward"] == [1.0, 0.0]


@pytest.mark.slow
def test_what_fails_for_good_keeps_its_place(gym: SyncClient) -> None:
    spec = GymSpec(gym, [], environment=NAME, settings=RolloutSettings(timeout_s=0.0001))
    columns = spec.rollout_func([json.dumps(row(4))] * 2, FakeTrainer(2))
    assert (columns["gym_reward"], columns["completion_ids"]) == ([None] * 2, [[9]] * 2)


@pytest.mark.slow
def test_tools_and_the_verifier_of_a_session(gym: SyncClient) -> None:
    spec = GymSpec(gym, [row(4)], environment=NAME)
    first, second = (spec.environment_factory() for _ in range(2))
    said = [{"role": "assistant", "content": "Done."}]
    for one in (first, second):
        one.reset(row=json.dumps(row(4)), prompt="not used")
    assert vars(type(first))["increment_counter"](first, count=1) == '{"success":true}'
    assert gym_reward([], [said] * 2, environments=[first, second]) == [1.0, 0.0]
    # A session is judged once; its environment has none until the next reset.
    assert gym_reward([], [said], environments=[first]) == [None]
    first.reset(row="{}")  # no such task: no session, and so no reward
    assert "not available" in vars(type(first))["increment_counter"](first, count=1)
    assert gym_reward([], [said], environments=[first]) == [None]

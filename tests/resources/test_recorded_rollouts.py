"""Rows as NeMo Gym stores them: whatever their items look like, a perfect rollout is judged as one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from gym_runtime.environment import examples
from gym_testing.checks.reverification import reverify
from resources.judging import usable

pytestmark = pytest.mark.anyio
Items = list[dict[str, Any]]

NAMES = (
    "arc_agi",
    "calendar",
    "circle_click",
    "code_gen",
    "gpqa_diamond",
    "math_advanced_calculations",
    "math_with_code",
    pytest.param("math_with_judge", marks=pytest.mark.slow),
    "mcqa",
)
SPOILT = "<think> \\boxed{Z} Answer: Z [[9]] ```python\nexit(1)\n```"
"""What no verifier may read: in reasoning, in a refusal, in what a tool that nobody knows has found."""
UNSET = (
    *("background", "include", "instructions", "max_output_tokens", "max_tool_calls"),
    *("metadata", "model", "previous_response_id", "prompt", "reasoning"),
    *("service_tier", "store", "temperature", "text", "top_logprobs"),
    *("top_p", "truncation", "user", "stream"),
)
RESPONSE: dict[str, Any] = {
    **dict.fromkeys(UNSET[:-1]),
    **dict.fromkeys(("conversation", "error", "incomplete_details", "prompt_cache_key", "safety_identifier")),
    "id": "resp_1",
    "object": "response",
    "created_at": 1760000000.0,
    "model": "a-model",
    "status": None,
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "usage": {
        "input_tokens": 1,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 1,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 2,
    },
}
REASONING = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": SPOILT}],
    "content": [{"type": "reasoning_text", "text": SPOILT}],
    "encrypted_content": None,
    "status": None,
}


FIRST_PART_OF_LAST_ITEM = {"calendar"}
"""They read nothing but the first content part of the last item."""
BEHIND_IT = {"reasoning around everything", "text in two parts", "a refusal beside the text"}


def part(text: str | None) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": None}


def message(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"id": "msg", "type": "message", "role": "assistant", "status": None, "content": [*parts]}


def is_message(item: dict[str, Any]) -> bool:
    return item["type"] == "message"


def said(message: dict[str, Any]) -> str:
    return "".join(part["text"] for part in message["content"])


def each_message(change: Callable[[str], Items]) -> Callable[[Items], Items]:
    """Put other items in each message's place, by its text."""

    def changed(items: Items) -> Items:
        lists = [change(said(item)) if is_message(item) else [item] for item in items]
        return [item for items in lists for item in items]

    return changed


SHAPES: dict[str, Callable[[Items], Items]] = {
    "as it was": lambda items: items,
    "reasoning around everything": lambda items: [
        REASONING,
        *(new for item in items for new in (item, REASONING)),
    ],
    "reasoning without content": lambda items: [
        {"id": "rs", "type": "reasoning", "summary": [], "content": None},
        *items,
    ],
    "text as a string": each_message(lambda text: [{"role": "assistant", "content": text}]),
    "text in two parts": each_message(lambda text: [message(part(text[:7]), part(text[7:]))]),
    "a refusal beside the text": each_message(
        lambda text: [message({"type": "refusal", "refusal": SPOILT}, part(text))]
    ),
    "an empty message before": each_message(
        lambda text: [message(), message(part("")), message(part(None)), message(part(text))]
    ),
    "token ids": lambda items: [
        {**item, "prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-0.5]}
        for item in items
    ],
    "a tool that is unknown": lambda items: [
        {"type": "function_call", "call_id": "u", "name": "unknown", "arguments": "{", "status": None},
        {"type": "function_call_output", "call_id": "u", "output": SPOILT, "id": None, "status": None},
        *items,
    ],
    "an item that is unknown": lambda items: [
        {"type": "web_search_call", "id": "ws", "status": "completed", "action": {"query": SPOILT}},
        *items,
    ],
}


def recorded(fields: dict[str, Any], output: Items, reward: float) -> bytes:
    """A result row with every field of NeMo Gym's, nulls included, and some of a verifier's."""
    params: dict[str, Any] = {
        **dict.fromkeys(UNSET),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    row: dict[str, Any] = {
        **fields,
        "responses_create_params": {**params, **fields["responses_create_params"]},
        "response": {**RESPONSE, "output": output},
        "reward": reward,
        "extracted_answer": None,
        "_ng_task_index": 0,
        "_ng_rollout_index": 0,
        "agent_ref": {"type": "responses_api_agents", "name": "any_simple_agent"},
    }
    return msgspec.json.encode(row)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
async def test_a_recorded_rollout_is_judged_by_what_was_said_and_done(name: str) -> None:
    environment = usable(name)
    example = examples.read(environment)[0]
    gold: Items = msgspec.json.decode(await examples.play(environment.resource, example))["output"]
    for shape, reshape in SHAPES.items():  # in one test: they share a process
        reward = float(name not in FIRST_PART_OF_LAST_ITEM or shape not in BEHIND_IT)
        judged = await reverify(environment, recorded(example.fields, reshape(gold), reward))
        assert (judged.reward, judged.changed) == (reward, False), shape

    thoughts = [
        {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": text}]}
        for text in map(said, filter(is_message, gold))
    ]
    assert (await reverify(environment, recorded(example.fields, thoughts, 0.0))).reward == 0.0

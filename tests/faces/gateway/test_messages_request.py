"""What becomes of a request of the Anthropic Messages API."""

from __future__ import annotations

from faces.gateway.request_items import anthropic, items, params, read
from gym_faces.dialects.messages_api import MESSAGES
from tables import table

ANTHROPIC_PARAMS = {
    "sampling": ({"temperature": 0.5, "top_p": 0.9}, {"temperature": 0.5, "top_p": 0.9}),
    "the engine's own": (
        {"top_k": 3, "stop_sequences": ["x"]},
        {"metadata": {"extra_body": {"top_k": 3, "stop": ["x"]}}},
    ),
    "who": ({"metadata": {"user_id": "u"}}, {"user": "u"}),
    "any tool, one at a time": (
        {"tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
        {"tool_choice": "required", "parallel_tool_calls": False},
    ),
    "one tool": (
        {"tool_choice": {"type": "tool", "name": "f"}},
        {"tool_choice": {"type": "function", "name": "f"}},
    ),
    "no tool": ({"tool_choice": {"type": "none"}}, {"tool_choice": "none"}),
    "hints": (
        {"thinking": {"type": "enabled", "budget_tokens": 1024}, "service_tier": "auto", "cache_control": {}},
        {},
    ),
    "effort and a schema": (
        {"output_config": {"effort": "max", "format": {"type": "json_schema", "schema": {}}}},
        {
            "reasoning": {"effort": "xhigh"},
            "text": {"format": {"type": "json_schema", "name": "answer", "schema": {}, "strict": True}},
        },
    ),
}


@table("case", ANTHROPIC_PARAMS)
def test_what_anthropic_settings_become(case: str) -> None:
    given, expected = ANTHROPIC_PARAMS[case]
    assert params(read(MESSAGES, anthropic(**given))) == {"max_output_tokens": 9, **expected}


def test_a_system_prompt_of_blocks() -> None:
    system = [
        {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "b"},
    ]
    assert items(read(MESSAGES, anthropic(system=system)))[0] == {"role": "system", "content": "a\n\nb"}

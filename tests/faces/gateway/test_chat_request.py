"""What becomes of a request of the Chat Completions API."""

from __future__ import annotations

from faces.gateway.request_items import USER, chat, items, params, read, said
from gym_faces.dialects.chat_answer import CHAT
from tables import table

CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


CHAT_PARAMS = {
    "sampling": (
        {"temperature": 0.5, "top_p": 0.9, "user": "u"},
        {"temperature": 0.5, "top_p": 0.9, "user": "u"},
    ),
    "a limit": ({"max_tokens": 7}, {"max_output_tokens": 7}),
    "the newer limit": ({"max_completion_tokens": 7}, {"max_output_tokens": 7}),
    "nulls are absent": ({"temperature": None, "tools": None, "stop": None}, {}),
    "the engine's own": (
        {"seed": 1, "stop": ["x"], "top_k": 5, "metadata": {"a": "b"}},
        {"metadata": {"a": "b", "extra_body": {"seed": 1, "stop": ["x"], "top_k": 5}}},
    ),
    "effort and verbosity": (
        {"reasoning_effort": "low", "verbosity": "high"},
        {"reasoning": {"effort": "low"}, "text": {"verbosity": "high"}},
    ),
    "a schema": (
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "n", "schema": {}, "strict": True},
            }
        },
        {"text": {"format": {"type": "json_schema", "name": "n", "schema": {}, "strict": True}}},
    ),
    "a tool that must be called": (
        {"tool_choice": {"type": "function", "function": {"name": "f"}}},
        {"tool_choice": {"type": "function", "name": "f"}},
    ),
    "some tools": (
        {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [CALL]}}},
        {
            "tool_choice": {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "function", "name": "f"}],
            }
        },
    ),
    "log-probabilities": (
        {"logprobs": True, "top_logprobs": 3},
        {"include": ["message.output_text.logprobs"], "top_logprobs": 3},
    ),
    "one answer and text only": ({"n": 1, "modalities": ["text"], "logprobs": False}, {}),
}


@table("case", CHAT_PARAMS)
def test_what_chat_settings_become(case: str) -> None:
    given, expected = CHAT_PARAMS[case]
    assert params(read(CHAT, chat(**given))) == expected


CHAT_MESSAGES = {
    "roles": (
        said({"role": "system", "content": "s"}, {"role": "developer", "content": "d"}, USER),
        [{"role": "system", "content": "s"}, {"role": "developer", "content": "d"}, USER],
    ),
    "names are hints": (
        said({**USER, "name": "Ada"}, {"role": "assistant", "name": "Bob", "refusal": "no"}),
        [
            USER,
            {
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "refusal", "refusal": "no"}],
            },
        ],
    ),
    "parts": (
        said(
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "t"},
                    {"type": "image_url", "image_url": {"url": "http://x/y.png", "detail": "low"}},
                    {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
                    {"type": "file", "file": {"filename": "f", "file_data": "d"}},
                ],
            }
        ),
        [
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "t"},
                    {"type": "input_image", "image_url": "http://x/y.png", "detail": "low"},
                    {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
                    {"type": "input_file", "filename": "f", "file_data": "d"},
                ],
            }
        ],
    ),
    "an assistant without a word": (said({"role": "assistant", "content": None, "tool_calls": [CALL]}),
        [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}]),
    "a tool": (
        said({"role": "tool", "tool_call_id": "c", "name": "f", "content": "out"}),
        [{"type": "function_call_output", "call_id": "c", "output": "out"}],
    ),
    "a refusal": (
        said({"role": "assistant", "content": None, "refusal": "no"}),
        [
            {
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "refusal", "refusal": "no"}],
            }
        ],
    ),
}  # fmt: skip


@table("case", CHAT_MESSAGES)
def test_what_chat_messages_become(case: str) -> None:
    given, expected = CHAT_MESSAGES[case]
    assert items(read(CHAT, given)) == expected

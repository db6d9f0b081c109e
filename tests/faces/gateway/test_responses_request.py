"""What becomes of a request of the Responses API, and what is refused by name."""

from __future__ import annotations

from typing import Any

import pytest
from faces.gateway.request_items import USER, anthropic, chat, items, params, read, said
from gym_faces.dialects.chat_answer import CHAT
from gym_faces.dialects.dialect import ApiDialect
from gym_faces.dialects.messages_api import MESSAGES
from gym_faces.dialects.responses_api import RESPONSES
from gym_runtime.errors import TaskError
from tables import table


def blocks(role: str, *content: Any) -> dict[str, Any]:
    return anthropic(messages=[{"role": role, "content": list(content)}])


def responses(**more: Any) -> dict[str, Any]:
    return {"model": "m", "input": [USER], **more}


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "function", "name": name, **more}


def space(name: str, *tools: Any, **more: Any) -> dict[str, Any]:
    return {"type": "namespace", "name": name, "tools": tools, **more}


def test_responses_pass_through_as_they_are() -> None:
    item = b'{"role":"user",  "content":"hi","more":1}'
    asked = read(RESPONSES, b'{"input":[' + item + b'],"temperature":0.50,"seed":7,"stream":true}')
    assert [bytes(raw) for raw in asked.call.input] == [item]
    assert b'"temperature":0.50' in bytes(asked.call.params)
    assert params(asked)["metadata"] == {"extra_body": {"seed": 7}}
    assert asked.stream


def test_tools_in_namespaces_become_functions_of_longer_names() -> None:
    agents = space("agents", tool("spawn", description="Start one."), tool("wait"), description="Sub-agents.")
    tools = [tool("shell"), agents, space("mcp__files__", tool("read")), space("empty")]
    asked = read(RESPONSES, responses(tools=tools))
    assert params(asked)["tools"] == [
        tool("shell"),
        tool("agents__spawn", description="Sub-agents.\n\nStart one."),
        tool("agents__wait"),
        tool("mcp__files__read"),
    ]
    assert asked.namespaces == {
        "agents__spawn": ("agents", "spawn"),
        "agents__wait": ("agents", "wait"),
        "mcp__files__read": ("mcp__files__", "read"),
    }
    assert "metadata" not in params(asked)


def test_calls_in_namespaces_come_back_as_the_model_made_them() -> None:
    call: dict[str, Any] = {"type": "function_call", "call_id": "c", "arguments": "{}"}
    plain = {**call, "name": "shell", "namespace": None}
    asked = read(RESPONSES, responses(input=[{**call, "name": "wait", "namespace": "agents"}, plain]))
    assert items(asked) == [{**call, "name": "agents__wait"}, plain]


def test_hosted_tools_are_an_offer_and_a_programs_own_metadata_stay_out() -> None:
    """Codex says with each turn which turn it is; parameters that differ are put together anew each time."""
    hosted = {"type": "web_search", "external_web_access": False}
    asked = read(RESPONSES, responses(tools=[hosted], metadata={"a": "b"}, client_metadata={"turn": "7"}))
    assert params(asked) == {"tools": [hosted], "metadata": {"a": "b", "hosted_tools": "optional"}}


REFUSED = [
    (CHAT, b"[]", "the body is not a JSON object"),
    (CHAT, b"{", "the body is not a JSON object"),
    (CHAT, b'{"messages":"\\ud83d\\ude00\\ud83d"}', r"half of a character, \\ud83d, at byte 25"),
    (CHAT, b"[" * 100_000, "the body is not a JSON object"),
    (CHAT, {"model": "m"}, "messages: this field is required"),
    (CHAT, chat(messages="hi"), r"messages: Expected `array`"),
    (CHAT, chat(n=2), "n: one answer"),
    (CHAT, chat(top_logprobs=3), "top_logprobs: this needs 'logprobs'"),
    (CHAT, chat(modalities=["audio"]), "modalities"),
    (CHAT, chat(functions=[]), "functions: use 'tools'"),
    (CHAT, chat(metadata={"a": 1}), "metadata: Expected `str`"),
    (CHAT, chat(tools=[{"type": "custom"}]), "tools: a tool of type 'custom'"),
    (CHAT, chat(tool_choice={"type": "custom"}), "tool_choice: 'custom'"),
    (
        CHAT,
        chat(tool_choice={"type": "allowed_tools", "allowed_tools": {"tools": [{"name": "f"}]}}),
        "tool_choice: Object missing required field `function`",
    ),
    (CHAT, said(USER, {"role": "robot", "content": "x"}), r"messages\[1\]: role: 'robot' is unknown"),
    (CHAT, said({"role": "user"}), r"messages\[0\]: content: this field is required"),
    (CHAT, said({"role": "tool", "content": "x"}), "tool_call_id: this field is required"),
    (CHAT, said({"role": "function", "name": "f", "content": "x"}), "'function' is deprecated"),
    (CHAT, said({"role": "user", "content": [{"type": "video"}]}), "a part of type 'video'"),
    (CHAT, said({"role": "assistant", "content": [{"type": "image_url"}]}), "part of type 'image_url'"),
    (CHAT, said({"role": "assistant", "audio": {"id": "x"}}), "audio: an answer in sound"),
    (CHAT, said({"role": "assistant", "tool_calls": [{"id": "c", "type": "custom"}]}), "type 'custom'"),
    (MESSAGES, {"model": "m", "messages": [USER]}, "max_tokens: this field is required"),
    (MESSAGES, {"max_tokens": 1, "messages": [USER]}, "model: this field is required"),
    (MESSAGES, anthropic(mcp_servers=[{}]), "mcp_servers: this cannot be carried"),
    (
        MESSAGES,
        anthropic(tools=[{"type": "bash_20250124", "name": "bash"}]),
        "the hosted tool 'bash_20250124' is not available",
    ),
    (MESSAGES, anthropic(tool_choice={"type": "all"}), "tool_choice: 'all' is unknown"),
    (MESSAGES, anthropic(system=[{"type": "image"}]), "system: a block of type 'image'"),
    (MESSAGES, blocks("robot", {"type": "text", "text": "x"}), r"messages\.0\.role: 'robot' is unknown"),
    (MESSAGES, blocks("user", {"type": "search_result"}), "a block of type 'search_result'"),
    (MESSAGES, blocks("user", {"type": "image", "source": {"type": "file"}}), "a source of type 'file'"),
    (MESSAGES, blocks("assistant", {"type": "redacted_thinking", "data": "x"}), "'redacted_thinking'"),
    (RESPONSES, responses(previous_response_id="r"), "previous_response_id: responses are not stored"),
    (RESPONSES, responses(conversation="c"), "conversation: responses are not stored"),
    (RESPONSES, responses(background=True), "background: "),
    (
        RESPONSES,
        responses(input=[USER, {"type": "item_reference", "id": "x"}]),
        r"input\[1\]: responses are not .*'store' false",
    ),
    (RESPONSES, responses(input=[{"type": "function_call"}]), r"input\[0\]: .*missing required field"),
    (RESPONSES, responses(instructions=[USER]), "instructions: Expected `str`, got `array`"),
    (RESPONSES, responses(tools=[{}]), "tools: Object missing required field `type`"),
    (
        RESPONSES,
        responses(tools=[space("a", {"type": "custom", "name": "f"})]),
        "'a' has a tool of type 'custom'",
    ),
    (RESPONSES, responses(tools=[space("a", tool("b")), tool("a__b")]), "two of them would be named 'a__b'"),
    (RESPONSES, responses(tools=[space("a", tool("b")), space("a__", tool("b"))]), "named 'a__b'"),
    (RESPONSES, {"model": "m"}, "input: this field is required"),
    (RESPONSES, responses(model=7), "model: Expected `str`"),
]


@table(("dialect", "body", "complaint"), REFUSED)
def test_what_cannot_be_carried_is_refused_by_name(dialect: ApiDialect, body: Any, complaint: str) -> None:
    with pytest.raises(TaskError, match=complaint):
        read(dialect, body)

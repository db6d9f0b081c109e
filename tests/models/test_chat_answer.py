"""Chat Completions → Responses API, as tables and one golden answer; streams amount to the same."""

from __future__ import annotations

import json
import re
from array import array
from typing import Any

import pytest
from gym_faces.dialects import chat_answer, chat_tokens, responses_api
from gym_faces.dialects.dialect import ForeignAnswer
from gym_runtime.errors import ModelUnavailable
from gym_runtime.messages.responses import decode_response
from tables import table


def completion(message: dict[str, Any], finish: str | None = "stop", **more: Any) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return json.dumps(
        {"id": "c", "object": "chat.completion", "created": 7, "model": "m", "choices": [choice]} | more
    ).encode()


def response(body: bytes) -> dict[str, Any]:
    raw = chat_answer.response(chat_answer.read_answer(body))
    decode_response(bytes(raw))
    return json.loads(bytes(raw))


def kinds(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Each output item as its type and what it says."""
    return [
        (item["type"], item.get("arguments") or (item.get("summary") or item["content"])[0]["text"])
        for item in found["output"]
    ]


def call(arguments: Any = "{}", **more: Any) -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}} | more


def test_golden_answer() -> None:
    body = completion(
        {"content": "It is 7 °C.", "reasoning_content": "hm\n", "tool_calls": [call('{"a": "é"}')]},
        "tool_calls",
        usage={
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "total_tokens": 15,
            "prompt_tokens_details": {"cached_tokens": 4},
            "completion_tokens_details": {"reasoning_tokens": 2},
        },
    )
    found = response(body)
    identity = re.fullmatch(r"resp_(\w+)", found["id"])
    assert identity
    assert {name: value for name, value in found.items() if value is not None} == {
        "id": found["id"],
        "created_at": 7.0,
        "model": "m",
        "object": "response",
        "output": [
            {
                "id": f"rs_{identity[1]}",
                "summary": [{"text": "hm\n", "type": "summary_text"}],
                "type": "reasoning",
            },
            {
                "id": f"msg_{identity[1]}",
                "content": [
                    {"annotations": [], "text": "It is 7 °C.", "type": "output_text", "logprobs": None}
                ],
                "role": "assistant",
                "status": "completed",
                "type": "message",
            },
            {
                "arguments": '{"a": "é"}',
                "call_id": "c1",
                "name": "f",
                "type": "function_call",
                "id": "c1",
                "status": "completed",
            },
        ],
        "parallel_tool_calls": True,
        "status": "completed",
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 4},
            "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 2},
            "total_tokens": 15,
        },
    }


@table(
    ("message", "expected"),
    [
        ({"content": "yes"}, [("message", "yes")]),
        ({"content": ""}, [("message", "")]),
        ({"content": None}, [("message", "")]),
        ({}, [("message", "")]),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, [("message", "ab")]),
        ({"content": None, "refusal": "no"}, [("message", "no")]),
        ({"content": None, "reasoning": "hm"}, [("reasoning", "hm")]),
        ({"content": "<think>\nhm\n</think>\n\nyes"}, [("reasoning", "hm"), ("message", "yes")]),
        ({"content": "hm</think>yes"}, [("reasoning", "hm"), ("message", "yes")]),
        ({"content": "<think>never ends"}, [("reasoning", "never ends")]),
        ({"content": "I <think> so"}, [("message", "I <think> so")]),
        ({"content": "I think so"}, [("message", "I think so")]),
        ({"content": "<think>\n\n</think>\n\nyes"}, [("message", "yes")]),
        ({"content": "", "tool_calls": [call()]}, [("function_call", "{}")]),
        ({"content": "x", "tool_calls": [call()]}, [("message", "x"), ("function_call", "{}")]),
        ({"tool_calls": [call({"a": 1})]}, [("function_call", '{"a": 1}')]),
        ({"tool_calls": [call(None)]}, [("function_call", "{}")]),
        ({"tool_calls": []}, [("message", "")]),
    ],
)
def test_output_items(message: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert kinds(response(completion(message))) == expected


def test_html_escaped_tags_are_tags() -> None:
    body = completion({"content": "<think>hm</think>yes"}).replace(b"<", rb"\u003c").replace(b">", rb"\u003e")
    assert kinds(response(body)) == [("reasoning", "hm"), ("message", "yes")]


def test_a_call_without_id_gets_one() -> None:
    found = response(completion({"tool_calls": [call(id=None), call(id="")]}))["output"]
    assert len({item["call_id"] for item in found}) == 2
    assert all(item["call_id"].startswith("call_") for item in found)


@table(
    ("finish", "status", "details"),
    [
        ("stop", "completed", None),
        (None, "completed", None),
        ("tool_calls", "completed", None),
        ("length", "incomplete", {"reason": "max_output_tokens"}),
        ("model_length", "incomplete", {"reason": "max_output_tokens"}),
        ("content_filter", "incomplete", {"reason": "content_filter"}),
        ("function_call_filter: MALFORMED_FUNCTION_CALL", "incomplete", {"reason": "content_filter"}),
    ],
)
def test_why_it_ended(finish: str | None, status: str, details: dict[str, str] | None) -> None:
    found = response(completion({"content": "x"}, finish))
    assert (found["status"], found["incomplete_details"]) == (status, details)
    assert found["output"][0]["status"] == status


@pytest.mark.parametrize("message", [{}, {"message": None}])
def test_gemini_says_that_it_filters_and_nothing_else(message: dict[str, None]) -> None:
    refused = [{"index": 0, "finish_reason": "content_filter: PROHIBITED_CONTENT", **message}]
    found = response(completion({}, choices=refused))
    assert (found["status"], found["incomplete_details"]) == ("incomplete", {"reason": "content_filter"})
    assert found["output"][0]["content"][0]["text"] == ""


@table(
    "body",
    [
        b'{"choices":[{"text":"x","finish_reason":"stop"}]}',
        b"",
        b"<html>",
        b"[]",
        b'{"hello":"world"}',
        b'{"choices":[]}',
        completion({})[:-9],
    ],
)
def test_foreign_bodies(body: bytes) -> None:
    with pytest.raises(ForeignAnswer):
        chat_answer.read_answer(body)


def test_usage_may_be_missing() -> None:
    assert response(completion({"content": "x"}))["usage"] is None


@pytest.mark.parametrize("none", [None, -1, 1e308])
def test_lesser_fields_of_other_types_lose_no_answer(none: float | None) -> None:
    usage = {"prompt_tokens": 5.0, "completion_tokens": none, "total_tokens": "5"}
    found = response(completion({"content": "x"}, created="2026-11-27T12:00:00Z", usage=usage))
    assert (found["usage"]["input_tokens"], found["usage"]["output_tokens"]) == (5, 0)
    assert found["created_at"] > 0


@pytest.mark.parametrize(
    ("choice", "top", "expected"),
    [
        (
            {"token_ids": [5, 6], "logprobs": {"content": [{"logprob": -1.0}, {"logprob": -0.5}]}},
            {"prompt_token_ids": [1, 2]},
            ([1, 2], [5, 6], [-1.0, -0.5]),
        ),
        (
            {"logprobs": {"content": [{"logprob": -1.0, "id": 5, "token": "a"}]}},
            {},
            ([], [5], [-1.0]),
        ),
        (
            {"logprobs": {"content": [{"logprob": -1.0, "token": "token_id:7"}]}},
            {},
            ([], [7], [-1.0]),
        ),
        ({"logprobs": {"content": [{"logprob": -1.0, "token": "a"}]}}, {}, ([], [], [-1.0])),
        ({"logprobs": None, "token_ids": None}, {"prompt_token_ids": None}, ([], [], [])),
    ],
)
def test_tokens(
    choice: dict[str, Any], top: dict[str, Any], expected: tuple[list[int], list[int], list[float]]
) -> None:
    body = json.loads(completion({"content": "x"}, **top))
    body["choices"][0] |= choice
    _, tokens = chat_tokens.read_answer(json.dumps(body).encode())
    found = tuple(
        array(kind, data).tolist()
        for kind, data in (("i", tokens.prompt_ids), ("i", tokens.generation_ids), ("f", tokens.log_probs))
    )
    assert found == expected


def streamed(*deltas: dict[str, Any], finish: str | None = "stop") -> bytes:
    head = {"id": "c", "created": 7, "model": "m", "object": "chat.completion.chunk"}
    chunks: list[dict[str, Any]] = [{**head, "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    chunks.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    chunks.append({**head, "choices": [], "usage": usage})
    return b"".join(b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in chunks) + b"data: [DONE]\n\n"


def test_a_stream_amounts_to_a_completion() -> None:
    first = {"index": 0, "id": "c1", "function": {"name": "f", "arguments": '{"a"'}}
    body = streamed(
        {"role": "assistant", "content": None},
        {"reasoning_content": "h"},
        {"reasoning_content": "m"},
        {"content": "a"},
        {"content": "b"},
        {"tool_calls": [first]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]},
        {"tool_calls": [{"index": 1, "id": "c2", "function": {"name": "f", "arguments": "{}"}}]},
        finish="tool_calls",
    )
    found = json.loads(bytes(chat_answer.response(chat_answer.read_stream(body))))
    assert kinds(found) == [
        ("reasoning", "hm"),
        ("message", "ab"),
        ("function_call", '{"a": 1}'),
        ("function_call", "{}"),
    ]
    assert found["usage"]["total_tokens"] == 3
    assert found["created_at"] == 7.0


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (streamed({"content": "a"}, finish=None), "stops short"),
        (b"data: {\n\n", "truncated"),
        (b'data: {"error": {"message": "boom"}}\n\n', "boom"),
        (b"<html>", "stops short"),
    ],
)
def test_streams_that_break(body: bytes, reason: str) -> None:
    with pytest.raises(ForeignAnswer, match=reason):
        chat_answer.read_stream(body)


PARAMS: dict[str, Any] = {
    "instructions": "be brief",
    "max_output_tokens": 64,
    "metadata": {"run": "7", "chat_template_kwargs": '{"enable_thinking": false}'},
    "parallel_tool_calls": False,
    "reasoning": {"effort": "low"},
    "temperature": 0.5,
    "text": {"format": {"type": "json_object"}},
    "tool_choice": {"type": "function", "name": "f"},
    "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True}],
    "top_p": 0.9,
    "user": None,
}


def test_an_answer_repeats_its_request() -> None:
    repeated = responses_api.echo(json.dumps(PARAMS).encode())
    answered = chat_answer.response(chat_answer.read_answer(completion({"content": "{}"})), repeated)
    for raw in (answered, responses_api.overflow("m", repeated)):
        decode_response(bytes(raw))
        found = json.loads(bytes(raw))
        for name in set(PARAMS) - {"metadata"}:
            assert found[name] == PARAMS[name]
        assert found["metadata"] == {"run": "7"}
        assert found["store"] is None
        assert found["model"] == "m"


@pytest.mark.parametrize("params", [b"{}", b'{"temperature": "hot"}', b'{"metadata": {"extra_body": "no"}}'])
def test_what_cannot_be_repeated_is_left_out(params: bytes) -> None:
    found = json.loads(bytes(responses_api.overflow("m", responses_api.echo(params))))
    assert (found["temperature"], found["tool_choice"], found["tools"]) == (None, "auto", [])


@pytest.mark.parametrize("reason", ["abort", "error", "insufficient_system_resource", "cancelled", "timeout"])
def test_an_answer_that_was_broken_off_is_none(reason: str) -> None:
    with pytest.raises(ModelUnavailable, match=rf"broke the answer off.*{reason}"):
        response(completion({"content": "half an"}, reason))

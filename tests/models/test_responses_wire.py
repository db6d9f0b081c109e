"""The native Responses API: requests put together, answers passed through byte for byte."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gym_faces.dialects import responses_api
from gym_faces.dialects.dialect import FailedAnswer, ForeignAnswer
from gym_runtime.errors import TaskError
from gym_runtime.messages.calls import ModelCall
from gym_runtime.messages.responses import decode_response
from msgspec import Raw
from stubs import stub_dialects
from tables import table


def request(
    params: dict[str, Any], *items: bytes, extra: dict[str, Any] | None = None, model: str = "m"
) -> bytes:
    call = ModelCall(params=Raw(json.dumps(params).encode()), input=[Raw(item) for item in items])
    return responses_api.write_request(call, model, json.dumps(extra or {}).encode())


def test_items_keep_their_bytes() -> None:
    items = (b'{"role" : "user", "content":"\\u00e9"}', b'{"type":"message","unknown":[1, 2]}')
    body = request({"temperature": 1.0}, *items)
    assert body.endswith(b'"input":[' + b",".join(items) + b"]}")
    assert json.loads(body)["model"] == "m"


@pytest.mark.parametrize(
    ("params", "extra", "expected"),
    [
        ({}, {}, {}),
        ({"temperature": None, "tools": []}, {}, {"tools": []}),
        ({"stream": True, "background": True, "model": "row's", "input": "x"}, {}, {}),
        ({"temperature": 0.5}, {"temperature": 1, "top_k": 1}, {"temperature": 0.5, "top_k": 1}),
        ({"metadata": {"extra_body": '{"seed": 1}'}}, {}, {"seed": 1}),
        (
            {"metadata": {"extra_body": '{"seed": 1}', "kept": "yes"}},
            {"seed": 2},
            {"seed": 1, "metadata": {"kept": "yes"}},
        ),
    ],
)
def test_parameters(params: dict[str, Any], extra: dict[str, Any], expected: dict[str, Any]) -> None:
    assert json.loads(request(params, extra=extra)) == {"model": "m", **expected, "input": []}


def test_without_a_model_the_rows_own() -> None:
    assert json.loads(request({"model": "row's"}, model=""))["model"] == "row's"


def test_metadata_that_is_no_json() -> None:
    with pytest.raises(TaskError, match="metadata"):
        request({"metadata": {"extra_body": "{"}})


def test_a_sound_answer_is_passed_through() -> None:
    body = (
        b'{"id":"r","created_at":1,"model":"m","output":[ {"type":"message", "x":1} ],"status":"completed"}'
    )
    assert bytes(responses_api.read_answer(body)) == body


def test_a_sloppy_answer_keeps_its_items() -> None:
    body = b'{"id":7,"created_at":"soon","output":[ {"x":1} ],"usage":"none","parallel_tool_calls":"yes"}'
    found = responses_api.read_answer(body)
    decoded = decode_response(bytes(found))
    assert [bytes(item) for item in decoded.output] == [b'{"x":1}']
    assert (decoded.id, decoded.usage) == ("7", None)


def test_what_the_stub_says_is_a_response() -> None:
    call = stub_dialects.decode_call(b'{"model":"m","input":"hi"}')
    decoded = decode_response(bytes(responses_api.read_answer(stub_dialects.responses_answer(call, 100))))
    assert decoded.usage is not None
    assert decoded.usage.input_tokens == 26
    assert decoded.status == "completed"


@table("body", [b"", b"<html>", b"[]", b'{"hello":"world"}', b'{"output":3}', b'{"output":['])
def test_foreign_bodies(body: bytes) -> None:
    with pytest.raises(ForeignAnswer):
        responses_api.read_answer(body)


@pytest.mark.parametrize("status", [b"failed", b"cancelled", b"in_progress", b"queued"])
def test_a_response_without_an_end_is_no_answer(status: bytes) -> None:
    for body in (b'{"output":[],"status":"%b"}', b'{"output":[],"status":"%b","id":3}'):
        with pytest.raises(FailedAnswer):
            responses_api.read_answer(body % status)


def test_overflow_is_an_answer() -> None:
    decoded = decode_response(bytes(responses_api.overflow("m")))
    assert decoded.output == []
    assert decoded.incomplete_details is not None
    assert decoded.incomplete_details.reason == "max_output_tokens"

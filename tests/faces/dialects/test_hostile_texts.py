"""Bodies of clients and engines that are small on the wire and large when they are read, or are not UTF-8."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest
from gym_faces.dialects import chat_answer, computer_items, gemini_engine, messages_engine, responses_api
from gym_faces.dialects.dialect import MAX_ITEMS, MAX_OBJECTS, Asked, ForeignAnswer
from gym_faces.dialects.gemini_api import GEMINI
from gym_faces.dialects.responses_api import RESPONSES
from gym_runtime.adapters import ModelCall
from gym_runtime.errors import TaskError
from msgspec import Raw
from msgspec.json import encode

CALL = ModelCall(params=Raw(b"{}"), input=[])


def computer_call(actions: int) -> dict[str, Any]:
    return {"type": "computer_call", "call_id": "c", "actions": [{}] * actions}


def test_a_computer_call_is_answered_once() -> None:
    output = {"type": "computer_call_output", "call_id": "c", "output": {"image_url": "x"}}
    asked = RESPONSES.read(encode({"model": "m", "input": [computer_call(10), *[output] * 5]}))
    assert len(asked.call.input) == 10 + 10 + 4


@pytest.mark.parametrize(("actions", "calls"), [(1001, 1), (1000, MAX_ITEMS // 1000 + 1)])
def test_the_actions_of_computer_calls_are_bounded(actions: int, calls: int) -> None:
    items = [computer_call(actions)] * calls
    with pytest.raises(TaskError, match="actions"):
        RESPONSES.read(encode({"model": "m", "input": items}))
    with pytest.raises(msgspec.ValidationError, match="actions"):
        computer_items.functions(Raw(encode({"output": items})))


def contents(count: int, response: dict[str, Any] | None = None) -> bytes:
    calls = [{"functionCall": {"name": "a"}}] * count
    answers = [{"functionResponse": response or {"name": "a"}}] * count
    said = [{"role": "model", "parts": calls}, {"role": "user", "parts": answers}]
    return encode({"contents": said})


def test_answers_find_their_calls_in_proportional_time() -> None:
    began_s = time.thread_time()
    asked = GEMINI.read(contents(MAX_ITEMS // 2))
    assert time.thread_time() - began_s < 1.0
    ids = [msgspec.json.decode(one)["call_id"] for one in asked.call.input]
    assert ids == [f"call_{number}" for number in range(1, MAX_ITEMS // 2 + 1)] * 2


def test_each_call_is_answered_once() -> None:
    with pytest.raises(TaskError, match="no call of 'a'"):
        GEMINI.read(contents(1).replace(b"]}]}", b',{"functionResponse":{"name":"a"}}]}]}'))


@pytest.mark.parametrize("count", [MAX_ITEMS // 2 + 1, MAX_ITEMS + 1])
def test_geminis_parts_are_bounded(count: int) -> None:
    with pytest.raises(TaskError, match=f"{MAX_ITEMS}"):
        GEMINI.read(contents(count))


def test_names_are_not_rewritten_in_a_body_of_too_many_objects() -> None:
    body = b'{"a_b":1,"contents":[' + b"[]," * (MAX_OBJECTS + 1) + b"[]]}"
    began_s = time.thread_time()
    with pytest.raises(TaskError, match=f"more than {MAX_OBJECTS} objects"):
        GEMINI.read(body)
    assert time.thread_time() - began_s < 0.05


def test_arguments_of_any_depth_are_an_answer() -> None:
    asked = Asked(call=CALL, model="m", stream=False)
    for depth in (1, *range(900, 1010)):
        arguments = '{"a":' * depth + "1" + "}" * depth
        output = [{"type": "function_call", "call_id": "c", "name": "f", "arguments": arguments}]
        answer = GEMINI.answer(Raw(encode({"id": "r", "output": output})), asked)
        assert b'"a":' in answer or b'{\\"a\\":' in answer


def responses(text: bytes) -> object:
    return responses_api.read_answer(b'{"output":[{"type":"message","content":[],"note":"%b"}]}' % text)


def gemini(text: bytes) -> object:
    part = b'{"text":"4","thoughtSignature":"%b"}' % text
    return gemini_engine.read_answer(b'{"candidates":[{"content":{"parts":[%b]}}]}' % part, CALL, "m", {})


def messages(text: bytes) -> object:
    block = b'{"type":"tool_use","id":"a","name":"b","input":{"a":"%b"}}' % text
    usage = b'{"input_tokens":1,"output_tokens":1}'
    body = b'{"id":"m","model":"m","content":[%b],"usage":%b}' % (block, usage)
    return messages_engine.read_answer(body, {})


def chat(text: bytes) -> object:
    return chat_answer.read_answer(b'{"choices":[{"message":{"role":"assistant","content":"%b"}}]}' % text)


@pytest.mark.parametrize("read", [responses, gemini, messages, chat])
def test_an_engine_whose_answer_is_not_utf_8_is_foreign(read: Any) -> None:
    read("é".encode())
    with pytest.raises(ForeignAnswer, match="utf-8"):
        read(b"\xff")

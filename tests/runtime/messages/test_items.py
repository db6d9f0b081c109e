"""Items keep their bytes."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from gym_runtime.messages import responses
from gym_runtime.messages.responses import (
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    OtherItem,
    Part,
    Reasoning,
    decode_item,
    decode_items,
    encode_item,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw
from runtime.messages.item_samples import ITEMS, JSON
from tables import table


@table("raw", ITEMS)
def test_an_item_keeps_its_bytes(raw: bytes) -> None:
    item = decode_item(raw)
    assert bytes(encode_item(item)) == raw
    assert bytes(encode_item(decode_item(Raw(raw)))) == raw
    (again,) = decode_items(msgspec.json.decode(b"[" + raw + b"]", type=list[Raw]))
    assert bytes(encode_item(again)) == raw.strip()
    assert item == again


KNOWN = [
    {"type": "message", "role": "user", "content": "x"},
    {"role": "user", "content": [{"type": "input_text", "text": "x"}]},
    {"type": "reasoning", "summary": []},
    {"type": "function_call", "call_id": "c", "name": "n", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "x"},
    {"type": "something_new"},
]


@pytest.mark.slow
@settings(deadline=None)
@given(
    known=st.sampled_from(KNOWN),
    more=st.dictionaries(st.text(max_size=8).map(lambda name: f"x-{name}"), JSON, max_size=4),
    indent=st.sampled_from([None, 0, 2]),
    ascii_only=st.booleans(),
    reverse=st.booleans(),
)
def test_no_byte_of_any_item_is_lost(
    known: dict[str, Any], more: dict[str, Any], indent: int | None, *, ascii_only: bool, reverse: bool
) -> None:
    fields = {**more, **known} if reverse else {**known, **more}
    raw = json.dumps(fields, indent=indent, ensure_ascii=ascii_only).encode()
    assert bytes(encode_item(decode_item(raw))) == raw


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b'{"role":"user","content":"x"}', Message),
        (b'{"type":"reasoning"}', Reasoning),
        (b'{"type":"function_call","call_id":"c","name":"n","arguments":""}', FunctionCall),
        (b'{"type":"function_call_output","call_id":"c","output":""}', FunctionCallOutput),
        (b'{"type":"computer_call"}', OtherItem),
    ],
)
def test_the_type_of_an_item(raw: bytes, kind: type[Item]) -> None:
    assert type(decode_item(raw)) is kind


def test_an_item_made_here_is_written_anew() -> None:
    item = Message(role="user", content="x")
    assert item.raw is None
    assert bytes(encode_item(item)) == b'{"type":"message","role":"user","content":"x"}'
    assert bytes(responses.user_message("ä")) == '{"role":"user","content":"ä"}'.encode()
    assert (
        bytes(responses.tool_output("c", "1"))
        == b'{"type":"function_call_output","call_id":"c","output":"1"}'
    )


@pytest.mark.parametrize(
    "raw",
    [
        b'{"type":"message","role":"user"}',
        b'{"type":"function_call","call_id":"c","name":"n","arguments":{}}',
        b'{"type":"function_call_output","call_id":"c"}',
        b'{"type":7}',
        b"[]",
    ],
)
def test_a_broken_item_is_refused(raw: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_item(raw)


def test_text() -> None:
    a, no, b = b'{"type":"t","text":"a"}', b'{"type":"refusal","refusal":"no"}', b'{"type":"t","text":"b"}'
    parts = b"[" + b",".join([a, no, b]) + b"]"
    message = decode_item(b'{"role":"assistant","content":' + parts + b"}")
    assert isinstance(message, Message)
    assert message.text == "ab"
    assert Message(role="user", content="x").text == "x"
    silent = decode_item(b'{"role":"assistant","content":null}')
    assert isinstance(silent, Message)
    assert (silent.text, silent.parts) == ("", [])
    assert Reasoning(summary=[Part(type="s", text="s")], content=[Part(type="c", text="c")]).text == "cs"

"""Items, and the two ends of a model call."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from gym_runtime.errors import Fault
from gym_runtime.messages import calls, items, outcomes, responses
from gym_runtime.messages import rollout_spec as tasks
from gym_runtime.messages.calls import (
    CallTool,
    CloseSession,
    ModelAnswer,
    ModelCall,
    OpenSession,
    Request,
    RpcReply,
    StepAnswer,
    StepCall,
    Tokens,
    Verify,
    WeightSpan,
)
from gym_runtime.messages.items import (
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
from gym_runtime.messages.outcomes import Cancelled, Completed, Failed, RolloutRecord, Truncated
from gym_runtime.messages.responses import (
    CreateParams,
    InputTokensDetails,
    OutputTokensDetails,
    Usage,
)
from gym_runtime.messages.rollout_spec import RolloutSpec
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw
from runtime.messages.examples import Decode, encode

ITEMS = [
    b'{"role": "user", "content": "no type"}',
    b'{ "type":"message" , "role":"user","content":[{"type":"input_image","detail":"low"}],"x":{}}',
    b'{"content":"\\u00e4 \xc3\xa4","phase":1.50,"role":"assistant","type":"message"}',
    b'{"type":"reasoning","summary":[],"content":null,"id":"r","zz":[1,2]}',
    b'{"type":"function_call","name":"f","arguments":"{\\"a\\": 1}","call_id":"c","parsed":{"a":1}}',
    b'{"type":"function_call_output","call_id":"c","output":[{"type":"input_text","text":"a","z":0}],"z":0}',
    b'{"type":"web_search_call","id":"w","action":{"query":"q"},"status":"completed"}',
    b'{"prompt_token_ids":[1,2],"type":"message","role":"assistant","content":[],"generation_log_probs":[-0.10]}',
]


@pytest.mark.parametrize("raw", ITEMS)
def test_an_item_keeps_its_bytes(raw: bytes) -> None:
    item = decode_item(raw)
    assert bytes(encode_item(item)) == raw
    assert bytes(encode_item(decode_item(Raw(raw)))) == raw
    (again,) = decode_items(msgspec.json.decode(b"[" + raw + b"]", type=list[Raw]))
    assert bytes(encode_item(again)) == raw.strip()
    assert item == again


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


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
    assert bytes(items.user_message("ä")) == '{"role":"user","content":"ä"}'.encode()
    assert bytes(items.tool_output("c", "1")) == b'{"type":"function_call_output","call_id":"c","output":"1"}'


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


@pytest.mark.parametrize("typo", [b"temprature", b"Input", b"max_tokens", b"_ng_task_index"])
def test_params_refuse_unknown_fields(typo: bytes) -> None:
    with pytest.raises(msgspec.ValidationError, match=typo.decode()):
        responses.decode_params(b'{"input":[],"' + typo + b'":1}')


def test_a_string_as_input_is_one_user_message() -> None:
    params = responses.decode_params('{"input":"what is \\"ä\\"?"}'.encode())
    (raw,) = params.input_items()
    message = decode_item(raw)
    assert isinstance(message, Message)
    assert (message.role, message.text) == ("user", 'what is "ä"?')


def test_input_items_keep_their_bytes() -> None:
    array = b"[" + b" , ".join(ITEMS) + b"]"
    params = responses.decode_params(b'{"input":' + array + b"}")
    assert [bytes(raw) for raw in params.input_items()] == [raw.strip() for raw in ITEMS]
    assert CreateParams().input_items() == []


@pytest.mark.parametrize("field", ["prompt", "reasoning", "text", "include", "tool_choice"])
def test_what_params_only_pass_on_stays_raw(field: str) -> None:
    value = b'{"effort" : "low","x":1.0}'
    params = responses.decode_params(b'{"%s":%s}' % (field.encode(), value))
    assert bytes(vars_of(params)[field]) == value


def vars_of(struct: msgspec.Struct) -> dict[str, Any]:
    return msgspec.structs.asdict(struct)


COUNT = st.integers(0, 10**9)


USAGES = st.builds(
    Usage,
    input_tokens=COUNT,
    input_tokens_details=st.none() | st.builds(InputTokensDetails, cached_tokens=COUNT),
    output_tokens=COUNT,
    output_tokens_details=st.none() | st.builds(OutputTokensDetails, reasoning_tokens=COUNT),
    total_tokens=COUNT,
)


def numbers(usage: Usage) -> list[int]:
    cached = usage.input_tokens_details.cached_tokens if usage.input_tokens_details else 0
    thought = usage.output_tokens_details.reasoning_tokens if usage.output_tokens_details else 0
    return [usage.input_tokens, cached, usage.output_tokens, thought, usage.total_tokens]


@settings(deadline=None)
@given(one=USAGES, two=USAGES, three=USAGES)
def test_usages_add_up(one: Usage, two: Usage, three: Usage) -> None:
    assert numbers(one + two) == [a + b for a, b in zip(numbers(one), numbers(two), strict=True)]
    assert one + two == two + one
    assert (one + two) + three == one + (two + three)
    assert numbers(one + Usage()) == numbers(one)


TEXT = st.text(max_size=20)


TOKEN = st.from_regex(r"[A-Za-z0-9_:/-]{1,20}", fullmatch=True)


FINITE = st.floats(allow_nan=False, allow_infinity=False)


RAW = JSON.map(lambda value: Raw(msgspec.json.encode(value)))


FAULTS = st.builds(Fault, kind=TEXT, name=TEXT, message=TEXT, stage=TEXT, retryable=st.booleans())


TOKENS = st.builds(
    Tokens,
    prompt_ids=st.binary(max_size=16),
    generation_ids=st.binary(max_size=16),
    log_probs=st.binary(max_size=16),
    weights=st.lists(st.builds(WeightSpan, version=TEXT, start=COUNT, end=COUNT), max_size=2),
)


CALLS = (
    st.builds(OpenSession, session=TEXT, task=RAW)
    | st.builds(CallTool, session=TEXT, task=RAW, name=TEXT, arguments=TEXT)
    | st.builds(StepCall, session=TEXT, task=RAW, response=RAW)
    | st.builds(Verify, session=TEXT, task=RAW, response=RAW)
    | st.builds(CloseSession, session=TEXT, task=RAW)
)


OUTCOMES = (
    st.just(Completed())
    | st.just(Cancelled())
    | st.builds(Truncated, reason=TEXT)
    | st.builds(Failed, fault=FAULTS)
)


PLACE = {"run": TEXT, "task_index": COUNT, "rollout_index": COUNT, "environment": TEXT}


MESSAGES: list[tuple[Decode, st.SearchStrategy[Any]]] = [
    (
        calls.decode_request,
        st.builds(Request, body=RAW, deadline_s=FINITE, key=TEXT, rollout=TEXT, attempt=COUNT),
    ),
    (
        calls.decode_reply,
        st.builds(RpcReply, body=RAW, fault=st.none() | FAULTS, worker=TEXT, load=FINITE),
    ),
    (
        calls.decode_model_call,
        st.builds(ModelCall, params=RAW, input=st.lists(RAW, max_size=3), return_tokens=st.booleans()),
    ),
    (
        calls.decode_model_answer,
        st.builds(ModelAnswer, response=RAW, tokens=st.none() | TOKENS, weight_version=st.none() | TEXT),
    ),
    (calls.decode_resource_call, CALLS),
    (
        calls.decode_step_answer,
        st.builds(
            StepAnswer,
            items=st.lists(RAW, max_size=3),
            reward=FINITE,
            terminated=st.booleans(),
            truncated=st.booleans(),
        ),
    ),
    (
        tasks.decode_spec,
        st.builds(
            RolloutSpec,
            **(PLACE | {"run": TOKEN, "environment": TOKEN}),
            agent=TOKEN,
            row=RAW,
            agent_ref=RAW,
            model=TOKEN,
            timeout_s=FINITE,
            max_attempts=COUNT,
            max_turns=st.none() | COUNT,
            parallel_tools=st.booleans(),
            replayable=st.booleans(),
            durability=st.sampled_from(["turn", "result"]),
            return_tokens=st.booleans(),
            attempt_base=COUNT,
        ),
    ),
    (
        outcomes.decode_record,
        st.builds(
            RolloutRecord,
            **PLACE,
            outcome=OUTCOMES,
            row=RAW,
            attempt=COUNT,
            reward=st.none() | FINITE,
            numbers=st.dictionaries(TEXT, FINITE, max_size=3),
            turns=COUNT,
            tool_calls=COUNT,
            duration_s=FINITE,
            worker=TEXT,
        ),
    ),
]


@pytest.mark.parametrize(
    ("decode", "strategy"),
    MESSAGES,
    ids=["request", "reply", "model call", "model answer", "resource call", "step answer", "task", "record"],
)
def test_every_message_comes_back_as_it_was(decode: Decode, strategy: st.SearchStrategy[Any]) -> None:
    @settings(deadline=None, max_examples=50)
    @given(message=strategy)
    def check(message: Any) -> None:
        wire = encode(message)
        assert decode(wire) == message
        assert encode(decode(wire)) == wire

    check()

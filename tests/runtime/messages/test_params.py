"""Parameters, usage, and messages that come back as they were."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec
import pytest
from gym_runtime.errors import Fault
from gym_runtime.messages import calls, outcomes, responses
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
from gym_runtime.messages.outcomes import Cancelled, Completed, Failed, RolloutRecord, Truncated
from gym_runtime.messages.responses import (
    CreateParams,
    InputTokensDetails,
    Message,
    OutputTokensDetails,
    Usage,
    decode_item,
)
from gym_runtime.messages.rollout_spec import RolloutSpec
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw
from runtime.messages.examples import Decode, encode
from runtime.messages.item_samples import ITEMS, JSON


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


def test_large_input_items_are_no_copies() -> None:
    params = responses.decode_params(b'{"input":[{"role":"user","content":"' + b"x" * 2**20 + b'"}]}')
    tracemalloc.start()
    try:
        items = params.input_items()
        held_bytes, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(items) == 1
    assert max(held_bytes, most_bytes) < 2**16


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

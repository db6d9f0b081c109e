"""Short prompts, and the rows and sequences that are made of them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from gym_runtime.errors import ModelUnavailable, TaskError, UsageError
from gym_runtime.messages.call_tokens import (
    CallTokens,
    Tokens,
    WeightSpan,
    chained,
    lengthened,
    pack_ids,
    pack_logprobs,
    row_with_tokens,
    shortened,
    unpack_ids,
)
from gym_runtime.messages.outcomes import Completed, RolloutRecord, encode_record, read_record
from gym_runtime.messages.sequences import packed_sequences, token_sequences
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

ids = st.lists(st.integers(0, 3), max_size=6)
# Few different ids, so that prompts often begin alike, and sometimes with all that was before.
transcripts = st.lists(st.tuples(st.booleans(), ids, ids), max_size=6)


def calls_of(transcript: list[tuple[bool, list[int], list[int]]]) -> dict[int, Tokens]:
    """Calls on every second item, of which some continue the one before."""
    calls: dict[int, Tokens] = {}
    before: list[int] = []
    for number, (continues, prompt, sampled) in enumerate(transcript):
        prompt = before + prompt if before and continues else [1, *prompt]
        calls[2 * number] = Tokens(
            prompt_ids=pack_ids(prompt),
            generation_ids=pack_ids(sampled),
            log_probs=pack_logprobs([-0.5 * one for one in sampled]),
            weights=[WeightSpan(version="7", start=0, end=len(sampled))],
        )
        before = prompt + sampled
    return calls


def row_of(items: int) -> Raw:
    output = ",".join('{ "type" : "message","n":1 }' for _ in range(items))
    return Raw(b'{"a":[1, 2],"response":{"id":"r","output":[%b]},"reward":1.0}' % output.encode())


@given(ids, ids)
def test_a_short_prompt_has_nothing_of_what_was_before_and_can_be_made_whole(
    before: list[int], prompt: list[int]
) -> None:
    tokens, known = Tokens(prompt_ids=pack_ids(prompt), generation_ids=b"\x01\0\0\0"), pack_ids(before)
    short = shortened(tokens, known)
    assert lengthened(short, (known[:8], known[8:])) == tokens
    rest = unpack_ids(short.rest if short.same else short.prompt_ids)
    assert prompt == before[: short.same] + rest
    assert not (rest and before[short.same :]) or rest[0] != before[short.same]


def test_a_prompt_that_leaves_out_unknown_ids_is_an_error() -> None:
    with pytest.raises(ModelUnavailable, match="not known"):
        lengthened(Tokens(same=2), (b"\x01\0\0\0",))


@pytest.mark.slow
@given(transcripts)
def test_a_row_and_its_sequences_are_the_same_from_short_prompts(
    transcript: list[tuple[bool, list[int], list[int]]],
) -> None:
    calls = calls_of(transcript)
    chain = chained(calls)
    row = json.loads(bytes(row_with_tokens(row_of(2 * len(calls)), chain)))
    assert list(row) == ["a", "response", "reward"]
    for index, item in enumerate(row["response"]["output"]):
        if index in calls:
            assert item["prompt_token_ids"] == unpack_ids(calls[index].prompt_ids)
            assert item["generation_token_ids"] == unpack_ids(calls[index].generation_ids)
    if any(one.generation_ids for one in calls.values()):
        found, same = packed_sequences(chain), token_sequences(json.dumps(row).encode())
        assert len(found) == len(same)
        for one, other in zip(found, same, strict=True):
            for name in ("prompt_ids", "completion_ids", "log_probs", "mask"):
                np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
            assert (one.turns, one.weights, one.segment) == (other.turns, other.weights, other.segment)


def test_a_record_is_small_at_the_broker_and_whole_where_it_is_read() -> None:
    transcript = [(True, list(range(1000)), [7])] + [(True, [8], [9])] * 99
    calls = calls_of(transcript)
    chain = chained(calls)
    assert {one.segment for one in chain} == {0}
    record = RolloutRecord(
        run="r",
        task_index=0,
        rollout_index=0,
        environment="e",
        outcome=Completed(),
        row=row_of(200),
        tokens=chain,
    )
    stored = encode_record(record)
    read = read_record(stored)
    # A hundred prompts of a thousand ids and more have half a megabyte of JSON.
    assert len(stored) < 40_000 < 400_000 < len(read.row)
    items: list[dict[str, Any]] = json.loads(bytes(read.row))["response"]["output"]
    assert items[198]["prompt_token_ids"] == unpack_ids(calls[198].prompt_ids)
    (sequence,) = read.sequences()
    assert len(sequence.turns) == 100


def test_a_record_of_an_earlier_version_is_read_as_it_is() -> None:
    item = b'{"prompt_token_ids":[1],"generation_token_ids":[2],"generation_log_probs":[0]}'
    row = b'{"response":{"output":[%b]}}' % item
    old = (
        b'{"run":"r","task_index":0,"rollout_index":1,"environment":"e","outcome":{"type":"completed"},"row":'
        + row
        + b"}"
    )
    read = read_record(old)
    assert bytes(read.row) == row
    assert read.sequences()[0].prompt_ids.tolist() == [1]


def test_a_call_without_its_prompt_is_not_trained_on() -> None:
    """llama.cpp gives the sampled ids alone: they would be trained on as the answer to nothing."""
    tokens = Tokens(generation_ids=pack_ids([5]), log_probs=pack_logprobs([-0.5]))
    with pytest.raises(TaskError, match="output item 0 has generation_token_ids and no prompt_token_ids"):
        packed_sequences([CallTokens(item=0, tokens=tokens)])


def test_calls_without_ids_have_no_sequences() -> None:
    with pytest.raises(UsageError, match="return_token_ids"):
        packed_sequences([CallTokens(item=0, tokens=Tokens())])

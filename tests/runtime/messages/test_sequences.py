"""Records as token sequences, chat messages and plain Python."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import msgspec
import numpy as np
import pytest
from gym_runtime.errors import TaskError, UsageError
from gym_runtime.messages.outcomes import (
    Completed,
    Outcome,
    RolloutRecord,
    Truncated,
    encode_record,
    read_record,
)
from gym_runtime.messages.sequences import TokenSequence, token_sequences
from gym_testing.small_system import function_call, message, reasoning
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

CALL = function_call("add", '{"amount": 2}', "c1")
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "2"}


def turn(item: dict[str, Any], prompt: list[int], ids: list[int], **fields: Any) -> dict[str, Any]:
    tokens = {"prompt_token_ids": prompt, "generation_token_ids": ids}
    return {**item, **tokens, "generation_log_probs": [-0.5] * len(ids), **fields}


def record(
    *output: dict[str, Any], outcome: Outcome | None = None, params: dict[str, Any] | None = None
) -> RolloutRecord:
    row = {"responses_create_params": params or {"input": "hi"}, "response": {"output": list(output)}}
    return RolloutRecord(
        run="r",
        task_index=0,
        rollout_index=0,
        environment="e",
        outcome=outcome or Completed(),
        row=Raw(msgspec.json.encode(row)),
    )


def version(name: str, end: int, start: int = 0) -> dict[str, Any]:
    return {"version": name, "start": start, "end": end}


def test_turns_that_continue_each_other_are_one_sequence() -> None:
    made = record(
        turn(CALL, [1, 2], [3, 4], weight_versions=[version("step-1", 1), version("step-2", 2, 1)]),
        OUTPUT,
        turn(message("two"), [1, 2, 3, 4, 8, 9], [5], weight_versions=[version("step-2", 1)]),
    )
    (one,) = made.sequences()
    assert (one.prompt_ids.tolist(), one.completion_ids.tolist()) == ([1, 2], [3, 4, 8, 9, 5])
    assert one.mask.tolist() == [True, True, False, False, True]
    assert one.log_probs.tolist() == [-0.5, -0.5, 0.0, 0.0, -0.5]
    assert one.turns == ((0, 2), (4, 5))
    assert [(span.version, span.start, span.end) for span in one.weights] == [
        ("step-1", 0, 1),
        ("step-2", 1, 2),
        ("step-2", 4, 5),
    ]
    assert one.versions == ["step-1", "step-2"]
    assert (one.segment, one.segments, one.truncated) == (0, 1, False)
    assert [one.prompt_ids.dtype, one.completion_ids.dtype, one.log_probs.dtype, one.mask.dtype] == [
        np.int64,
        np.int64,
        np.float32,
        np.bool_,
    ]


def test_a_prompt_that_does_not_begin_with_all_ids_before_it_starts_a_segment() -> None:
    made = record(
        turn(reasoning("hm"), [1, 2], [3, 4]),
        # The item says nothing of a segment: the ids do.
        turn(CALL, [1, 2, 4], [5]),
        OUTPUT,
        turn(message("two"), [1, 2, 4, 5, 8], [6]),
        outcome=Truncated(reason="max_turns"),
    )
    first, second = made.sequences()
    assert (first.completion_ids.tolist(), first.segments, first.truncated) == ([3, 4], 2, False)
    assert (second.prompt_ids.tolist(), second.completion_ids.tolist()) == ([1, 2, 4], [5, 8, 6])
    assert (second.segment, second.segments, second.truncated) == (1, 2, True)


SOME = st.lists(st.integers(0, 9), min_size=1, max_size=3)
TURNS = st.lists(st.tuples(SOME, SOME))


@given(TURNS)
def test_each_turns_ids_stand_in_its_sequence_and_its_prompt_before_them(
    drawn: list[tuple[list[int], list[int]]],
) -> None:
    so_far: list[int] = []
    output: list[dict[str, Any]] = []
    for between, ids in drawn:
        prompt = so_far + between
        output.append(turn(message("x"), prompt, ids))
        so_far = prompt + ids
    if not output:
        return
    (one,) = record(*output).sequences()
    whole = [*one.prompt_ids.tolist(), *one.completion_ids.tolist()]
    assert whole == so_far
    for (start, end), item in zip(one.turns, output, strict=True):
        assert one.completion_ids[start:end].tolist() == item["generation_token_ids"]
        assert whole[: len(one.prompt_ids) + start] == item["prompt_token_ids"]
        assert one.mask[start:end].all()
    assert one.mask.sum() == sum(len(ids) for _, ids in drawn)


def test_log_probabilities_that_the_engine_left_out_are_nan() -> None:
    made = record(turn(message("x"), [1], [2, 3], generation_log_probs=[-1.0, None]))
    assert np.isnan(made.sequences()[0].log_probs).tolist() == [False, True]
    made = record(turn(message("x"), [1], [2, 3], generation_log_probs=[]))
    assert np.isnan(made.sequences()[0].log_probs).all()


def test_an_answer_without_a_token_is_no_sequence() -> None:
    made = record(turn(message(""), [1, 2], []))
    assert made.sequences() == []
    sent = read_record(encode_record(made))
    assert (sent.sequences(), token_sequences(sent.row)) == ([], [])


def test_a_rollout_that_failed_before_its_first_model_call_has_no_sequence() -> None:
    """What an environment says at its reset is an item of its transcript."""
    assert record({**message("Your move."), "role": "user"}).sequences() == []


def test_a_record_without_token_ids_says_how_to_have_them() -> None:
    with pytest.raises(UsageError, match="return_token_ids=True"):
        record(message("x")).sequences()
    assert record().sequences() == []


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ({**message("x"), "generation_token_ids": [1]}, "output item 0 has generation_token_ids and no"),
        (turn(message("x"), [], [1]), "output item 0 has generation_token_ids and no prompt_token_ids"),
        (turn(message("x"), [1], [2, 3], generation_log_probs=[-1.0]), "2 generated tokens and 1 log-prob"),
        (turn(message("x"), ["a"], [1]), "not a result row"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_a_damaged_row_is_named(item: dict[str, Any], words: str) -> None:
    with pytest.raises(TaskError, match=words):
        record(item).sequences()


def test_a_sequence_is_frozen() -> None:
    (one,) = token_sequences(record(turn(message("x"), [1], [2])).row)
    with pytest.raises(AttributeError):
        one.segment = 1  # pyright: ignore[reportAttributeAccessIssue]
    assert isinstance(one, TokenSequence)


def test_without_numpy_the_remedy_is_named() -> None:
    code = (
        "import sys; sys.modules['numpy'] = None\n"
        "import gym_runtime\n"
        "try: gym_runtime.training.token_sequences(b'{}')\n"
        "except gym_runtime.UsageError as error: print(error)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "pip install 'gym-runtime[numpy]'" in said


def test_the_conversation_as_chat_messages() -> None:
    made = record(
        reasoning("hm"),
        message("I count."),
        CALL,
        OUTPUT,
        message("two"),
        params={"input": [{"role": "user", "content": "hi"}], "instructions": "Be brief."},
    )
    function = {"name": "add", "arguments": '{"amount": 2}'}
    assert made.messages == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": "I count.",
            "reasoning_content": "hm",
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "2"},
        {"role": "assistant", "content": "two"},
    ]


def test_items_that_chat_does_not_have_are_kept() -> None:
    image = {"type": "input_image", "image_url": "data:x"}
    search = {"type": "web_search_call", "id": "w"}
    made = record(
        search, message("a"), message("b"), params={"input": [{"role": "user", "content": [image]}]}
    )
    assert made.messages == [
        {"role": "user", "content": [image]},
        {"role": "assistant", "content": [search]},
        {"role": "assistant", "content": "a"},
        {"role": "assistant", "content": "b"},
    ]


def test_the_response_as_plain_python() -> None:
    assert record(message("x")).response == {"output": [message("x")]}
    bare = msgspec.structs.replace(record(), row=Raw(b'{"responses_create_params": {"input": "hi"}}'))
    assert (bare.response, bare.messages) == (None, [{"role": "user", "content": "hi"}])
    assert bare.sequences() == []

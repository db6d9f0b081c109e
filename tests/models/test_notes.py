"""What adapters note of a conversation changes nothing but the work."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from gym_faces.dialects import chat_request, chat_tokens
from gym_faces.dialects.chat_request import ChatVariant
from gym_faces.dialects.dialect import ForeignAnswer
from gym_models.wire import media
from gym_runtime import TaskError
from gym_runtime.adapters import ConversationNotes
from gym_runtime.messages.call_tokens import unpack_ids
from gym_runtime.messages.calls import ModelCall, Tokens
from hypothesis import given
from hypothesis import strategies as st
from models.chat_requests import said, user
from models.model_calls import model_call
from tables import table

CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "1"}
THOUGHT = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}]}
SYSTEM = {"role": "system", "content": "Be brief."}
ITEMS = [user("hi"), said("a"), said("b", "c"), CALL, OUTPUT, THOUGHT, SYSTEM]
MODES = st.sampled_from(["reasoning_content", "think", "drop"])


@given(st.lists(st.lists(st.sampled_from(ITEMS), max_size=4), max_size=5), MODES)
def test_a_conversation_that_grows_is_converted_as_if_it_were_new(
    turns: list[list[dict[str, Any]]], reasoning: Any
) -> None:
    notes = ConversationNotes()
    items: list[dict[str, Any]] = []
    for turn in turns:
        items += turn
        call = model_call(*items) if items else ModelCall(params=model_call().params, input=[])
        dialect = ChatVariant(reasoning=reasoning)
        # Twice, as a call that is asked again.
        for _ in range(2):
            grown = chat_request.write_request(call, "m", b"{}", dialect, notes)
            assert grown == chat_request.write_request(call, "m", b"{}", dialect)
            json.loads(grown)


def test_an_item_that_is_refused_leaves_no_half_conversation() -> None:
    notes = ConversationNotes()
    chat_request.write_request(model_call(user("a")), "m", b"{}", ChatVariant(), notes)
    with pytest.raises(TaskError):
        chat_request.write_request(
            model_call(user("a"), said("b"), {"type": "odd"}), "m", b"{}", ChatVariant(), notes
        )
    whole = model_call(user("a"), said("c"))
    assert chat_request.write_request(whole, "m", b"{}", ChatVariant(), notes) == chat_request.write_request(
        whole, "m", b"{}", ChatVariant()
    )


def body(prompt: list[int], sampled: list[int], text: str = "x", spaces: bool = False) -> bytes:
    logprobs = {"content": [{"token": "t", "logprob": -1.0} for _ in sampled]}
    choice = {"message": {"role": "assistant", "content": text}, "token_ids": sampled, "logprobs": logprobs}
    answer = {"prompt_token_ids": prompt, "choices": [choice]}
    return json.dumps(answer, separators=None if spaces else (",", ":")).encode()


TURN = st.tuples(
    st.booleans(), st.lists(st.integers(0, 30), max_size=5), st.lists(st.integers(0, 30), max_size=3)
)


@given(st.lists(TURN, max_size=6), st.booleans())
def test_token_ids_are_the_same_however_much_of_them_was_read_before(
    turns: list[tuple[bool, list[int], list[int]]], spaces: bool
) -> None:
    notes = ConversationNotes()
    before: list[int] = []
    for continues, prompt, sampled in turns:
        prompt = before + prompt if continues else prompt
        answer = body(prompt, sampled, spaces=spaces)
        _, found = chat_tokens.read_answer(answer, notes)
        assert found == chat_tokens.read_answer(answer)[1]
        assert unpack_ids(found.prompt_ids) == prompt
        before = prompt + sampled


@pytest.mark.parametrize(
    "text",
    ['"prompt_token_ids":[1,2,3,4]', '\\"prompt_token_ids":[1,2,3,4', "\\", '","prompt_token_ids":[1,2,3,'],
)
def test_a_text_cannot_pass_for_token_ids(text: str) -> None:
    notes = ConversationNotes()
    chat_tokens.read_answer(body([1, 2], [3]), notes)
    answer = {"choices": [{"message": {"content": text}, "token_ids": [5]}], "prompt_token_ids": [1, 2, 3, 4]}
    raw = json.dumps(answer, separators=(",", ":")).encode()
    completion, found = chat_tokens.read_answer(raw, notes)
    assert found == Tokens(prompt_ids=found.prompt_ids, generation_ids=found.generation_ids)
    assert unpack_ids(found.prompt_ids) == [1, 2, 3, 4]
    assert json.loads(bytes(completion.choices[0].message.content)) == text


def test_a_second_field_of_that_name_is_not_mistaken() -> None:
    notes = ConversationNotes()
    chat_tokens.read_answer(body([1, 2], [3]), notes)
    choice = b'{"message":{},"token_ids":[5],"prompt_token_ids":[1,2,3,9]}'
    raw = b'{"choices":[%b],"prompt_token_ids":[1,2,3,4]}' % choice
    assert unpack_ids(chat_tokens.read_answer(raw, notes)[1].prompt_ids) == [1, 2, 3, 4]


@table("ids", ["[[1],2]", '[1,"2"]', "[1,{}]", "[1.5]", f"[{2**31}]", "[1,2", "{}", "[1,null]"])
@table("known", [False, True])
def test_malformed_ids_are_refused(ids: str, known: bool) -> None:
    notes = ConversationNotes()
    if known:
        chat_tokens.read_answer(body([1, 2], [3]), notes)
        ids = ids.replace("[", "[1,2,3,", 1)
    raw = b'{"prompt_token_ids":%b,"choices":[{"message":{},"token_ids":[5]}]}' % ids.encode()
    with pytest.raises((ForeignAnswer, msgspec.DecodeError)):
        chat_tokens.read_answer(raw, notes)
    assert notes.get("tokens") is None or known


def test_a_long_prompt_is_read_whole() -> None:
    prompt = list(range(100_000, 150_000))
    notes = ConversationNotes()
    for _ in range(3):
        _, found = chat_tokens.read_answer(body(prompt, [7, 8]), notes)
        assert unpack_ids(found.prompt_ids) == prompt
        prompt = [*prompt, 7, 8, *prompt]


@pytest.mark.parametrize(
    "where", ['"usage":{"prompt_token_ids":[1,2]}', '"extra":[{"prompt_token_ids":[1]}]']
)
def test_ids_elsewhere_in_an_answer_are_not_those_of_its_prompt(where: str) -> None:
    raw = b'{%b,"choices":[{"message":{},"token_ids":[5]}]}' % where.encode()
    assert chat_tokens.read_answer(raw)[1].prompt_ids == b""


@pytest.mark.anyio
async def test_addresses_of_earlier_turns_are_checked_again() -> None:
    notes = ConversationNotes()
    shown = {"role": "user", "content": [{"type": "input_image", "image_url": "http://10.0.0.1/a.png"}]}
    call = model_call(shown)
    await media.check(call, ("10.0.0.1",), notes)
    with pytest.raises(TaskError, match="private network"):
        await media.check(model_call(shown, user("more")), (), notes)


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["image_url", "image\\u005furl"])
async def test_an_address_beside_a_long_text_is_found(name: str) -> None:
    item = json.dumps({"role": "user", "content": "x" * 10_000})[:-1] + f',"{name}":"http://127.0.0.1/"}}'
    call = model_call()
    hidden = ModelCall(params=call.params, input=[type(call.params)(item.encode())])
    with pytest.raises(TaskError, match=r"127\.0\.0\.1"):
        await media.check(hidden, (), ConversationNotes())

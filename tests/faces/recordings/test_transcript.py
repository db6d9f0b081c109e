"""From a harness's calls to one transcript, and when two conversations are the same."""

from __future__ import annotations

import json
from threading import get_ident
from typing import Any

import anyio
import pytest
from gym_faces.recordings.canonical import fold
from gym_faces.recordings.transcript import Transcript, off_loop
from gym_runtime.messages.calls import Tokens
from gym_testing.background import hosting
from msgspec import Raw
from tables import table

SYSTEM = {"role": "system", "content": "be brief"}
USER = {"role": "user", "content": "weather?"}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "rain"}


def said(text: str, **more: Any) -> dict[str, Any]:
    parts = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "role": "assistant", "id": f"m-{text}", "content": parts, **more}


def call(arguments: str = '{"a":  1}', call_id: str = "c1", **more: Any) -> dict[str, Any]:
    fields = {"type": "function_call", "call_id": call_id, "name": "f", "arguments": arguments, "id": "fc"}
    return {**fields, **more}


def thought(text: str) -> dict[str, Any]:
    return {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": text}]}


def raws(*items: Any) -> list[Raw]:
    return [Raw(json.dumps(item).encode()) for item in items]


def plain(raws: list[Raw]) -> list[Any]:
    return [json.loads(bytes(raw)) for raw in raws]


# -- sameness ------------------------------------------------------------------------------------------

SAME = [
    ([USER], [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "weather?"}]}]),
    ([SYSTEM], [{"role": "developer", "content": "be brief"}]),
    ([said("a"), said("b")], [said("ab")]),
    ([thought("hm"), said("a")], [said("a")]),
    ([said("")], []),
    ([call()], [call('{"a":1}', id=None, status="completed")]),
    ([call("")], [call("{}")]),
    ([call('{"a": 1.0, "b": [2e3, -0.0, 1.5]}')], [call('{"a":1,"b":[2000,0,1.5]}')]),
    ([call(), said("a")], [said("a"), call()]),
    ([RESULT], [{**RESULT, "output": [{"type": "input_text", "text": "rain"}], "id": "o"}]),
    ([said("a", generation_token_ids=[1])], [said("a")]),
]
DIFFERENT = [
    ([USER], [SYSTEM]),
    ([said("a")], [{"role": "user", "content": "a"}]),
    ([call()], [call('{"a": 2}')]),
    ([call()], [call(call_id="c2")]),
    ([call("{")], [call("{}")]),
    ([RESULT], [{**RESULT, "output": "sun"}]),
    ([thought("a")], [thought("b")]),
    ([said("a"), USER, said("b")], [said("ab"), USER]),
    ([{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}], [USER]),
    ([{"type": "web_search_call", "id": "x", "action": 1}], [{"type": "web_search_call", "action": 2}]),
]


@table(("one", "other"), SAME)
def test_the_same_in_other_bytes(one: list[Any], other: list[Any]) -> None:
    assert fold(raws(*one)) == fold(raws(*other))


@table(("one", "other"), DIFFERENT)
def test_not_the_same(one: list[Any], other: list[Any]) -> None:
    assert fold(raws(*one)) != fold(raws(*other))


# -- the transcript ------------------------------------------------------------------------------------


def tokens(number: int) -> Tokens:
    return Tokens(generation_ids=bytes([number]))


def test_a_conversation_of_three_calls() -> None:
    transcript = Transcript()
    transcript.add(raws(SYSTEM, USER), raws(thought("hm"), call()), tokens(1))
    transcript.add(raws(SYSTEM, USER, call(), RESULT), raws(said("rain")), tokens(2))
    transcript.add(raws(SYSTEM, USER, call(), RESULT, said("rain"), USER), raws(said("bye")), tokens(3))
    assert plain(transcript.input) == [SYSTEM, USER]
    assert plain(transcript.output) == [thought("hm"), call(), RESULT, said("rain"), USER, said("bye")]
    assert {index: one.generation_ids[0] for index, one in transcript.tokens.items()} == {1: 1, 3: 2, 5: 3}


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_reply_of_thousands_of_calls_is_read_beside_the_event_loop() -> None:
    transcript, passes = Transcript(), 0

    async def count_passes() -> None:
        nonlocal passes
        while True:
            await anyio.sleep(0.001)
            passes += 1

    made = raws(*(call(call_id=f"c{number}") for number in range(8000)))
    results = raws(*({**RESULT, "call_id": f"c{number}"} for number in range(8000)))
    async with hosting() as tasks:
        tasks.start_soon(count_passes)
        assert await off_loop([*raws(USER), *made], lambda: transcript.add(raws(USER), made, tokens(1)))
        whole = [*raws(USER), *made, *results]
        assert await off_loop(whole, lambda: transcript.restore(whole)) == whole
        await off_loop(whole, lambda: transcript.prefix(whole))
        assert await off_loop(whole, lambda: transcript.add(whole, raws(said("done")), tokens(2)))
    # Each of the four leaves the loop several.
    assert passes >= 8
    assert transcript.output == [*made, *results, *raws(said("done"))]


@pytest.mark.anyio
async def test_a_long_item_is_read_beside_the_event_loop_too() -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64," + "A" * 2**20}
    short, long = raws(USER), raws({"role": "user", "content": [image]})
    assert await off_loop(short, get_ident) == get_ident()
    assert await off_loop(long, get_ident) != get_ident()


def test_side_questions_stay_out() -> None:
    transcript = Transcript()
    title = {"role": "user", "content": "A title for this?"}
    transcript.add(raws(title), raws(said("Weather")), tokens(9))
    transcript.add(raws(USER), raws(call()), tokens(1))
    assert plain(transcript.output) == [call()]  # the latest of two that are as long
    transcript.add(raws(USER, call(), RESULT), raws(said("rain")), tokens(2))
    transcript.add(raws(title, RESULT), raws(said("Rain")), tokens(8))
    assert plain(transcript.input) == [USER]
    assert plain(transcript.output) == [call(), RESULT, said("rain")]
    assert sorted(transcript.tokens) == [0, 2]


def test_a_call_that_was_repeated_is_a_branch() -> None:
    """A client that lost an answer asks again, and goes on from the second one."""
    transcript = Transcript()
    transcript.add(raws(USER), raws(call()))
    transcript.add(raws(USER, call(), RESULT), raws(said("lost")))
    transcript.add(raws(USER, call(), RESULT), raws(said("found")))
    assert plain(transcript.output) == [call(), RESULT, said("found")]
    transcript.add(raws(USER, call(), RESULT, said("lost"), USER), raws(said("on")))
    assert plain(transcript.output) == [call(), RESULT, said("lost"), USER, said("on")]


def test_a_history_that_was_cut_begins_anew() -> None:
    transcript = Transcript()
    transcript.add(raws(SYSTEM, USER), raws(said("a")))
    summary = {"role": "user", "content": "So far: a. Go on."}
    transcript.add(raws(SYSTEM, summary), raws(said("b")))
    transcript.add(raws(SYSTEM, summary, said("b"), USER), raws(said("c")))
    assert plain(transcript.input) == [SYSTEM, summary]
    assert plain(transcript.output) == [said("b"), USER, said("c")]


def test_answers_may_come_in_another_order() -> None:
    transcript = Transcript()
    transcript.add(raws(USER), raws(call()))
    one, two = {"role": "user", "content": "one"}, {"role": "user", "content": "two"}
    transcript.add(raws(two), raws(said("2")))
    transcript.add(raws(one), raws(said("1")))
    transcript.add(raws(USER, call(), RESULT), raws(said("rain")))
    assert plain(transcript.output) == [call(), RESULT, said("rain")]


def test_the_models_own_items_are_restored_to_the_byte() -> None:
    transcript = Transcript()
    own = raws(thought("hm"), said("Let me see."), call(), call('{"a": ', "c2"))
    transcript.add(raws(USER), own)
    back = raws(
        USER,
        {"role": "assistant", "content": "Let me see."},
        call('{"a":1}', id=None),
        call('{"arguments":"{\\"a\\": "}', "c2", id=None),  # as the Messages API must write it
        RESULT,
    )
    restored = transcript.restore(back)
    assert [bytes(raw) for raw in restored] == [bytes(raw) for raw in [back[0], *own[1:], back[-1]]]
    transcript.add(restored, raws(said("x")))
    assert plain(transcript.output)[-2:] == [RESULT, said("x")]
    assert len(transcript.output) == 6


def test_thoughts_keep_their_signatures_and_those_without_words_are_left_alone() -> None:
    transcript = Transcript()
    signed = thought("hm") | {"id": "r1", "encrypted_content": "c"}
    silent = [thought("") | {"summary": [], "id": f"s{part}", "encrypted_content": part} for part in "ab"]
    transcript.add(raws(USER), raws(signed, silent[0], call()))
    transcript.add(raws(USER, signed, silent[0], call(), RESULT), raws(silent[1], said("x")))
    back = [USER, thought("hm"), silent[0], call(), RESULT, silent[1], said("x"), USER]
    assert plain(transcript.restore(raws(*back))) == [USER, signed, *back[2:]]


def test_what_the_model_said_twice_keeps_both_ids() -> None:
    transcript = Transcript()
    ok, other = said("ok"), said("ok", id="m-2")
    transcript.add(raws(USER), raws(ok))
    transcript.add(raws(USER, ok, USER), raws(other))
    bare = {"role": "assistant", "content": "ok"}
    restored = transcript.restore(raws(USER, bare, USER, bare, USER, bare))
    assert plain(restored) == [USER, ok, USER, other, USER, bare]


def test_an_id_tells_which_of_two_equal_answers_is_meant() -> None:
    transcript = Transcript()
    first = [thought("hm") | {"id": "r-1", "encrypted_content": "1"}, said("ok")]
    again = [thought("hm") | {"id": "r-2", "encrypted_content": "2"}, said("ok", id="m-2")]
    transcript.add(raws(USER), raws(*first))
    transcript.add(raws(USER, *first, USER), raws(*again))
    # The program has left the first answer out, as where it makes a long conversation shorter.
    assert plain(transcript.restore(raws(USER, *again, USER))) == [USER, *again, USER]
    unsigned = [{**again[0], "encrypted_content": None}, again[1]]
    assert plain(transcript.restore(raws(USER, *unsigned, USER))) == [USER, *again, USER]

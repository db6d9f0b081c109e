"""The tool loop: conversations, what tools answer, limits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from agents.kitchen import ADD_1, play
from gym_agents.tool_loop import MAX_REASONING_ONLY
from gym_runtime.messages.outcomes import Completed, Outcome, Truncated
from gym_testing.small_system import (
    answer,
    function_call,
    message,
    reasoning,
)
from tables import table

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


INCOMPLETE = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}


FILTERED = {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}


NO_REASON: dict[str, Any] = {"status": "incomplete", "incomplete_details": {}}


ADD_2 = function_call("add", '{"amount": 2}', "c2")


CONVERSATIONS: dict[str, tuple[Sequence[Any], Outcome, list[Any]]] = {
    "a message ends it": ([answer("hi"), answer("not asked")], Completed(), ["hi"]),
    "an empty message ends it": ([answer(message("")), answer("not asked")], Completed(), [""]),
    "several messages in one answer end it": ([answer("a", "b")], Completed(), ["a", "b"]),
    "reasoning before a message ends it": ([answer(reasoning("hm"), "hi")], Completed(), ["…", "hi"]),
    "tool calls are executed before the model is asked again": (
        [answer(ADD_1), answer("done")],
        Completed(),
        ["add()", ("c1", '{"amount":1}'), "done"],
    ),
    "a message beside a tool call does not end it": (
        [answer("let me add", ADD_1), answer("done")],
        Completed(),
        ["let me add", "add()", ("c1", '{"amount":1}'), "done"],
    ),
    "the outputs of one turn follow all of its items, in the calls' order": (
        [answer(reasoning("hm"), ADD_2, ADD_1), answer("done")],
        Completed(),
        ["…", "add()", "add()", ("c2", '{"amount":2}'), ("c1", '{"amount":1}'), "done"],
    ),
    "calls of several turns": (
        [answer(ADD_1), answer(ADD_2), answer("done")],
        Completed(),
        ["add()", ("c1", '{"amount":1}'), "add()", ("c2", '{"amount":2}'), "done"],
    ),
    "an incomplete answer ends it, and its calls are not executed": (
        [answer(ADD_1), answer("so", ADD_2, **INCOMPLETE), answer("not asked")],
        Truncated(reason="max_output_tokens"),
        ["add()", ("c1", '{"amount":1}'), "so", "add()"],
    ),
    "a filtered answer ends it": ([answer(**FILTERED)], Truncated(reason="content_filter"), []),
    "an answer that is incomplete without saying why ends it": (
        [answer("so", **NO_REASON)],
        Truncated(reason="incomplete"),
        ["so"],
    ),
    "reasoning only has the model asked again": (
        [answer(reasoning("1")), answer(reasoning("2")), answer("done")],
        Completed(),
        ["…", "…", "done"],
    ),
    "an empty answer has the model asked again": ([answer(), answer("done")], Completed(), ["done"]),
    "reasoning only is bounded": (
        [answer(reasoning("1"))],
        Truncated(reason="reasoning_only"),
        ["…"] * MAX_REASONING_ONLY,
    ),
    "a tool call starts the count of reasoning-only answers anew": (
        [
            *[answer(reasoning("1"))] * (MAX_REASONING_ONLY - 1),
            answer(ADD_1),
            *[answer(reasoning("1"))] * (MAX_REASONING_ONLY - 1),
            answer("done"),
        ],
        Completed(),
        [
            *["…"] * (MAX_REASONING_ONLY - 1),
            "add()",
            ("c1", '{"amount":1}'),
            *["…"] * (MAX_REASONING_ONLY - 1),
            "done",
        ],
    ),
    "somebody else's message does not end it": (
        [answer({"type": "message", "role": "user", "content": "me"}), answer("done")],
        Completed(),
        ["me", "done"],
    ),
}


@table("conversation", CONVERSATIONS)
async def test_a_conversation(conversation: str) -> None:
    turns, outcome, output = CONVERSATIONS[conversation]
    played = await play(*turns)
    assert played.record.outcome == outcome
    assert played.output == output
    assert played.row["seen"] == len(output)


TOOL_ANSWERS = {
    "a string is JSON": (function_call("say", '{"text": "hé"}'), '"hé"'),
    "text is as it is": (function_call("write"), "as it is"),
    "nothing is null": (function_call("nothing"), "null"),
    "an unknown tool": (function_call("fly"), '{"detail":"Not Found"}'),
    "a method that is no tool": (function_call("verify"), '{"detail":"Not Found"}'),
    "a tool that says no": (function_call("refuse"), "ask politely"),
    "a tool that raises": (function_call("crash"), "Internal Server Error"),
}


@pytest.mark.parametrize("case", TOOL_ANSWERS)
async def test_what_a_tool_answers(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    call, expected = TOOL_ANSWERS[case]
    played = await play(answer(call), answer("done"))
    assert played.record.outcome == Completed()
    assert played.row["response"]["output"][1] == {
        "type": "function_call_output",
        "call_id": call["call_id"],
        "output": expected,
    }


@table("arguments", ["", "{", "{'a': 1}", '{"a": 1} and', "None", '{"a": "\n"}', "{" * 300])
async def test_arguments_that_are_not_json_are_answered_with_pythons_words(arguments: str) -> None:
    with pytest.raises(ValueError) as problem:  # noqa: PT011 - whatever it says
        json.loads(arguments)
    played = await play(answer(function_call("add", arguments)), answer("done"))
    output = played.row["response"]["output"][1]["output"]
    assert output == json.dumps({"error": f"Invalid tool call arguments: {problem.value}"})
    assert played.record.outcome == Completed()
    assert played.record.tool_calls == 1
    assert played.ledger == ["open"]  # by the verifier


@pytest.mark.parametrize("arguments", ["[" * 5000, '{"a":' * 5000 + "1" + "}" * 5000])
async def test_arguments_of_any_depth_are_answered(arguments: str) -> None:
    played = await play(answer(function_call("add", arguments)), answer("done"))
    assert played.record.outcome == Completed()
    said = played.row["response"]["output"][1]["output"]
    assert "rguments" in said or "detail" in said  # newer versions of Python read what is that deep


@table("arguments", ["{}", '{"amount": "many"}', "[1]", "null", '"text"', "NaN"])
async def test_arguments_that_do_not_fit_are_answered_as_a_422_would_be(arguments: str) -> None:
    played = await play(answer(function_call("add", arguments)), answer("done"))
    detail = json.loads(played.row["response"]["output"][1]["output"])["detail"]
    assert detail[0]["msg"]
    assert played.ledger == ["open"]


async def test_after_the_last_turn_its_tools_are_still_executed() -> None:
    played = await play(answer(ADD_1), answer(ADD_2), answer("not asked"), max_turns=2)
    assert played.record.outcome == Truncated(reason="max_turns")
    assert played.output == ["add()", ("c1", '{"amount":1}'), "add()", ("c2", '{"amount":2}')]
    assert len(played.engine.calls.items) == played.record.turns == 2


async def test_a_message_in_the_last_turn_is_no_truncation() -> None:
    played = await play(answer(ADD_1), answer("done"), max_turns=2)
    assert played.record.outcome == Completed()


async def test_without_a_limit_it_goes_on() -> None:
    played = await play(*[answer(ADD_1)] * 60, answer("done"))
    assert played.record.outcome == Completed()
    assert (played.record.turns, played.record.tool_calls) == (61, 60)

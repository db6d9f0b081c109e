"""The tool loop, conversation by conversation, against the rules of NeMo Gym's simple agent."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import anyio
import msgspec
import pytest
from gym_agents.tool_loop import MAX_REASONING_ONLY
from gym_runtime import Environment, Reply, Session, Task, Text, ToolError, Verdict, clock, tool
from gym_runtime.messages.outcomes import Completed, Outcome, RolloutRecord, Truncated
from gym_runtime.testing.background import Mailbox
from gym_runtime.testing.small_system import (
    Engine,
    Item,
    answer,
    environment,
    function_call,
    message,
    reasoning,
    rollout_spec,
    small_system,
)
from gym_runtime.testing.virtual_clock import BACKEND

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return BACKEND


class Kitchen(Session[Task]):
    """Tools that do well, badly, and slowly."""

    ledger: Mailbox[str]

    async def open(self) -> None:
        self.ledger.put("open")

    @tool
    def add(self, amount: int) -> dict[str, int]:
        self.ledger.put("add")
        return {"amount": amount}

    @tool
    def say(self, text: str) -> str:
        return text

    @tool
    def write(self) -> Text:
        return Text("as it is")

    @tool
    def nothing(self) -> None:
        return None

    @tool
    def refuse(self) -> str:
        raise ToolError("ask politely")

    @tool
    def crash(self) -> str:
        raise ZeroDivisionError("in the tool")

    @tool
    async def cook(self, minutes: float) -> float:
        await anyio.sleep(60 * minutes)
        self.ledger.put("cooked")
        return minutes

    async def verify(self, reply: Reply) -> Verdict:
        return Verdict(1.0, fields={"seen": len(reply.items)})


class Played:
    """A rollout that was played to its end."""

    def __init__(self, record: RolloutRecord, engine: Engine, ledger: Mailbox[str]) -> None:
        self.record = record
        self.row: dict[str, Any] = msgspec.json.decode(record.row)
        self.engine = engine
        self.ledger = ledger.items

    @property
    def output(self) -> list[Any]:
        """The transcript, shortened: texts of messages, names of calls, outputs of tools."""
        return [short(item) for item in self.row["response"]["output"]]

    def inputs(self) -> list[list[Any]]:
        """What the model was shown at each call."""
        return [
            [short(msgspec.json.decode(item)) for item in call.input] for call, _ in self.engine.calls.items
        ]


def short(item: Item) -> Any:
    match item.get("type", "message"):
        case "message":
            content = item["content"]
            return content if isinstance(content, str) else content[0]["text"]
        case "reasoning":
            return "…"
        case "function_call":
            return f"{item['name']}()"
        case _:
            return (item["call_id"], item["output"])


async def play(*turns: Any, parallel_tools: bool = False, row: bytes = b"", **more: Any) -> Played:
    ledger: Mailbox[str] = Mailbox()
    kitchen = type("NotedKitchen", (Kitchen,), {"ledger": ledger})
    engine = Engine(*turns)
    row = row or b'{"responses_create_params": {"input": "cook"}}'
    async with small_system() as system:
        await system.add_resource(environment(Environment(resource=kitchen, description=""), "sample"))
        await system.add_model(engine)
        await system.add_agent()
        (record,) = await system.make(rollout_spec(row, parallel_tools=parallel_tools, **more))
    return Played(record, engine, ledger)


INCOMPLETE = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
FILTERED = {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}
NO_REASON: dict[str, Any] = {"status": "incomplete", "incomplete_details": {}}
ADD_1 = function_call("add", '{"amount": 1}', "c1")
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


@pytest.mark.parametrize("conversation", CONVERSATIONS)
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


@pytest.mark.parametrize("arguments", ["", "{", "{'a': 1}", '{"a": 1} and', "None", '{"a": "\n"}', "{" * 300])
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


@pytest.mark.parametrize("arguments", ["{}", '{"amount": "many"}', "[1]", "null", '"text"', "NaN"])
async def test_arguments_that_do_not_fit_are_answered_as_a_422_would_be(arguments: str) -> None:
    played = await play(answer(function_call("add", arguments)), answer("done"))
    detail = json.loads(played.row["response"]["output"][1]["output"])["detail"]
    assert detail[0]["msg"]
    assert played.ledger == ["open"]


# -- limits -------------------------------------------------------------------------------------------


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


# -- what is sent and what is kept ----------------------------------------------------------------------


async def test_each_call_of_the_model_shows_it_everything_so_far() -> None:
    played = await play(answer(reasoning("hm"), ADD_1), answer("done"))
    assert played.inputs() == [["cook"], ["cook", "…", "add()", ("c1", '{"amount":1}')]]


async def test_the_rows_settings_go_to_the_model_and_its_input_only_once() -> None:
    row = msgspec.json.encode(
        {
            "responses_create_params": {
                "input": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "cook"}],
                "temperature": 0.5,
                "tools": [{"type": "function", "name": "add", "parameters": {}}],
            }
        }
    )
    played = await play(answer("done"), row=row)
    ((call, _),) = played.engine.calls.items
    params = msgspec.json.decode(call.params)
    assert (params["temperature"], params["tools"][0]["name"], params["input"]) == (0.5, "add", [])
    assert played.inputs() == [["be brief", "cook"]]


async def test_the_response_is_the_last_one_with_all_items_and_all_usage() -> None:
    played = await play(
        answer(ADD_1, id="first", model="a"), answer("done", id="last", model="b", metadata={"k": "v"})
    )
    response = played.row["response"]
    assert (response["id"], response["model"], response["metadata"]) == ("last", "b", {"k": "v"})
    assert played.output == ["add()", ("c1", '{"amount":1}'), "done"]
    assert response["usage"] == {
        "input_tokens": 20,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 22,
    }


async def test_items_are_kept_to_the_byte() -> None:
    strange: Item = {
        "type": "message",
        "role": "assistant",
        "new_field": {"b": 1, "a": [None]},
        "content": [],
    }
    played = await play(answer(strange))
    assert json.dumps(played.row["response"]["output"][0]) == json.dumps(strange)


# -- tools at once --------------------------------------------------------------------------------------


def cooking(*minutes: float) -> Any:
    return answer(
        *[
            function_call("cook", json.dumps({"minutes": each}), f"c{place}")
            for place, each in enumerate(minutes)
        ]
    )


async def test_tools_run_one_after_the_other_unless_the_environment_allows_more() -> None:
    started_s = clock.now()
    played = await play(cooking(3, 1, 2), answer("done"))
    assert 360 <= clock.now() - started_s < 365
    assert played.output[3:6] == [("c0", "3.0"), ("c1", "1.0"), ("c2", "2.0")]


async def test_tools_at_once_keep_their_order_and_share_one_session() -> None:
    started_s = clock.now()
    played = await play(cooking(3, 1, 2), answer("done"), parallel_tools=True)
    assert 180 <= clock.now() - started_s < 185
    assert played.output[3:6] == [("c0", "3.0"), ("c1", "1.0"), ("c2", "2.0")]
    assert played.ledger == ["open", "cooked", "cooked", "cooked"]
    assert played.record.tool_calls == 3


async def test_what_goes_wrong_in_one_of_several_tools_is_its_answer_only(
    capsys: pytest.CaptureFixture[str],
) -> None:
    turn = answer(function_call("crash"), function_call("add", "{"), function_call("write"))
    played = await play(turn, answer("done"), parallel_tools=True)
    outputs = [output for _, output in played.output[3:6]]
    assert outputs[0] == "Internal Server Error"
    assert "Invalid tool call arguments" in outputs[1]
    assert outputs[2] == "as it is"
    assert played.record.outcome == Completed()


async def test_losing_the_session_during_tools_at_once_makes_a_new_attempt() -> None:
    ledger: Mailbox[str] = Mailbox()
    kitchen = type("NotedKitchen", (Kitchen,), {"ledger": ledger})
    loaded = environment(Environment(resource=kitchen, description=""), "sample")
    async with small_system() as system:
        await system.add_resource(loaded)
        await system.add_model(Engine(cooking(1, 2), answer("done")))
        await system.add_agent()
        await system.enqueue(
            rollout_spec(b'{"responses_create_params": {}}', parallel_tools=True, replayable=False)
        )
        await ledger.until(1)
        await anyio.sleep(1)
        await system.add_resource(loaded, name="resource-2")
        system.kill("resource-1")
        (record,) = await system.records(1)
    assert (record.outcome, record.attempt) == (Completed(), 2)

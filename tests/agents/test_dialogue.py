"""Conversations with a simulated user: who speaks when, what each sees, and what ends it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from gym_agents.dialogue import GREETING, Agent
from gym_runtime import Environment, Reply, Role, Session, Task, Verdict, tool
from gym_runtime.errors import ModelUnavailable
from gym_runtime.messages.outcomes import Completed, Failed, Outcome, RolloutRecord, Truncated
from gym_testing.small_system import (
    Engine,
    answer,
    environment,
    function_call,
    message,
    reasoning,
    rollout_spec,
    small_system,
)

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]

STOP = "###STOP###"
CALL = function_call("look")


class Shelf(Session[Task]):
    @tool
    def look(self) -> str:
        "Look at the secret shelf."
        return "a red book"

    async def verify(self, reply: Reply) -> Verdict:
        return Verdict(float(len(reply.messages)))


ROW: dict[str, Any] = {
    "responses_create_params": {"input": [{"role": "system", "content": "You are a librarian."}]},
    "simulated_user": {"persona": "a child", "goal": "Get a red book."},
}


class Played:
    """One rollout: its record, and what the user was asked."""

    def __init__(self, record: RolloutRecord, user: Engine) -> None:
        self.record = record
        self.heard = [
            [(item["role"], item["content"]) for item in map(msgspec.json.decode, call.input)]
            for call, _ in user.calls.items
        ]
        self.params = [msgspec.json.decode(call.params) for call, _ in user.calls.items]

    @property
    def outcome(self) -> Outcome:
        return self.record.outcome

    @property
    def said(self) -> list[str]:
        """The transcript: who said what."""
        output = msgspec.json.decode(self.record.row)["response"]["output"]
        return [f"{item.get('role', item.get('type'))}: {_text(item)}" for item in output]


def _text(item: dict[str, Any]) -> str:
    content = item.get("content") or item.get("output") or item.get("name") or ""
    return content if isinstance(content, str) else content[0]["text"]


async def play(policy: Engine, user: Engine, *, row: dict[str, Any] = ROW, **more: Any) -> Played:
    async with small_system() as system:
        await system.add_agent({"dialogue": Agent()})
        await system.add_model(policy)
        await system.add_model(user, name="user-1", pool="user")
        await system.add_resource(
            environment(Environment(resource=Shelf, description="d", roles=(Role(name="user"),)))
        )
        line = msgspec.json.encode(row)
        spec = rollout_spec(line, agent="dialogue", roles={"user": "user"}, **more)
        (record,) = await system.make(spec)
    return Played(record, user)


async def test_each_sees_what_is_said_and_not_what_the_other_is_told() -> None:
    policy = Engine(answer(CALL), answer("Here it is."), answer("Good bye."))
    user = Engine(answer("A red book, please."), answer("Thanks!"), answer(f"{STOP}"))
    played = await play(policy, user)
    assert played.outcome == Completed()
    assert played.said == [
        "user: A red book, please.",
        "function_call: look",
        'function_call_output: "a red book"',
        "assistant: Here it is.",
        "user: Thanks!",
        "assistant: Good bye.",
    ]
    person = played.heard[0][0]
    assert person[0] == "system"
    assert "a child" in person[1]
    assert "Get a red book." in person[1]
    assert STOP in person[1]
    assert [heard[1:] for heard in played.heard] == [
        [("user", GREETING)],
        [("user", GREETING), ("assistant", "A red book, please."), ("user", "Here it is.")],
        [
            ("user", GREETING),
            ("assistant", "A red book, please."),
            ("user", "Here it is."),
            ("assistant", "Thanks!"),
            ("user", "Good bye."),
        ],
    ]
    for call, _ in policy.calls.items:
        assert "a child" not in str(call.input)
    assert played.record.roles["user"].calls == 3


async def test_a_row_may_hold_the_beginning_of_the_conversation() -> None:
    conversation = [
        {"role": "user", "content": "Hello."},
        {"role": "assistant", "content": "What do you want?"},
        {"role": "user", "content": "A book."},
    ]
    row = {**ROW, "responses_create_params": {"input": conversation}}
    played = await play(Engine(answer("Which one?")), Engine(answer(f"None. {STOP}")), row=row)
    assert played.said == ["assistant: Which one?"]
    assert played.heard[0][1:] == [
        ("user", GREETING),
        ("assistant", "Hello."),
        ("user", "What do you want?"),
        ("assistant", "A book."),
        ("user", "Which one?"),
    ]


async def test_what_is_said_before_a_call_is_heard_too() -> None:
    policy = Engine(answer(message("One moment."), CALL), answer("Here."))
    played = await play(policy, Engine(answer("A book."), answer(STOP)))
    assert played.heard[1][-1] == ("user", "One moment.\n\nHere.")


@pytest.mark.parametrize(
    ("scenario", "more", "policy", "outcome", "messages"),
    [
        ({"max_messages": 3}, {}, [answer("Well.")], Truncated(reason="max_messages"), 3),
        ({}, {"max_turns": 2}, [answer("Well.")], Truncated(reason="max_turns"), 2),
        ({}, {"max_turns": 2}, [answer(CALL)], Truncated(reason="max_turns"), 1),
        ({}, {}, [answer(reasoning("hm"))], Truncated(reason="reasoning_only"), 1),
        ({"stop": ["bye", "no more"]}, {}, [answer("Well."), answer("Bye?")], Completed(), 2),
    ],
)
async def test_limits_and_signals_end_it(
    scenario: dict[str, Any], more: dict[str, Any], policy: list[Any], outcome: Outcome, messages: int
) -> None:
    row = {**ROW, "simulated_user": {"goal": "g", **scenario}}
    user = Engine(answer("One."), answer("Two."), answer("There is no more to say."))
    if "stop" not in scenario:
        user = Engine(answer("More."))
    played = await play(Engine(*policy), user, row=row, timeout_s=1e6, **more)
    assert played.outcome == outcome
    reason = outcome.reason if isinstance(outcome, Truncated) else "no more"
    assert msgspec.json.decode(played.record.row)["response"]["metadata"] == {"stop_reason": reason}
    assert sum(line.startswith("user: ") for line in played.said) == messages


async def test_the_first_message_ends_nothing_and_thoughts_are_not_said() -> None:
    user = Engine(answer(f"<think>I am a child.</think>A book.{STOP}"), answer(STOP))
    played = await play(Engine(answer("Here.")), user)
    assert played.said == ["user: A book.", "assistant: Here."]


async def test_a_user_that_says_nothing_is_asked_again_and_then_fails() -> None:
    user = Engine(answer(""), answer(), answer("A book."), answer(STOP))
    played = await play(Engine(answer("Here.")), user)
    assert (played.outcome, len(user.calls.items)) == (Completed(), 4)
    played = await play(Engine(answer("Here.")), Engine(answer("")), max_attempts=1)
    assert isinstance(played.outcome, Failed)
    assert (played.outcome.fault.stage, played.record.reward) == ("user", None)


async def test_a_user_that_fails_is_no_reward_and_what_was_said_is_not_said_again() -> None:
    user = Engine(
        by_attempt={1: [answer("A book."), ModelUnavailable("503", retry_after_s=99.0)], 2: [answer(STOP)]}
    )
    policy = Engine(answer("Here."))
    played = await play(policy, user, timeout_s=60.0)
    assert (played.outcome, played.record.attempt, len(policy.calls.items)) == (Completed(), 2, 1)
    assert played.said == ["user: A book.", "assistant: Here."]


async def test_the_row_says_how_the_user_samples() -> None:
    scenario = {"goal": "g", "sampling": {"temperature": 0.2}}
    played = await play(Engine(answer("Yes?")), Engine(answer(STOP)), row={**ROW, "simulated_user": scenario})
    assert {params["temperature"] for params in played.params} == {0.2}


@pytest.mark.parametrize(
    ("scenario", "message"),
    [
        (None, "simulated_user"),
        ({"persona": "p"}, "missing required field `goal`"),
        ({"goal": "g", "stop": []}, "stop"),
        ({"goal": "g", "max_mesages": 3}, "max_mesages"),
    ],
)
async def test_a_row_without_a_user_is_refused_before_a_model_is_asked(scenario: Any, message: str) -> None:
    policy = Engine(answer("Yes?"))
    played = await play(policy, Engine(answer(STOP)), row={**ROW, "simulated_user": scenario})
    assert isinstance(played.outcome, Failed)
    assert (played.outcome.fault.kind, len(policy.calls.items)) == ("task", 0)
    assert message in played.outcome.fault.message

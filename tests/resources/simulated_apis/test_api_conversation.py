"""Conversations on simulated services, step by step."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from gym_resources.simulated_apis import api_conversation
from gym_runtime.environment import catalogue, examples
from gym_runtime.environment.replaying import session_of
from gym_runtime.environment.verdict import Verdict, make_response
from gym_runtime.messages.calls import StepAnswer
from resources.judging import ROWS, call, judge
from resources.simulated_apis.test_played_calls import INSTALLED

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("one_loop")]
NAME = "bfcl_multi_turn"
HIDDEN, LONG = (ROWS / f"{NAME}.jsonl").read_bytes().splitlines()


class Played:
    """A session and what it is asked."""

    def __init__(self, session: Any) -> None:
        self.session = session

    async def step(self, *items: dict[str, Any] | str) -> StepAnswer:
        return await catalogue.environment(NAME).resource.step(self.session, make_response(*items))

    async def said(self, *items: dict[str, Any] | str) -> list[str]:
        items_said = [json.loads(bytes(item)) for item in (await self.step(*items)).items]
        return [item.get("output") or item["content"] for item in items_said]

    async def verdict(self) -> Verdict:
        found = await catalogue.environment(NAME).resource.verify(self.session, make_response("Done."))
        assert isinstance(found, Verdict)
        return found


@asynccontextmanager
async def playing(row: bytes) -> AsyncGenerator[Played]:
    resource = catalogue.environment(NAME).resource
    async with session_of(resource, row) as session:
        yield Played(session)


async def test_a_function_is_offered_when_its_turn_comes() -> None:
    async with playing(HIDDEN) as played:
        moored = await played.said(call("moor", {"ship": "Frisia", "berth": 1}))
        assert moored == ['{"moored": "Frisia", "berth": 1}']
        second = await played.step("Moored.")
        assert (json.loads(bytes(second.items[0]))["content"], second.tools) == (
            "She pays for two nights.",
            [],
        )
        third = await played.step("I have no function for that.")
        assert json.loads(bytes(third.items[0]))["content"] == api_conversation.MORE_FUNCTIONS
        assert [json.loads(bytes(tool))["name"] for tool in third.tools] == ["charge"]
        assert await played.said(call("charge", {"ship": "Frisia", "nights": 2})) == [
            '{"ship": "Frisia", "owes": 50}'
        ]
        assert (await played.step("She owes 50.")).terminated
        assert (await played.verdict()).reward == 1.0


async def test_a_conversation_that_is_not_over_is_worth_nothing() -> None:
    async with playing(LONG) as played:
        await played.said(call("moor", {"ship": "Langeoog", "berth": 217}))
        verdict = await played.verdict()
    assert (verdict.reward, verdict.fields["checked"].problem) == (0.0, "unfinished")


async def test_too_many_steps_in_a_turn_end_it() -> None:
    async with playing(LONG) as played:
        steps = [
            await played.step(call("list_berths", {})) for _ in range(api_conversation.STEPS_AT_MOST + 1)
        ]
        assert [step.terminated for step in steps] == [False] * api_conversation.STEPS_AT_MOST + [True]
        assert (await played.verdict()).fields["checked"].problem == "too many steps in a turn"


async def test_arguments_that_are_no_object_are_an_error_and_the_turn_goes_on() -> None:
    async with playing(LONG) as played:
        said = await played.said(
            call("moor", "[1]", "c1"), call("list_berths", "{", "c2"), call("note", {"text": "x"}, "c3")
        )
        assert said == [api_conversation.NO_OBJECT, api_conversation.NO_OBJECT, "1 notes"]
        many = [call("note", {"text": "x"}, f"c{n}") for n in range(api_conversation.CALLS_AT_MOST + 2)]
        assert (await played.said(*many)).count(api_conversation.TOO_MANY) == 2


async def test_an_answer_whose_calls_are_all_wrong_is_answered_and_judged() -> None:
    async with playing(LONG) as played:
        assert await played.said(call("moor", "no JSON")) == [api_conversation.NO_OBJECT]
        long = "x" * api_conversation.CHARACTERS_AT_MOST
        assert await played.said(call("note", {"text": long})) == [api_conversation.LONG]
        assert (await played.verdict()).reward == 0.0


@pytest.mark.slow
@pytest.mark.timeout(90)
@pytest.mark.skipif(not INSTALLED, reason="the authors' classes are not installed")
async def test_a_call_that_never_ends_is_an_error_and_the_others_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(api_conversation, "CALLS_LIMIT_S", 1.0)
    row = json.loads(LONG)
    scenario = {"classes": ["MathAPI", "HarbourAPI"], "config": row["scenario"]["config"]}
    async with playing(json.dumps({**row, "scenario": scenario}).encode()) as played:
        said = await played.said(
            call("moor", {"ship": "A", "berth": 1}, "c1"),
            call("power", {"base": 7, "exponent": 10**10}, "c2"),
            call("charge", {"ship": "A"}, "c3"),
        )
        assert said == ['{"moored": "A", "berth": 1}', api_conversation.TOO_LONG, '{"ship": "A", "owes": 25}']
        assert await played.said(call("charge", {"ship": "A"})) == ['{"ship": "A", "owes": 50}']


@pytest.mark.slow
async def test_the_perfect_conversations_are_judged_by_their_transcripts_too() -> None:
    environment = catalogue.environment(NAME)
    for example in examples.read(environment):
        response = json.loads(await examples.play(environment.resource, example))
        assert (await judge(NAME, example.row, *response["output"])).reward == 1.0

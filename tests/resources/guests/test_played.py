"""Guests that are Python code: played in forks, with the models' answers as their only state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from gym_resources.guests.played import named_code
from gym_resources.guests.played.played_episode import PlayedEpisode
from gym_runtime import Environment, Reply, ResourceError, Role, UsageError, make_response
from gym_runtime.environment.resource import Resource
from gym_runtime.environment.roles import ScriptedAnswers
from gym_runtime.environment.shapes import Episode
from resources.guests.own import plain_guest

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ROW = msgspec.json.encode({"responses_create_params": {"input": []}, "number": 1})
JUDGE = Role(name="judge", optional=True)


def resource(play: Callable[..., Any]) -> Resource:
    kind = type("Guest", (PlayedEpisode,), {"play": play, "address": play.__name__})
    return Environment(resource=kind, description="a guest", roles=(JUDGE,)).build()


@asynccontextmanager
async def session(guest: Resource, judge: Sequence[str] | None = None, row: bytes = ROW) -> Any:
    models = ScriptedAnswers({"judge": judge} if judge else {}).models((JUDGE,))
    opened = await guest.open(row, models)
    try:
        assert isinstance(opened, Episode)
        yield opened
    finally:
        await guest.close(opened)


def texts(items: Sequence[bytes]) -> list[str]:
    return [msgspec.json.decode(item)["content"] for item in items]


async def test_each_turn_is_played_from_the_start_with_the_same_questions() -> None:
    guest = resource(plain_guest.counts)
    async with session(guest) as one, session(guest) as other:
        asked = [await guest.reset(one)]
        assert await guest.reset(other) == asked[0]
        for _ in range(2):
            asked.append((await guest.step(one, make_response("ab"))).items)
        step = await guest.step(one, make_response("abc"))
        assert (step.terminated, step.reward) == (True, 7.0)
        verdict = await guest.verify(one, make_response("ab", "ab", "abc"))
        assert (verdict.reward, verdict.fields) == (7.0, {"turns": 2})
        # A session that is lost with its worker is rebuilt by the same answers.
        assert (await guest.step(other, make_response("ab"))).items == asked[1]
    async with session(guest, row=msgspec.json.encode({**msgspec.json.decode(ROW), "number": 2})) as another:
        assert await guest.reset(another) != asked[0]


async def test_a_rollout_that_a_limit_ends_is_judged_as_far_as_it_got() -> None:
    guest = resource(plain_guest.counts)
    async with session(guest) as one:
        await guest.reset(one)
        step = await guest.step(one, make_response("ab"))
        cut_short = Reply.of("ab", msgspec.json.decode(step.items[0]), "abcd")
        assert (await guest.verify(one, cut_short.raw)).reward == 6.0
    async with session(guest) as one:
        await guest.reset(one)
        step = await guest.step(one, make_response("ab"))
        seen = Reply.of("ab", msgspec.json.decode(step.items[0]))
        assert (await guest.verify(one, seen.raw)).reward == 2.0


async def test_a_guest_asks_a_model_in_a_role() -> None:
    guest = resource(plain_guest.judged)
    async with session(guest, judge=["0.25"]) as one:
        await guest.reset(one)
        assert (await guest.step(one, make_response("good"))).reward == 0.25
    async with session(guest) as one:
        await guest.reset(one)
        with pytest.raises(ResourceError, match="--judge PROVIDER/NAME"):
            await guest.step(one, make_response("good"))
    async with session(guest, judge=["not a number"]) as one:
        await guest.reset(one)
        with pytest.raises(ResourceError, match="could not convert"):
            await guest.step(one, make_response("good"))


async def test_a_guest_that_cannot_be_repeated_fails_and_is_no_reward() -> None:
    guest = resource(plain_guest.moody)
    async with session(guest) as one:
        await guest.reset(one)
        with pytest.raises(ResourceError, match="does not play the same rollout twice"):
            await guest.step(one, make_response("x"))


def test_addresses() -> None:
    name, settings = named_code.parse("a/b.py:C?n=3&text=x%26y&outer.inner=true&none=")
    assert (name, settings["n"], settings["text"]) == ("a/b.py:C", 3, "x&y")
    assert settings["outer"] == {"inner": True}
    assert settings["none"] == ""
    for wrong in ("a?b", "a?b=1&b.c=2"):
        with pytest.raises(UsageError):
            named_code.parse(wrong)

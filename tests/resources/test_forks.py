"""A fork is what straight play is, in the environments of the catalogue."""

from __future__ import annotations

import json
import random
from typing import Any, cast

import pytest
from gym_runtime.adapters import Agent
from gym_runtime.environment import catalogue, examples
from gym_testing.small_system import Engine, answer, small_system
from resources.judging import usable

pytestmark = pytest.mark.anyio

AGENTS = ("each_alone", "refinement", "single_turn", "step_loop", "tool_loop")
SAMPLE = {
    *("blackjack", "example_multi_step", "example_session_state_mgmt", "math_advanced_calculations"),
    *("service_desk", "workplace_assistant"),
}


def names() -> list[Any]:
    """Environments that can be replayed and ask no other model."""
    found: list[Any] = []
    for name in catalogue.names("environments"):
        definition = catalogue.environment(name).definition
        if definition.replayable and not definition.declared_roles and definition.shape != "verify":
            found.append(pytest.param(name, marks=[] if name in SAMPLE else [pytest.mark.soak]))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
async def test_a_fork_of_a_gold_ends_as_the_gold_does(name: str) -> None:
    seeded = random.Random(name)
    for example in golds(name)[:2]:
        await forked_as_played(name, example, [seeded.randint(0, len(example.turns))])


FOR_HARNESSES = {"terminal_multi_harness"}
"""Environments whose rows name programs as agents; here their own agent plays them."""
PAIRS = 1000
"""How many (rollout, turn) are drawn, over all environments together."""


def all_names() -> list[str]:
    """Environments that can be replayed and ask no other model, those of one turn included."""
    known = {name: catalogue.environment(name).definition for name in catalogue.names("environments")}
    forkable = {name: one for name, one in known.items() if one.replayable and not one.declared_roles}
    return [name for name, one in forkable.items() if one.agent in AGENTS]


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.timeout(540)
@pytest.mark.parametrize("name", all_names())
async def test_forks_at_random_turns_are_what_straight_play_is(name: str) -> None:
    seeded, known = random.Random(f"{name}-pairs"), golds(name)
    if not known:
        pytest.skip("it has no example whose gold is known")
    drawn: dict[int, list[int]] = {}
    for _ in range(-(-PAIRS // len(all_names()))):
        place = seeded.randrange(len(known))
        drawn.setdefault(place, []).append(seeded.randint(0, len(known[place].turns)))
    for place, turns in drawn.items():
        await forked_as_played(name, known[place], turns)


def golds(name: str) -> list[examples.Example]:
    """The examples of an environment whose packages are here."""
    environment = usable(name)
    return [one for one in examples.read(environment) if one.turns]


async def forked_as_played(name: str, example: examples.Example, turns: list[int]) -> None:
    """Play a gold, and fork it after each of some turns: answers and verdicts are the same."""
    said = [answer(*turn) for turn in example.turns]
    async with small_system() as system:
        await system.add_resource(catalogue.environment(name))
        known = {one: cast("Agent", catalogue.load_class("agents", one)()) for one in AGENTS}
        await system.add_agent(known)
        await system.add_model(Engine(*said), name="straight", pool="straight")
        asked: dict[str, Any] = {"environment": name, "max_turns": len(said)}
        if name in FOR_HARNESSES:
            asked["agent"] = catalogue.environment(name).definition.agent
        straight = system.client.rollouts([example.row], model_pool="straight", repeats=1, **asked)
        (played,) = [record async for record in straight]
        system.stop("straight")
        for number, turn in enumerate(turns):
            pool = f"fork{number}"
            await system.add_model(Engine(*said[turn:]), name=pool, pool=pool)
            forks = system.client.fork(played, turn, model_pool=pool, **asked)
            (fork,) = [record async for record in forks]
            system.stop(pool)
            assert (fork.ending, fork.reward) == (played.ending, played.reward), (name, turn)
            assert played.reward is not None, played.ending
            assert output(fork.response) == output(played.response), (name, turn)


def output(response: dict[str, Any] | None) -> list[Any]:
    """The items, whose ids may differ."""
    assert response is not None
    items = [{key: value for key, value in item.items() if key != "id"} for item in response["output"]]
    return [json.dumps(item, sort_keys=True) for item in items]

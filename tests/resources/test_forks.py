"""A fork is what straight play is, in the environments of the catalogue."""

from __future__ import annotations

import json
import random
from typing import Any, cast

import pytest
from gym_runtime.adapters import Agent
from gym_runtime.environment import catalogue, examples, requirements
from gym_runtime.errors import UsageError
from gym_testing.small_system import Engine, answer, small_system

pytestmark = pytest.mark.anyio

AGENTS = ("single_turn", "step_loop", "tool_loop")
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
    environment = catalogue.environment(name)
    try:
        requirements.require(environment)
    except UsageError as error:
        pytest.skip(error.message)
    seeded = random.Random(name)
    async with small_system() as system:
        await system.add_resource(environment)
        known = {one: cast("Agent", catalogue.load_class("agents", one)()) for one in AGENTS}
        await system.add_agent(known)
        for example in examples.read(environment)[:2]:
            golds = [answer(*turn) for turn in example.turns]
            turn = seeded.randint(0, len(golds))
            await system.add_model(Engine(*golds), name="straight", pool="straight")
            asked = {"environment": name, "max_turns": len(golds), "repeats": 1}
            straight = system.client.rollouts([example.row], model_pool="straight", **asked)
            (played,) = [record async for record in straight]
            system.stop("straight")
            await system.add_model(Engine(*golds[turn:]), name="fork", pool="fork")
            forks = system.client.fork(played, turn, model_pool="fork", max_turns=len(golds))
            (fork,) = [record async for record in forks]
            system.stop("fork")
            assert (fork.ending, fork.reward) == (played.ending, played.reward), (name, turn)
            assert played.reward is not None, played.ending
            assert output(fork.response) == output(played.response)


def output(response: dict[str, Any] | None) -> list[Any]:
    """The items, whose ids may differ."""
    assert response is not None
    items = [{key: value for key, value in item.items() if key != "id"} for item in response["output"]]
    return [json.dumps(item, sort_keys=True) for item in items]

"""The blends of NeMo RL: a row of every part that is here is found by its agent, and scores full."""

from __future__ import annotations

import json

import msgspec
import pytest
from gym_runtime.environment import examples
from gym_runtime.environment.settings import filled
from gym_runtime.errors import AssetMissing
from gym_testing.checks.subject import Subject
from gym_view.recipes import PartEntry, part, recipes
from resources.judging import usable

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("one_loop")]
PARTS = {one.name: one for recipe in recipes() for one in recipe.parts}
HERE = [(one.name, agent) for one in PARTS.values() if one.environment for agent in one.agents]


def test_the_list_names_each_part_once_and_knows_its_agents() -> None:
    assert len({recipe.name for recipe in recipes()}) == len(recipes()) == 14
    for recipe in recipes():
        names = [one.name for one in recipe.parts]
        assert names
        assert len(set(names)) == len(names), recipe.name
    assert all(one.agents for one in PARTS.values())


def test_a_part_is_here_if_all_its_agents_mean_one_environment() -> None:
    assert part("x", ["mcqa_simple_agent"]).environment == "mcqa"
    for agents in (["no_such_agent"], ["mcqa_simple_agent", "no_such_agent"], ["mcqa", "calendar"]):
        assert part("x", agents) == PartEntry(name="x", agents=agents, needs="no environment here")
    assert {"swe_pivot", "litmus_agent", "indirect_prompt_injection"} <= {
        one.environment for one in PARTS.values()
    }


@pytest.mark.slow
@pytest.mark.parametrize(("name", "agent"), HERE)
async def test_a_perfect_rollout_of_a_part_scores_full(name: str, agent: str) -> None:
    environment = usable(PARTS[name].environment)
    subject = Subject(environment, examples.read(environment))
    rows = [
        {**one.fields, "agent_ref": {"type": "responses_api_agents", "name": agent}}
        for one in subject.examples
    ]
    lines = [filled(environment, json.dumps(row).encode(), agent) for row in rows]
    # The agent's name may say what its row is; its example is one that says the same, or names the agent.
    number = next(
        (
            place
            for place, (row, line, one) in enumerate(zip(rows, lines, subject.examples, strict=True))
            if json.loads(line) == row or one.fields.get("agent_ref", {}).get("name") == agent
        ),
        0,
    )
    if json.loads(lines[number]) == rows[number]:
        # The agent's name fills nothing in: test_contract.py and test_recorded_rows.py judge this row.
        environment.resource.task(lines[number])
        return
    example = msgspec.structs.replace(subject.examples[number], row=lines[number], fields=rows[number])
    try:
        verdict = await subject.judge(example, await examples.play(environment.resource, example))
    except AssetMissing as error:
        pytest.skip(error.message)
    assert verdict.reward == pytest.approx(environment.definition.gold_reward)

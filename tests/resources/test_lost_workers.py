"""Environments whose state is rebuilt by repeating its calls, when the worker that held it is killed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from gym_resources.guests import mcp
from gym_runtime.environment import catalogue
from gym_runtime.messages.outcomes import Completed
from gym_testing.small_system import Engine, Hang, Turn, answer, function_call, rollout_spec, small_system
from resources.judging import usable

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

OUTSIDE = {"aviary_remote", "browsecomp", "finance_sec_search", "google_search", "tavily_search"}
"""The world outside is their state, as their pages say: a server, search engines."""
STOP = "###STOP###"


def test_only_the_world_outside_cannot_be_repeated() -> None:
    found = {
        name
        for name in catalogue.names("environments")
        if not catalogue.environment(name).definition.replayable
    }
    assert found == OUTSIDE


def test_a_program_that_serves_tools_is_repeated_and_a_remote_server_is_not() -> None:
    program = mcp.environment(f"{__file__}?verify=mcqa")
    assert (program.replayable, mcp.environment("http://127.0.0.1:9/mcp?verify=mcqa").replayable) == (
        True,
        False,
    )


def cell(code: str, number: int, tool: str) -> Turn:
    name = "contents" if tool == "edit_cell" else "code"
    return answer(function_call(tool, json.dumps({name: code}), f"call_{number}"))


def example(name: str) -> dict[str, Any]:
    return json.loads(catalogue.environment(name).examples.read_text("utf-8").splitlines()[0])


CELLS = ("x = sum(range(10))", "open('kept.txt', 'w').write(str(x))", "print(x, open('kept.txt').read())")


async def lost(
    name: str, row: Mapping[str, Any], turns: Sequence[Turn], roles: Mapping[str, Sequence[Turn]]
) -> tuple[dict[str, Any], dict[str, Engine]]:
    """The row of a rollout whose resource worker is killed before the last but one answer is used."""
    environment = usable(name)
    agent = environment.definition.agent
    engine = Engine(*turns[:-2], Hang())
    asked = {role: Engine(*told) for role, told in roles.items()}
    async with small_system() as system:
        await system.add_agent({agent: catalogue.load("agents", agent).Agent()})
        await system.add_model(engine)
        for role, one in asked.items():
            await system.add_model(one, name=f"{role}-1", pool=role)
        await system.add_resource(environment)
        spec = rollout_spec(
            json.dumps(row).encode(), agent=agent, environment=name, roles={role: role for role in roles}
        )
        await system.enqueue(spec)
        await engine.calls.until(len(turns) - 1)
        await system.add_resource(environment, name="resource-2")
        system.kill("resource-1")
        await system.add_model(Engine(*turns[-2:]), name="model-2")
        system.kill("model-1")
        (record,) = await system.records(1)
    assert record.outcome == Completed(), record.outcome
    made = json.loads(bytes(record.row))
    assert (made["_gym"]["rebuilt_sessions"], made["_gym"].get("started_anew")) == (1, None)
    return made, asked


@pytest.mark.parametrize(
    ("name", "tool", "finish"),
    [("bixbench_aviary", "edit_cell", "submit_solution"), ("bbh_aviary", "run_cell", "submit_answer")],
)
async def test_a_notebook_has_its_variables_and_files_again(name: str, tool: str, finish: str) -> None:
    argument = "solution" if finish == "submit_solution" else "answer"
    turns = [cell(code, number, tool) for number, code in enumerate(CELLS)]
    turns.append(answer(function_call(finish, json.dumps({argument: "45"}), "last")))
    row = example(name)
    if name == "bixbench_aviary":
        row |= {"eval_mode": "exact", "ideal": "45"}
    told = {"rubric": [answer("x")]} if name == "bbh_aviary" else {}
    made, _ = await lost(name, row, turns, told)
    read = [str(item.get("output") or item.get("content")) for item in made["response"]["output"]]
    assert any("45 45" in text for text in read), read


async def test_a_customers_telephone_is_as_it_was() -> None:
    turns: list[Turn] = [
        answer("What is your number?"),
        answer("Please run a speed test."),
        answer("Is it better?"),
        answer("Goodbye."),
    ]
    check = answer(function_call("run_speed_test", "{}"))
    customer = [answer("No internet."), answer("555-010-0001."), check, answer("Slow."), answer(STOP)]
    _, asked = await lost("tau2_telecom", example("tau2_telecom"), turns, {"user": customer})
    assert len(asked["user"].calls.items) == len(customer), "it is asked nothing again"

"""Roles are checked before a client's first rollout: declared, given, and served by a worker."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from gym_agents.single_turn import Agent
from gym_runtime.environment import catalogue
from gym_runtime.errors import UsageError
from gym_testing.small_system import Engine, SmallSystem, answer, small_system

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]

JUDGED, OPTIONAL, PLAIN = "lc_judge", "xstest", "mcqa"
ROW: dict[str, Any] = {
    "responses_create_params": {"input": "Who?"},
    "expected_answer": "A",
    "options": [{"A": "me"}, {"B": "you"}],
    "grading_mode": "lenient_boxed",
}


@pytest.fixture
async def system() -> AsyncGenerator[SmallSystem]:
    async with small_system() as system:
        for name in (JUDGED, OPTIONAL, PLAIN):
            await system.add_resource(catalogue.environment(name), name=f"resource-{name}")
        await system.add_agent({"single_turn": Agent(), "tool_loop": Agent()})
        await system.add_model(Engine(answer(r"\boxed{A}")))
        yield system


async def add_judge(system: SmallSystem, pool: str = "judge") -> Engine:
    judge = Engine(answer("CORRECT"))
    await system.add_model(judge, name="judge-1", pool=pool)
    return judge


async def rewards(system: SmallSystem, rows: Any, environment: str, **more: Any) -> list[float | None]:
    made = system.client.rollouts(rows, environment=environment, **more)
    return [record.reward async for record in made]


@pytest.mark.parametrize("roles", [{}, {"judge": "big"}])
@pytest.mark.parametrize("lazy", [False, True])
async def test_a_role_that_no_worker_serves_is_refused_before_the_first_rollout(
    system: SmallSystem, roles: dict[str, str], lazy: bool
) -> None:
    rows = iter([ROW]) if lazy else [ROW]
    pool = roles.get("judge", "judge")
    with pytest.raises(UsageError, match=rf"role 'judge', and no worker serves model '{pool}'.*model:{pool}"):
        await rewards(system, rows, JUDGED, roles=roles)
    assert await system.bus.counts("task.>") == {}
    assert await system.client.runs() == []


async def test_the_groups_of_a_role_that_no_worker_serves_are_refused_too(system: SmallSystem) -> None:
    with pytest.raises(UsageError, match="no worker serves model 'judge'"):
        async for _ in system.client.groups([ROW], environment=JUDGED, repeats=2):
            pass
    assert await system.client.runs() == []


async def test_an_optional_role_that_is_named_must_be_served(system: SmallSystem) -> None:
    assert await rewards(system, [ROW], OPTIONAL) == [1.0]
    with pytest.raises(UsageError, match="no worker serves model 'judge'"):
        await rewards(system, [ROW], OPTIONAL, roles={"judge": "judge"})


async def test_a_worker_that_is_started_in_time_is_waited_for(system: SmallSystem) -> None:
    found: list[float | None] = []

    async def make() -> None:
        found.extend(await rewards(system, [ROW], JUDGED))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(make)
        await anyio.sleep(1)
        await add_judge(system)
    assert found == [1.0]


@pytest.mark.parametrize("lazy", [False, True])
async def test_a_role_that_no_environment_of_the_run_has_is_refused(system: SmallSystem, lazy: bool) -> None:
    await add_judge(system)
    rows = iter([ROW]) if lazy else [ROW]
    with pytest.raises(UsageError, match="has the role 'jugde'; did you mean 'judge'"):
        await rewards(system, rows, JUDGED, roles={"jugde": "judge"})
    with pytest.raises(UsageError, match="has the role 'judge'; they ask no models in roles"):
        await rewards(system, rows, PLAIN, roles={"judge": "judge"})
    # An agent may ask models that no environment knows of.
    await rewards(system, [ROW], PLAIN, roles={"judge": "judge"}, agent="single_turn")


@pytest.mark.parametrize(
    ("sampling", "message"),
    [
        ({"jugde": {"temperature": 0}}, "has the role 'jugde'; did you mean 'judge'"),
        ({"judge": {"temprature": 0}}, "no field 'temprature' .* did you mean 'temperature'"),
        ({"judge": {"temperature": "cold"}}, "role_sampling of 'judge': Expected a number or None, got text"),
        ({"judge": 0}, "role_sampling is"),
    ],
)
async def test_what_is_wrong_with_a_roles_sampling_is_said(
    system: SmallSystem, sampling: Any, message: str
) -> None:
    await add_judge(system)
    with pytest.raises(UsageError, match=message):
        await rewards(system, [ROW], JUDGED, role_sampling=sampling)


async def test_a_run_says_how_its_judge_samples(system: SmallSystem) -> None:
    judge = await add_judge(system)
    assert await rewards(system, [ROW], JUDGED, role_sampling={"judge": {"temperature": 0.5}}) == [1.0]
    assert msgspec.json.decode(judge.calls.items[0][0].params)["temperature"] == 0.5


async def test_what_later_rows_of_a_stream_ask_for_in_vain_fails_by_itself(system: SmallSystem) -> None:
    rows = [{**ROW, "agent_ref": {"name": name}} for name in (PLAIN, JUDGED)]
    assert await rewards(system, iter(rows), PLAIN) == [1.0, None]
    await add_judge(system)
    assert await rewards(system, iter(rows), PLAIN) == [1.0, 1.0]


async def test_the_policy_may_be_the_judge(system: SmallSystem) -> None:
    assert await rewards(system, [ROW], JUDGED, roles={"judge": "policy"}) == [0.0]


@pytest.mark.parametrize(
    "named", [{"roles": {"jugde": "policy"}}, {"role_sampling": {"jugde": {"top_p": 0.5}}}]
)
async def test_a_misspelt_role_is_refused_whatever_takes_the_rollouts(
    system: SmallSystem, tmp_path: Path, named: dict[str, Any]
) -> None:
    """The role would be asked of the pool of its own name: of another model than the one that was chosen."""
    await add_judge(system)
    said = "no environment of this run has the role 'jugde'; did you mean 'judge'?"
    with pytest.raises(UsageError, match=re.escape(said)):
        await rewards(system, [ROW], JUDGED, **named)
    with pytest.raises(UsageError, match=re.escape(said)):
        await rewards(system, [ROW], JUDGED, output=tmp_path / "rows.jsonl", **named)
    with pytest.raises(UsageError, match=re.escape(said)):
        await system.client.publish([ROW], environment=JUDGED, **named)
    assert await system.client.runs() == []

"""What a new run is told of the system that it joins."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from gym_runtime import Environment, Reply, RolloutSettings, Task, Verdict
from gym_runtime.client.row_sources import Declared, NewRuns, RowSources, served_model
from gym_runtime.environment import catalogue
from gym_runtime.errors import UsageError
from gym_runtime.rpc.members import Heartbeat
from gym_testing.small_system import Engine, answer, environment, small_system
from runtime.client.running_client import NAME, rows, running_client

WORKERS = [
    Heartbeat(worker="a", kind="agent", pools=["tool_loop"]),
    Heartbeat(worker="r", kind="resource", pools=["mcqa"]),
    Heartbeat(worker="m", kind="model", pools=["policy"], detail={"model": "openai/Qwen/Qwen3-4B"}),
]


def test_the_model_that_a_system_serves() -> None:
    found = served_model(WORKERS, "policy")
    assert found is not None
    assert (found.provider, found.name) == ("openai", "Qwen/Qwen3-4B")
    assert served_model(WORKERS[:2], "policy") is None
    other = Heartbeat(worker="j", kind="model", pools=["judge"], detail={"model": "scripted/echo"})
    assert served_model([other], "policy") is None


async def verify(task: Task, reply: Reply) -> Verdict:
    return Verdict(1.0)


@pytest.mark.anyio
@pytest.mark.parametrize("text", [False, True])
async def test_rows_of_a_list_that_bring_no_number_are_numbered_after_those_that_do(text: bool) -> None:
    async def workers() -> list[Heartbeat]:
        return []

    async def declared(name: str | None) -> Declared:
        return {"e": environment(Environment(resource=verify, description=""), "e")}

    rows: list[Any] = [
        {"responses_create_params": {"input": "new"}},
        {"responses_create_params": {"input": "stored"}, "_ng_task_index": 0},
        {"responses_create_params": {"input": "stored too"}, "_ng_task_index": 7},
    ]
    given = [json.dumps(row) for row in rows] if text else rows
    sources = RowSources(given, remembered=False)
    new = NewRuns(workers, declared, {})
    specs, info = await new.of_rows(sources, RolloutSettings(repeats=2), "e")
    found = [(spec.task_index, spec.rollout_index) for spec in specs]
    assert found == [(8, 0), (8, 1), (0, 0), (0, 1), (7, 0), (7, 1)]
    assert info.tasks == 9


FILE = """
from gym_runtime import Environment, Reply, Task, Verdict

async def verify(task: Task, reply: Reply) -> Verdict:
    return Verdict(1.0)

environment = Environment(resource=verify, description="")
"""


@pytest.mark.anyio
async def test_an_environment_in_a_file_runs_rows_of_a_stream_and_standing_runs(tmp_path: Path) -> None:
    path = tmp_path / "env_of_rows.py"
    path.write_text(FILE)
    row = {"responses_create_params": {"input": "x"}}
    async with small_system() as system:
        await system.add_resource(catalogue.environment(str(path)))
        await system.add_model(Engine(answer("hi")))
        await system.add_agent()
        stream = system.client.rollouts(iter([row]), environment=str(path))
        assert [record.reward async for record in stream] == [1.0]
        async with system.client.standing_run(environment=str(path)) as run:
            assert (await run.rollout(row)).reward == 1.0


@pytest.mark.anyio
async def test_one_seed_for_all_rollouts_of_a_row_is_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """An engine that follows it gives a trainer the same answer eight times, which teaches nothing."""
    same = "the 2 rollouts of a row have the same seed, 7"
    async with running_client() as here:
        for call in (here.gym.groups, here.gym.rollouts, partial(here.gym.rollouts, output=tmp_path / "o")):
            _ = [one async for one in call(rows(1), environment=NAME, seed=7, repeats=2)]
            assert capsys.readouterr().err.count(same) == 1
            (tmp_path / "o").unlink(missing_ok=True)
        each = {NAME: 2, "mcqa": 1}
        _ = [one async for one in here.gym.rollouts(rows(1), environment=NAME, seed=7, repeats=each)]
        assert same in capsys.readouterr().err
        for apart in ({"seed": 7}, {"repeats": 2}, {"seed": 7, "repeats": 2, "seed_repeats": True}):
            _ = [one async for one in here.gym.rollouts(rows(1), environment=NAME, **apart)]
            assert "seed" not in capsys.readouterr().err


@pytest.mark.anyio
async def test_a_table_of_pandas_is_refused_with_the_remedy() -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(rows(2))
    async with running_client() as running:
        gym = running.gym
        with pytest.raises(UsageError, match=r"table\.to_dict\('records'\)"):
            async for _ in gym.rollouts(table, environment=NAME):
                pass
        records = table.to_dict("records")
        assert len([record async for record in gym.rollouts(records, environment=NAME)]) == 2


@pytest.mark.anyio
@pytest.mark.virtual_time
async def test_a_misspelt_pool_of_models_is_told_before_the_rollouts_wait(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with small_system() as system:
        await system.add_resource(environment(Environment(resource=verify, description=""), "e"))
        await system.add_model(Engine(answer("hi")))
        await system.add_agent()
        row = {"responses_create_params": {"input": "x"}}
        for given in ([row], iter([row])):
            stream = system.client.rollouts(given, environment="e", model_pool="polcy", max_attempts=1)
            (record,) = [one async for one in stream]
            assert record.reward is None
            said = capsys.readouterr().err
            assert said.count("no worker serves model 'polcy' now") == 1
            assert "gym-runtime start model:polcy; did you mean 'policy'?" in said
        assert [one.reward async for one in system.client.rollouts([row], environment="e")] == [1.0]
        assert capsys.readouterr().err == ""

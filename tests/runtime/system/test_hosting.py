"""Which workers share a process, and that a process of several workers announces each."""

from __future__ import annotations

import os

import pytest
from gym_runtime import connect
from gym_runtime.adapters import ModelSettings
from gym_runtime.environment import catalogue
from gym_runtime.messages.outcomes import Completed
from gym_runtime.system.hosting import host, may_be_hosted, model_may_be_hosted
from gym_runtime.system.spec import PoolSpec
from tables import table

AGENTS = PoolSpec(kind="agent", names=("tool_loop",))
SMALL, ISOLATED = "example_single_tool_call", "math_with_judge"


def test_agents_host_what_may_share_their_process_and_nothing_else() -> None:
    here = PoolSpec(kind="model", names=("policy",), model=ModelSettings.parse("openai/x"))
    heavy = PoolSpec(kind="model", names=("judge",), model=ModelSettings.parse("embedded/x"))
    agents, *apart = host([AGENTS, PoolSpec(kind="resource", names=(SMALL, ISOLATED)), here, heavy])
    assert agents.hosted == (PoolSpec(kind="resource", names=(SMALL,)), here)
    assert apart == [PoolSpec(kind="resource", names=(ISOLATED,)), heavy]


@pytest.mark.parametrize(
    "pools",
    [
        (PoolSpec(kind="resource", names=(SMALL,)),),
        (AGENTS, AGENTS, PoolSpec(kind="resource", names=(SMALL,))),
        (AGENTS, PoolSpec(kind="resource", names=(SMALL,), processes=2)),
    ],
    ids=["no agents", "two pools of agents", "more processes"],
)
def test_what_cannot_be_paired_stays_apart(pools: tuple[PoolSpec, ...]) -> None:
    assert host(pools) == pools


@table(
    ("name", "hosted"),
    [
        (SMALL, True),
        ("mcqa", True),
        (ISOLATED, False),  # its verification is isolated
        ("code_gen", False),  # an extra: it runs programs
        ("workplace_assistant", False),  # files
        ("aviary_remote", False),  # sessions that cannot be rebuilt
        ("ns_tools", False),  # a tool pack
    ],
)
def test_an_environment_is_hosted_by_what_it_declares(name: str, hosted: bool) -> None:
    assert may_be_hosted(catalogue.environment(name)) == hosted


@pytest.mark.parametrize(
    ("model", "hosted"),
    [
        (ModelSettings.parse("openai/gpt-5-mini"), True),
        (ModelSettings.parse("scripted/message"), True),
        (ModelSettings.parse("vllm/Qwen/Qwen3-4B"), False),
        (ModelSettings.parse("vllm/Qwen/Qwen3-4B", urls=("http://127.0.0.1:8000/v1",)), True),
        (ModelSettings.parse("embedded/smollm2-135m"), False),
    ],
)
def test_a_model_is_hosted_unless_its_worker_runs_the_engine(model: ModelSettings, hosted: bool) -> None:
    assert model_may_be_hosted(model) == hosted


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.parametrize("hosted_layout", [False, True])
async def test_rollouts_are_the_same_in_both_layouts(hosted_layout: bool) -> None:
    rows = catalogue.environment(SMALL).source.with_suffix(".jsonl").read_bytes().splitlines()
    model = "scripted/tool-then-message"
    async with connect(model=model, environments=[SMALL], hosted=hosted_layout) as gym:
        workers = await gym.workers()
        records = [record async for record in gym.rollouts(rows, environment=SMALL, repeats=2)]
    assert all(isinstance(record.outcome, Completed) for record in records)
    assert {record.reward for record in records} == {1.0}
    assert sorted(worker.kind for worker in workers) == ["agent", "model", "resource"]
    assert len({worker.pid for worker in workers}) == (1 if hosted_layout else 3)
    assert os.getpid() not in {worker.pid for worker in workers}
    (agent,) = [worker for worker in workers if worker.kind == "agent"]
    hosts = {worker.detail.get("hosted_by") for worker in workers if worker.kind != "agent"}
    assert hosts == ({agent.worker} if hosted_layout else {None})

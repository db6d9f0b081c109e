"""Forks whose sessions begin with what the forked one has saved: no call of a shared turn is made again."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gym_resources.swe import local_rows
from gym_runtime import Environment, Episode, Reply, RolloutRecord, Step, Task
from gym_runtime.adapters import Agent
from gym_runtime.environment import catalogue
from gym_runtime.messages.outcomes import Completed
from gym_runtime.workers import saved_parts
from gym_sandbox import bubblewrap
from gym_sandbox.sandbox_errors import SetupError
from gym_testing.small_system import (
    Engine,
    SmallSystem,
    answer,
    environment,
    function_call,
    row,
    small_system,
)
from runtime.workers.agent_worker.test_saved_sessions import Unlucky, done, log

pytestmark = pytest.mark.anyio


@pytest.fixture
async def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[SmallSystem]:
    monkeypatch.setenv(saved_parts.FOLDER, str(tmp_path))
    monkeypatch.setenv(saved_parts.KEPT, "3600")
    async with small_system() as system:
        for name in ("tool_loop", "step_loop"):
            agent: Agent = catalogue.load_class("agents", name)()
            await system.add_agent({name: agent}, name=name)
        yield system


async def forks(system: SmallSystem, *arguments: Any, **keywords: Any) -> list[RolloutRecord]:
    return [one async for one in system.client.fork(*arguments, **keywords)]


async def recorded(system: SmallSystem, *turns: Any, **keywords: Any) -> RolloutRecord:
    await system.add_model(Engine(*turns), name="first")
    (record,) = [one async for one in system.client.rollouts([keywords.pop("row", row())], **keywords)]
    system.stop("first")
    return record


def gym(record: RolloutRecord) -> dict[str, Any]:
    return msgspec.json.decode(record.row)["_gym"]


def write() -> Any:
    return answer(function_call("write"))


async def test_the_calls_of_shared_turns_are_not_made_again(system: SmallSystem, tmp_path: Path) -> None:
    sessions = log(1)
    await system.add_resource(sessions)
    stored = await recorded(system, write(), write(), write(), answer("done"), environment="sample")
    assert sorted(gym(stored)["saved"]["turns"]) == ["1", "2", "3"]
    done(sessions).clear()
    await system.add_model(Engine(write(), answer("done")), name="second")

    (record,) = await forks(system, stored, 2)

    assert (record.outcome, record.reward, record.turns, record.tool_calls) == (Completed(), 3.0, 4, 3)
    assert done(sessions) == ["restore", "write"]
    assert gym(record)["fork"]["restored_turns"] == 2
    assert gym(record)["saved"]["origins"] == [stored.rollout_id]
    # A fork of the fork: what it begins with refers to parts of both.
    done(sessions).clear()
    (again,) = await forks(system, record, 3)
    assert (again.reward, done(sessions)) == (4.0, ["restore", "write"])
    assert gym(again)["saved"]["origins"] == [record.rollout_id, stored.rollout_id]
    # At a turn without its own state, the calls after the newest one are made.
    (zero,) = await forks(system, record, 0)
    assert (zero.reward, "restored_turns" in gym(zero)["fork"]) == (1.0, False)


async def test_without_the_saved_state_the_calls_are_repeated(system: SmallSystem, tmp_path: Path) -> None:
    sessions = log(2)  # answers the same when it is asked again
    await system.add_resource(sessions)
    stored = await recorded(system, write(), write(), write(), answer("done"), environment="sample")
    assert sorted(gym(stored)["saved"]["turns"]) == ["2"]
    await system.add_model(Engine(answer("done")), name="second")
    done(sessions).clear()
    (record,) = await forks(system, stored, 3)
    assert (record.reward, done(sessions)) == (3.0, ["restore", "write"])
    shutil.rmtree(tmp_path / stored.rollout_id)
    done(sessions).clear()
    (record,) = await forks(system, stored, 3)
    assert (record.reward, record.attempt, done(sessions)) == (3.0, 1, ["write"] * 3)
    assert "restored_turns" not in gym(record)["fork"]


async def test_a_fork_whose_worker_dies_is_restored_again(system: SmallSystem) -> None:
    sessions = log(1)
    await system.add_resource(sessions)
    stored = await recorded(system, write(), write(), answer("done"), environment="sample")
    system.stop("tool_loop")
    await system.add_agent({"tool_loop": Unlucky(system, sessions, 2)}, name="unlucky")
    await system.add_model(Engine(write(), write()), name="second")
    done(sessions).clear()
    (record,) = await forks(system, stored, 1)
    # The unlucky one takes four turns; the worker dies after the third, whose call the next one makes.
    assert (record.outcome, record.reward) == (Completed(), 4.0)
    assert done(sessions) == ["restore", "write", "restore", "write", "write"]


@pytest.mark.slow
@pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": True})])
async def test_a_box_is_forked_with_its_files(system: SmallSystem) -> None:
    """In real time: a simulated clock would jump to a command's limit while the container works."""
    try:
        bubblewrap.check(os.getpid())
    except SetupError as error:
        pytest.skip(str(error))
    await system.add_resource(catalogue.environment("mini_swe_agent"))

    def bash(command: str, number: int) -> Any:
        return answer(function_call("bash", json.dumps({"command": command}), f"call_{number}"))

    submit = bash("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT", 9)
    stored = await recorded(
        system,
        bash("date +%N; head -c 3000000 /dev/urandom >big; echo 1 >>log", 1),
        bash("echo 2 >>log", 2),
        submit,
        row=next(local_rows.agent_rows(1, 7)),
        environment="mini_swe_agent",
    )
    assert stored.outcome == Completed()
    await system.add_model(Engine(bash("cat log; wc -c <big", 3), submit), name="second")
    for record in await forks(system, stored, 1, 3):
        outputs = [item["output"] for item in record.response["output"] if "output" in item]
        # The time that the first command said is that of the recorded rollout.
        assert outputs[0] == [item["output"] for item in stored.response["output"] if "output" in item][0]
        assert "1\n3000000" in outputs[1], outputs
        assert gym(record)["fork"]["restored_turns"] == 1


async def test_a_fork_that_keeps_no_states_repeats_the_calls(system: SmallSystem) -> None:
    sessions = log(2)
    await system.add_resource(sessions)
    stored = await recorded(system, write(), write(), answer("done"), environment="sample")
    await system.add_model(Engine(answer("done")), name="second")
    done(sessions).clear()
    (record,) = await forks(system, stored, 2, durability="result")
    assert (record.reward, done(sessions)) == (2.0, ["write"] * 2)
    assert "restored_turns" not in gym(record)["fork"]


class Walk(Episode[Task]):
    async def reset(self) -> str:
        self.at = 0
        return "go"

    async def step(self, reply: Reply) -> Step:
        self.at += 1
        return Step(observation=f"at {self.at}", reward=1.0, terminated=self.at == 4, info={"at": self.at})

    async def save(self) -> Any:
        return self.at

    async def on_restore(self, saved: Any) -> None:
        self.at = saved


@pytest.mark.parametrize("turn", [3, 4])
async def test_an_episode_that_had_ended_ends_there_again(system: SmallSystem, turn: int) -> None:
    await system.add_resource(environment(Environment(resource=Walk, description="", agent="step_loop")))
    about: dict[str, Any] = {"environment": "sample", "max_turns": 6}
    stored = await recorded(system, answer("on"), **about)
    assert (stored.outcome, stored.turns, stored.reward) == (Completed(), 4, 4.0)
    await system.add_model(Engine(answer("on")), name="second")
    (record,) = await forks(system, stored, turn, **about)
    assert (record.outcome, record.turns, record.reward) == (Completed(), 4, 4.0)
    assert gym(record)["fork"]["restored_turns"] == 3
    assert msgspec.json.decode(record.row)["at"] == 4

"""Comparisons with several clients, with clients that die, and with workers that die."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path

import anyio
import msgspec
import pytest
from gym_runtime import Environment
from gym_runtime.client import Client, RunInfo
from gym_runtime.client.recovery import take_up
from gym_runtime.client.run import Run, run_rollouts
from gym_runtime.environment import catalogue
from gym_runtime.errors import ModelRefused, ModelUnavailable
from gym_runtime.files.results import OutputFiles, ResultWriter
from gym_runtime.files.resume import Progress
from gym_runtime.files.run_metrics import Metrics
from gym_runtime.messages.outcomes import Cancelled, RolloutRecord
from gym_runtime.messages.rollout_spec import LONG_ROW_BYTES
from gym_runtime.rollout.journal import journal_subject
from gym_testing.background import settled
from gym_testing.small_system import (
    Engine,
    answer,
    environment,
    rollout_spec,
    row,
    small_system,
)
from runtime.client.comparisons.compared_groups import CONTEST, Here, about, fault, rewards

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


async def test_several_collectors_get_everything_and_each_group_is_compared_once(here: Here) -> None:
    await here.start()
    await here.published(5)
    found: list[list[RolloutRecord]] = [[], [], []]

    async def collect(client: Client, into: list[RolloutRecord]) -> None:
        async for record in client.collect("run"):
            into.append(record)

    async with here.another() as one, here.another() as two, here.another() as three:
        with anyio.fail_after(3600):
            async with anyio.create_task_group() as tasks:
                for client, into in zip((one, two, three), found, strict=True):
                    tasks.start_soon(collect, client, into)
    for records in found:
        assert rewards(records) == {(task, index): index for task in range(5) for index in range(4)}
        assert len(records) == 20
    assert len(here.contest.groups) == 5


async def test_long_rows_whose_results_lack_the_input_are_compared_with_it(
    here: Here, tmp_path: Path
) -> None:
    await here.start()
    said = "word " * LONG_ROW_BYTES
    given = [{**one, "responses_create_params": {"input": said}} for one in here.rows(2)]
    output = tmp_path / "out.jsonl"
    made = here.gym.rollouts(given, environment="contest", repeats=4, output=output)
    with anyio.fail_after(3600):
        records = [record async for record in made]
    assert rewards(records) == {(task, index): index for task in range(2) for index in range(4)}
    lines = output.read_bytes().splitlines()
    assert sorted(lines) == sorted(bytes(record.row) for record in records)
    assert [msgspec.json.decode(line)["responses_create_params"]["input"] for line in lines] == [said] * 8
    assert len(here.contest.groups) == 2


async def test_who_collects_later_has_no_comparison_made_again(here: Here) -> None:
    await here.start()
    await here.published(2)
    async with here.another() as first, here.another() as second, first.driver.followed("run"):
        taken: list[RolloutRecord] = []
        info = RunInfo(run="run", total=8)
        assert await Run(second.driver, info, taken.append, total=8).follow()
        late: list[RolloutRecord] = []
        had = {(0, 0), (0, 1), (1, 3)}
        skip = lambda task, rollout: (task, rollout) in had  # noqa: E731
        assert await Run(first.driver, info, late.append, total=5, settled=skip).follow()
        assert rewards(late) == {key: value for key, value in rewards(taken).items() if key not in had}
    await settled(lambda: True)
    assert len(here.contest.groups) == 2
    assert await here.gym.driver.bus.counts("task.>") == {}


async def test_a_collector_that_dies_leaves_the_comparison_to_the_next(here: Here) -> None:
    await here.start()
    here.contest.release = anyio.Event()
    await here.published(1)
    async with here.another() as first, aclosing(first.collect("run")) as records:
        with anyio.move_on_after(20):
            await anext(records)
    assert len(here.contest.groups) == 1
    here.contest.release.set()
    with anyio.fail_after(3600):
        assert [record.reward async for record in here.gym.collect("run")] == [0, 1, 2, 3]
    assert len(here.contest.groups) == 1


async def test_a_cancelled_run_hands_over_what_waited(here: Here) -> None:
    await here.start()
    here.contest.release = anyio.Event()
    await here.published(1)
    async with here.another() as client, anyio.create_task_group() as tasks:

        async def cancel() -> None:
            await settled(lambda: here.contest.groups, within_s=60)
            await here.gym.cancel("run")

        tasks.start_soon(cancel)
        with anyio.fail_after(3600):
            records = [record async for record in client.collect("run")]
    assert [record.outcome for record in records] == [Cancelled()] * 4
    assert all(about(record)["outcome"] == {"type": "cancelled"} for record in records)


async def test_a_cancelled_group_is_not_compared(here: Here) -> None:
    await here.start()
    await here.gym.driver.open_run(RunInfo(run="run", total=4))
    await here.gym.cancel("run", 0)
    await anyio.sleep(1)
    await here.gym.driver.publish(here.specs("run", 1))
    records = [record async for record in here.gym.collect("run")]
    assert [record.outcome for record in records] == [Cancelled()] * 4
    assert here.contest.groups == []


async def test_the_next_client_of_a_run_goes_on_with_its_comparisons(here: Here) -> None:
    """The first client dies while a comparison is being made, with one row of its group on the disk."""
    await here.start()
    here.contest.release = anyio.Event()
    info = RunInfo(run="run", total=8, environments=["contest"], agents=["tool_loop"])
    async with here.another() as first:
        scope = anyio.CancelScope()
        async with anyio.create_task_group() as tasks:

            async def make() -> None:
                with scope:
                    async for _ in run_rollouts(first.driver, here.specs("run", 2, attached=True), info):
                        pass

            tasks.start_soon(make)
            await settled(lambda: len(here.contest.groups) == 2, within_s=600)
            first.driver.bus.cut()  # pyright: ignore[reportAttributeAccessIssue]
            scope.cancel()
    await anyio.sleep(20)  # the workers notice, and give the comparisons back
    here.contest.release.set()
    asked = sum(here.policy.asked.values())
    remains = await take_up(here.gym.driver, "run", Progress())
    assert remains is not None
    assert len(remains.results) == 8
    made = run_rollouts(here.gym.driver, [], msgspec.structs.replace(info, total=0), remains=remains)
    with anyio.fail_after(3600):
        records = [record async for record in made]
    assert rewards(records) == {(task, index): index for task in range(2) for index in range(4)}
    assert sum(here.policy.asked.values()) == asked
    assert len(here.judge.calls.items) == 8, "the journal has what the judge has answered"


async def test_a_comparison_that_failed_is_made_again_and_its_rollouts_are_not(
    here: Here, tmp_path: Path
) -> None:
    """Of two groups one fails, and the client dies while the other one is compared."""
    files = OutputFiles.beside(tmp_path / "out.jsonl")
    await here.start()
    here.contest.release = anyio.Event()
    here.contest.trouble = [ModelRefused("bad key", stage="judge")]
    info = RunInfo(run="run", total=8, environments=["contest"], agents=["tool_loop"])
    async with here.another() as first:
        scope = anyio.CancelScope()
        failed: list[RolloutRecord] = []

        async def make() -> None:
            with scope:
                async for record in run_rollouts(first.driver, here.specs("run", 2, attached=True), info):
                    failed.append(record)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(make)
            await settled(lambda: len(here.contest.groups) == 2 and len(failed) == 4, within_s=600)
            first.driver.bus.cut()  # pyright: ignore[reportAttributeAccessIssue]
            scope.cancel()
    with ResultWriter(files) as writer:
        for record in failed:
            writer.write(record)
    await anyio.sleep(20)
    here.contest.release.set()
    progress = Progress()
    progress.read(files, Metrics())
    asked = sum(here.policy.asked.values())
    remains = await take_up(here.gym.driver, "run", progress)
    assert remains is not None
    with anyio.fail_after(3600):
        records = [record async for record in run_rollouts(here.gym.driver, [], info, remains=remains)]
    assert rewards(records) == {(task, index): index for task in range(2) for index in range(4)}
    assert sum(here.policy.asked.values()) == asked


async def test_a_group_does_not_wait_for_what_an_earlier_part_of_the_run_has_made(here: Here) -> None:
    await here.start()
    had = {(0, 1), (0, 3)}
    left = [spec for spec in here.specs("run", 1, 5) if (spec.task_index, spec.rollout_index) not in had]
    info = RunInfo(run="run", total=3, environments=["contest"], agents=["tool_loop"])
    made = run_rollouts(here.gym.driver, left, info, settled=lambda task, rollout: (task, rollout) in had)
    with anyio.fail_after(3600):
        assert [record.reward async for record in made] == [0, 1, 2]
    assert here.contest.groups == [[0, 2, 4]]


async def test_a_rollout_is_not_made_again_once_its_group_was_compared_without_it(
    here: Here, tmp_path: Path
) -> None:
    files = OutputFiles.beside(tmp_path / "out.jsonl")
    await here.start(r1=ModelUnavailable("down"))
    with ResultWriter(files) as writer:
        for record in await here.rollouts():
            writer.write(record)
    progress = Progress()
    progress.read(files, Metrics())
    assert [progress.settled(0, index) for index in range(5)] == [True, True, True, True, False]


@pytest.mark.parametrize("victim", ["resource-1", "agent-1", "both"])
async def test_a_worker_that_dies_in_a_comparison_pays_no_judge_twice(here: Here, victim: str) -> None:
    await here.start()
    here.contest.release = anyio.Event()
    async with anyio.create_task_group() as tasks:
        found: list[RolloutRecord] = []

        async def make() -> None:
            found.extend(await here.rollouts())

        tasks.start_soon(make)
        (run,) = [""]
        with anyio.fail_after(600):
            while not run:
                await anyio.sleep(0.05)
                run = next((info.run for info in await here.gym.runs()), "")
            subject = f"{journal_subject(run, 0, -1)}.role.*"
            while len(await here.gym.driver.bus.latest(subject)) < 4:
                await anyio.sleep(0.05)
        await here.system.add_resource(here.loaded, name="resource-2")
        await here.system.add_agent(name="agent-2", slots=64)
        for name in ("resource-1", "agent-1") if victim == "both" else (victim,):
            here.system.kill(name)
        here.contest.release.set()
    assert [record.reward for record in found] == [0, 1, 2, 3]
    assert len(here.judge.calls.items) == 4
    assert [record.roles["judge"].calls for record in found if record.roles] == [4]


async def test_a_rollout_without_a_group_cannot_wait_for_one(here: Here) -> None:
    await here.start()
    (spec, _) = here.specs("run", 1, repeats=2)
    (record,) = await here.system.make(msgspec.structs.replace(spec, group=None))
    assert "Pending is for rollouts that are published in groups" in fault(record).message


async def test_pending_without_a_comparison_is_refused() -> None:
    async with small_system() as system:
        resource = catalogue.environment(str(CONTEST)).definition.resource
        await system.add_resource(environment(Environment(resource=resource, description="d"), "contest"))
        await system.add_model(Engine(answer("x")))
        await system.add_agent()
        (record,) = await system.make(rollout_spec(row(), environment="contest"))
        assert "has no compare" in fault(record).message

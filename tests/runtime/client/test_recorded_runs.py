"""Runs of the client that are written to files and resumed, datasets, and runs that are published."""

from __future__ import annotations

import json
import os
from contextlib import aclosing
from pathlib import Path

import anyio
import pytest
from gym_runtime import Image
from gym_runtime.adapters import CallContext, ModelAnswer, ModelCall
from gym_runtime.errors import UsageError
from gym_runtime.files import stored_row
from gym_runtime.files.results import Lock
from gym_runtime.training import open_dataset
from gym_testing.small_system import Engine, answer
from runtime.client.running_client import NAME, rows, running_client
from runtime.environment.image_samples import png

pytestmark = pytest.mark.anyio


def keys_in(path: Path) -> list[tuple[int, int]]:
    found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in found]


def run_of(output: Path) -> str:
    return json.loads(output.with_name("out_run.json").read_text())["run"]


async def test_rows_and_what_they_come_to_are_on_their_files(tmp_path: Path) -> None:
    output = tmp_path / "made" / "out.jsonl"
    async with running_client() as here:
        made = here.gym.rollouts(rows(3), environment=NAME, repeats=2, output=output)
        first = await anext(made)
        assert (first.task_index, first.rollout_index) in keys_in(output)
        rest = [record async for record in made]
        assert len(rest) == 5
        await here.at_rest()
    assert sorted(keys_in(output)) == [(task, rollout) for task in range(3) for rollout in range(2)]
    manifest = json.loads(output.with_name("out_run.json").read_text())
    assert (manifest["run"], manifest["rollouts"]) == (first.run, 6)
    assert manifest["counts"]["completed"] == 6
    assert len(keys_in(output.with_name("out_materialized_inputs.jsonl"))) == 6
    assert json.loads(output.with_name("out_aggregate_metrics.json").read_text())
    assert not output.with_name("out_reward_profiling.jsonl").exists()


async def test_a_run_that_is_left_early_is_resumed(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    async with running_client() as here:
        made = here.gym.rollouts(rows(40), environment=NAME, output=output, in_flight=4)
        async with aclosing(made):
            for _ in range(5):
                await anext(made)
        had = keys_in(output)
        assert 5 <= len(had) < 40
        with Lock(output):  # it is free again
            pass
        more = here.gym.rollouts(rows(40), environment=NAME, output=output, resume=True, ordered=True)
        order = [record.task_index async for record in more]
        assert order == sorted(order)
        assert not set(had) & {(task, 0) for task in order}
        assert sorted(keys_in(output)) == [(task, 0) for task in range(40)]
        nothing = here.gym.rollouts(rows(40), environment=NAME, output=output, resume=True)
        assert [record async for record in nothing] == []
        await here.at_rest()


async def test_other_rows_other_settings_and_files_in_use_are_refused(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    async with running_client() as here:
        assert len([record async for record in here.gym.rollouts(rows(2), environment=NAME, output=output)])
        before = output.read_bytes()

        async def refused(words: str, count: int = 2, **keywords: object) -> None:
            made = here.gym.rollouts(rows(count), environment=NAME, output=output, **keywords)  # pyright: ignore[reportArgumentType]
            with pytest.raises(UsageError, match=words):
                [record async for record in made]

        await refused("has rows already")
        await refused("the input rows changed", 3, resume=True)
        await refused("repeats was 1, is 2", resume=True, repeats=2)
        with Lock(output):
            await refused("is being written by pid", resume=True)
        with pytest.raises(UsageError, match="give output=FILE"):
            here.gym.rollouts(rows(2), environment=NAME, resume=True)
        assert output.read_bytes() == before


async def test_a_bad_row_is_named_and_nothing_starts(tmp_path: Path) -> None:
    async with running_client() as here:
        made = here.gym.rollouts([*rows(1), '{"a'], environment=NAME, output=tmp_path / "out.jsonl")
        with pytest.raises(UsageError, match=r"^rows:2: "):
            await anext(made)
        assert here.engine.calls.items == []
        assert os.listdir(tmp_path) == []


async def test_a_dataset_is_read_as_the_command_line_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    lines = [json.dumps(row) for row in rows(3)]
    file.write_text("\n".join([*lines, lines[0]]) + "\n")
    async with running_client() as here:
        with open_dataset(file, environment=NAME) as dataset:
            for output in (None, tmp_path / "out.jsonl"):
                made = [record async for record in here.gym.rollouts(dataset, output=output)]
                # A row that comes again is one more rollout of the same task.
                found = sorted((record.task_index, record.rollout_index) for record in made)
                assert found == [(0, 0), (0, 1), (1, 0), (2, 0)]
            run = await here.gym.publish(dataset)
            collected = [record async for record in here.gym.collect(run.run)]
            assert len(collected) == run.total == 4
        await here.at_rest()


async def test_a_published_run_is_made_without_its_client() -> None:
    async with running_client() as here, here.another() as other:
        run = await here.gym.publish(rows(5), environment=NAME, repeats=2)
        assert (run.total, run.environments, run.agents) == (10, [NAME], ["tool_loop"])
        assert not run.attached
        records = [record async for record in other.collect(run.run)]
        assert {record.run for record in records} == {run.run}
        assert len(records) == 10
        with pytest.raises(UsageError, match=r"^rows:1: "):
            await here.gym.publish(['{"a'], environment=NAME)
        await here.at_rest()


async def test_what_a_dead_client_left_is_used_and_handed_over_in_order(tmp_path: Path) -> None:
    """The broker has results of rows that the next client has not read yet when they come."""
    output = tmp_path / "out.jsonl"
    async with running_client() as here:
        async with here.another() as first:
            made = first.rollouts(rows(30), environment=NAME, output=output, in_flight=8)
            async with aclosing(made):
                for _ in range(3):
                    await anext(made)
                first.driver.bus.cut()  # pyright: ignore[reportAttributeAccessIssue]
        had, run = keys_in(output), run_of(output)
        await anyio.sleep(20)  # the workers notice
        calls = len(here.engine.calls.items)
        more = here.gym.rollouts(
            rows(30), environment=NAME, output=output, resume=True, ordered=True, in_flight=2
        )
        order = [record.task_index async for record in more]
        assert order == sorted(set(range(30)) - {task for task, _ in had})
        assert sorted(keys_in(output)) == [(task, 0) for task in range(30)]
        assert run_of(output) == run, "it is the same run"
        assert calls < len(here.engine.calls.items) < 2 * 30 + calls


async def test_images_are_files_where_it_is_asked(tmp_path: Path) -> None:
    shown = {"type": "input_image", "image_url": Image(png(2, 2)).part()["image_url"]}
    (row,) = rows(1)
    said = [{"role": "user", "content": [{"type": "input_text", "text": "Count."}, shown]}]
    row["responses_create_params"] = {**row["responses_create_params"], "input": said}
    output = tmp_path / "out.jsonl"
    async with running_client() as here:
        made = here.gym.rollouts([row], environment=NAME, output=output, images="files")
        (record,) = [one async for one in made]
    assert shown["image_url"].encode() in bytes(record.row)
    (file,) = (tmp_path / "out_images").iterdir()
    assert file.read_bytes() == png(2, 2)
    assert f'"image_url":"out_images/{file.name}"' in output.read_text()
    assert stored_row(f"{output}:0@0") == (bytes(record.row) + b"\n", 0)
    output.write_text("{}\n")
    with pytest.raises(UsageError, match=r":1 is no rollout row .*; remove or repair the line"):
        stored_row(f"{output}:0@0")


async def test_of_a_rollouts_rows_the_first_is_forked_and_of_its_failures_the_last(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    for fields, chosen in (({"reward": 1}, 0), ({"_ng_failure_class": "model"}, 1)):
        lines = [
            json.dumps({"_ng_task_index": 0, "_ng_rollout_index": 0, "number": number, **fields}) + "\n"
            for number in range(2)
        ]
        path.write_text("".join(lines) + lines[0][:9])
        for named in ("0", "0.0"):
            assert stored_row(f"{path}:{named}@0") == (lines[chosen].encode(), 0)


async def test_results_of_other_rows_are_not_taken_by_a_run_that_has_no_row_yet(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"

    class Slow(Engine):
        async def respond(self, call: ModelCall, context: CallContext) -> ModelAnswer:
            await anyio.sleep(1)
            return await super().respond(call, context)

    async with running_client(engine=Slow(answer("done"))) as here:
        async with here.another() as first, anyio.create_task_group() as tasks:

            async def killed() -> None:
                async for _ in first.rollouts(rows(3, old=True), environment=NAME, output=output):
                    raise AssertionError("its client is gone")

            tasks.start_soon(killed)
            await anyio.sleep(0.5)
            first.driver.bus.cut()  # pyright: ignore[reportAttributeAccessIssue]
            await here.engine.calls.until(3)
            await anyio.sleep(0.1)
            tasks.cancel_scope.cancel()
        assert (keys_in(output), len(await here.system.bus.counts("rollout.>"))) == ([], 3)
        old = run_of(output)
        more = here.gym.rollouts(rows(3, old=False), environment=NAME, output=output, resume=True)
        assert [json.loads(bytes(record.row))["old"] async for record in more] == [False] * 3
        assert run_of(output) != old
        assert len(here.engine.calls.items) == 6

"""Recorded runs of rows whose inputs are long: results lack them, and files and records have them."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import gym_runtime.rollout.record
import pytest
from gym_runtime.errors import ModelRefused, UsageError
from gym_runtime.files.forks import forked
from gym_runtime.messages.outcomes import Failed, RolloutRecord, decode_record
from gym_runtime.messages.responses import CreateParams
from gym_runtime.messages.rollout_spec import LONG_ROW_BYTES
from gym_testing.background import settled
from gym_testing.small_system import Engine, answer
from msgspec import Raw
from runtime.client.running_client import NAME, RunningClient, rows, running_client

pytestmark = pytest.mark.anyio


def long_rows(count: int, **fields: Any) -> list[dict[str, Any]]:
    found = rows(count, **fields)
    for number, row in enumerate(found):
        row["responses_create_params"] = {"input": f"{number}: " + "wörter " * LONG_ROW_BYTES}
    return found


def inputs_of(path: Path) -> dict[int, str]:
    lines = path.read_bytes().splitlines() if path.exists() else []
    found = [json.loads(line) for line in lines]
    assert len(found) == len({(row["_ng_task_index"], row["_ng_rollout_index"]) for row in found})
    return {row["_ng_task_index"]: row["responses_create_params"]["input"] for row in found}


def inputs_asked(given: list[dict[str, Any]]) -> dict[int, str]:
    return {number: row["responses_create_params"]["input"] for number, row in enumerate(given)}


async def stored(here: RunningClient) -> list[RolloutRecord]:
    """What the broker keeps of results, as it is."""
    found: list[RolloutRecord] = []
    for subject in await here.system.bus.counts("rollout.>"):
        found += [decode_record(one.payload) for one in await here.system.bus.latest(subject)]
    return found


async def killed(here: RunningClient, given: list[dict[str, Any]], output: Path, results: int) -> None:
    """Run rows with a client that disappears; so many results are stored, and it has had none of them."""
    async with here.another() as first, anyio.create_task_group() as tasks:

        async def run() -> None:
            async for _ in first.rollouts(given, environment=NAME, output=output):
                raise AssertionError("its client is gone")

        tasks.start_soon(run)
        await here.engine.calls.until(1)
        first.driver.bus.cut()  # pyright: ignore[reportAttributeAccessIssue]
        with anyio.fail_after(15):
            while len(await stored(here)) < results:
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()


class Slow(Engine):
    async def respond(self, call: Any, context: Any) -> Any:
        await anyio.sleep(0.5)
        return await super().respond(call, context)


async def test_results_lack_the_long_input_and_every_row_has_it(tmp_path: Path) -> None:
    given, output = [*rows(1), *long_rows(3)], tmp_path / "out.jsonl"
    seen: list[RolloutRecord] = []
    async with running_client(slots=2) as here:
        made = here.gym.rollouts(given, environment=NAME, repeats=2, output=output)
        async with aclosing(made):
            async for record in made:
                seen += await stored(here)
                said = json.loads(bytes(record.row))["responses_create_params"]["input"]
                assert said == inputs_asked(given)[record.task_index]
                assert record.messages[0] == {"role": "user", "content": said}
        whole = [one async for one in here.gym.rollouts(given, environment=NAME)]
    assert {one.task_index for one in seen if one.left_out is None} == {0}
    assert {one.task_index for one in seen if one.left_out is not None} >= {1, 2}
    assert max(len(one.row) for one in seen) < 10_000
    lines = map(json.loads, output.read_bytes().splitlines())
    written = {(row["_ng_task_index"], row["_ng_rollout_index"]): row for row in lines}
    assert len(written) == 8
    # Beside what differs between any two runs, the row is what a client without files gets.
    for record in whole:
        row, same = written[record.task_index, 0], json.loads(bytes(record.row))
        assert list(row) == list(same)
        for name in row.keys() - {"response", "_gym"}:
            assert row[name] == same[name]


async def test_what_a_killed_client_left_is_written_whole_by_the_next(tmp_path: Path) -> None:
    given, output = long_rows(6), tmp_path / "out.jsonl"
    async with running_client(engine=Slow(answer("done"))) as here:
        await killed(here, given, output, results=6)
        assert inputs_of(output) == {}
        assert all(one.left_out is not None for one in await stored(here))
        more = here.gym.rollouts(given, environment=NAME, output=output, resume=True, in_flight=1)
        assert len([record async for record in more]) == 6
        assert len(here.engine.calls.items) == 6, "nothing is asked again"
        assert inputs_of(output) == inputs_asked(given)
        assert inputs_of(tmp_path / "out_materialized_inputs.jsonl") == inputs_asked(given)


async def test_a_changed_file_gives_no_wrong_row_and_the_rollout_is_made_again(tmp_path: Path) -> None:
    given, output = long_rows(3), tmp_path / "out.jsonl"
    materialized = tmp_path / "out_materialized_inputs.jsonl"
    async with running_client(engine=Slow(answer("done"))) as here:
        await killed(here, given, output, results=3)
        lines = materialized.read_bytes().splitlines(keepends=True)
        lines[1] = lines[1].replace(b"1: w", b"2: w")
        materialized.write_bytes(b"".join(lines))
        more = here.gym.rollouts(given, environment=NAME, output=output, resume=True)
        (failed,) = [one async for one in more if isinstance(one.outcome, Failed)]
        assert failed.task_index == 1
        assert "lacks its row's input" in failed.ending
        assert "--resume" in failed.ending
        again = here.gym.rollouts(given, environment=NAME, output=output, resume=True)
        assert [one.task_index async for one in again] == [1]
        assert inputs_of(output) == inputs_asked(given)


async def test_failures_have_the_input_and_are_run_again(tmp_path: Path) -> None:
    given, output = long_rows(2), tmp_path / "out.jsonl"
    turns = [ModelRefused("no", stage="model")]
    async with running_client(engine=Engine(*turns, by_attempt={2: [answer("done")]})) as here:
        made = [one async for one in here.gym.rollouts(given, environment=NAME, output=output)]
        assert {type(one.outcome) for one in made} == {Failed}
        assert inputs_of(tmp_path / "out_failures.jsonl") == inputs_asked(given)
        again = here.gym.rollouts(given, environment=NAME, output=output, resume=True, retry_failed=True)
        assert [one.reward async for one in again] == [0.0, 0.0]
        assert inputs_of(output) == inputs_asked(given)


async def test_another_client_is_told_where_the_rows_are_and_the_run_loses_nothing(tmp_path: Path) -> None:
    given, output = long_rows(4), tmp_path / "out.jsonl"
    refused: list[str] = []
    async with running_client(slots=1) as here, here.another() as other, anyio.create_task_group() as tasks:

        async def collect(run: str) -> None:
            with pytest.raises(UsageError) as raised:
                [one async for one in other.collect(run)]
            refused.append(str(raised.value))

        count = 0
        async for record in here.gym.rollouts(given, environment=NAME, output=output, in_flight=1):
            if not count:
                tasks.start_soon(collect, record.run)
                await settled(lambda: bool(refused))
            count += 1
    assert "gym-runtime run --resume" in refused[0]
    assert inputs_of(output) == inputs_asked(given)


async def test_results_of_older_workers_are_taken_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They do not know ``has_row``, and so leave nothing out."""

    def as_it_is(row: Raw, params: CreateParams) -> tuple[CreateParams, None]:
        return params, None

    monkeypatch.setattr(gym_runtime.rollout.record, "without_input", as_it_is)
    given, output = long_rows(2), tmp_path / "out.jsonl"
    async with running_client() as here:
        made = here.gym.rollouts(given, environment=NAME, output=output)
        assert len([one async for one in made]) == 2
    assert inputs_of(output) == inputs_asked(given)


@pytest.mark.slow
async def test_rows_are_whole_without_the_file_of_inputs(tmp_path: Path) -> None:
    """What reads a run needs its rows alone; ``profile``, which reads the inputs, says what it lacks."""
    given, output = long_rows(2), tmp_path / "out.jsonl"
    async with running_client() as here:
        assert len([one async for one in here.gym.rollouts(given, environment=NAME, output=output)]) == 2
    (tmp_path / "out_materialized_inputs.jsonl").unlink()
    for line in output.read_bytes().splitlines():
        row = json.loads(forked(line, 1))
        assert row["responses_create_params"]["input"] in inputs_asked(given).values()
    script = Path(sys.executable).with_name("gym-runtime")
    for status, command in (
        (0, ("reverify", "--rollouts", "out.jsonl", "--output", "judged.jsonl", "--strict")),
        (0, ("export", "out.jsonl", "--output", "out.parquet")),
        (0, ("compare", "out.jsonl", "judged.jsonl")),
        (0, ("show", "out.jsonl:1")),
        (2, ("profile", "out.jsonl")),
    ):
        # In a thread: the virtual clock does not know of processes.
        done = await anyio.to_thread.run_sync(
            partial(subprocess.run, [script, *command], cwd=tmp_path, check=False, capture_output=True)
        )
        assert done.returncode == status, (command, done.stderr)
    assert inputs_of(tmp_path / "judged.jsonl") == inputs_asked(given)
    assert done.stderr.startswith(
        b"gym-runtime: there is no file out_materialized_inputs.jsonl, which has the"
    )
    assert done.stderr.endswith(b"asked for: put it there\n")

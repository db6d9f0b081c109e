"""What a client makes of records that others stored: junk is named and left out, the rest counts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from gym_runtime.client import RunInfo
from gym_runtime.client.stored import stored_results
from gym_runtime.errors import UsageError
from gym_runtime.messages import outcomes
from gym_runtime.messages.outcomes import Completed, Failed, RolloutRecord, encode_record
from gym_runtime.messages.rollout_spec import GroupSpan
from gym_runtime.messages.stored_records import MOST_BYTES
from gym_runtime.rollout.comparisons import Comparisons
from gym_runtime.rollout.journal import journal_subject
from gym_testing.small_system import rollout_spec, small_system
from msgspec import Raw
from runtime.client.running_client import COUNT, NAME, rows, running_client
from tables import table

pytestmark = pytest.mark.anyio

JUNK = [
    b"",
    b"null",
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"run":"junk"',
    b'{"run":"another","total":1}',
    b'{"run":"junk","total":1,"environments":"mcqa"}',
    b"\x00gym-blob\x00junk",
    b'{"run":"junk","total":1,"more":[%b1]}' % (b"1," * MOST_BYTES),
]


def record(task: int, rollout: int = 0, **more: Any) -> RolloutRecord:
    about = {"run": "run", "task_index": task, "rollout_index": rollout, "environment": NAME}
    return RolloutRecord(**about, outcome=Completed(), row=Raw(b"{}"), **more)


@table("junk", JUNK)
async def test_a_malformed_run_does_not_hide_the_others(junk: bytes) -> None:
    async with running_client() as here:
        await here.gym.driver.open_run(RunInfo(run="good", total=1))
        await here.system.bus.append("runs.junk", junk)
        assert [info.run for info in await here.gym.runs()] == ["good"]
        assert [info.run for info in (await here.gym.status()).runs] == ["good"]
        # A worker that starts reads them too, and a run is made as ever.
        await here.system.add_agent(name="agent-2")
        assert [type(one.outcome) async for one in here.rollouts(2)] == [Completed] * 2
        with pytest.raises(UsageError, match=r"what is stored of run 'junk' cannot be read .*cancel junk"):
            await here.gym.run("junk")
        await here.gym.cancel("junk")
        assert (await here.gym.run("junk")).state == "cancelled"


async def test_junk_under_a_run_of_results_does_not_end_what_counts_them() -> None:
    async with running_client() as here:
        await here.gym.driver.open_run(RunInfo(run="run", total=3))
        for subject in ("rollout.run.junk", "rollout.run.0.zero", "rollout.run.007.0", "rollout.run.1.0.0"):
            await here.system.bus.commit(subject, b"{}")
        await here.system.bus.commit("rollout.run.0.0", encode_record(record(0)))
        assert (await here.gym.status()).progress["run"].done == 1


async def test_a_result_counts_as_that_of_its_subject() -> None:
    async with small_system() as system:
        await system.bus.commit("rollout.run.0.0", encode_record(record(0)))
        await system.bus.commit("rollout.run.1.0", encode_record(record(0, reward=1.0)))
        results = stored_results(system.bus, "run")
        found = [(await anext(results)).record for _ in range(2)]
    assert [(one.task_index, type(one.outcome)) for one in found] == [(0, Completed), (1, Failed)]
    assert isinstance(found[1].outcome, Failed)
    assert "cannot be read (it says that it is of 'run.0.0')" in found[1].outcome.fault.message
    assert msgspec.json.decode(found[1].row)["_gym"]["rollout_id"] == "run.1.0"


@table("junk", [*JUNK, b'{"tokens": [{"item": 7}]}'])
async def test_a_result_that_cannot_be_read_is_a_failure_and_the_run_ends(junk: bytes) -> None:
    async with running_client(*COUNT) as here:
        await here.gym.driver.open_run(RunInfo(run="run", total=3))
        await here.system.bus.commit("rollout.run.1.0", junk)
        await here.gym.driver.publish(here.tasks("run", 3))
        found = {one.task_index: one.outcome async for one in here.gym.collect("run")}
    assert {task: type(outcome) for task, outcome in found.items()} == {0: Completed, 1: Failed, 2: Completed}


async def test_tokens_that_do_not_fit_their_row_cannot_be_read() -> None:
    stored = msgspec.json.decode(encode_record(record(0)))
    stored["tokens"] = [{"item": 7, "ids": "", "prompt": 0, "logprobs": ""}]
    with pytest.raises(msgspec.DecodeError):
        outcomes.read_record(msgspec.json.encode(stored))


async def test_a_group_does_not_wait_for_a_result_that_cannot_be_read() -> None:
    span = GroupSpan(first=0, size=3)
    for order in ([0, 1, 2], [1, 0, 2], [0, 2, 1]):
        comparisons = Comparisons()
        found: list[object] = []
        for index in order:
            one = record(0, index, group=None if index == 1 else span)
            if index == 1:
                comparisons.lose(one)
            found += comparisons.take(one)
        assert len(found) == 3
        assert not comparisons._open


async def test_a_turn_that_cannot_be_read_starts_the_rollout_again() -> None:
    """Not from the turn before: the answers after the gap would be taken for those of other turns."""
    async with running_client(*COUNT) as here:
        journal = journal_subject("run", 0, 0)
        await here.system.bus.append(journal, b'{"digest":"x","answer":{},"environment":[]}')
        await here.system.bus.append(journal, b'{"digest":')
        await here.system.bus.append(f"{journal}.spent", b'{"attempts":"many"}')
        task = rollout_spec(msgspec.json.encode(rows(1)[0]), environment=NAME, taken_up=True)
        [made] = await here.system.make(task)
        assert type(made.outcome) is Completed
        assert len(here.engine.calls.items) == len(COUNT)

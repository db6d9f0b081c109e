"""Isolated verification: replayed, cancelled, judged, refused."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from functools import partial

import anyio
import anyio.lowlevel
import psutil
import pytest
from gym_runtime.environment import catalogue
from gym_runtime.environment.isolated import run_isolated, start_ahead, verify_isolated
from gym_runtime.environment.roles import Models
from gym_runtime.environment.shapes import as_features
from gym_runtime.environment.verdict import Pending, make_response
from gym_runtime.errors import ResourceError, TaskError
from gym_runtime.messages.rollout_spec import Candidate
from gym_sandbox import pool
from runtime.bounds import bounds as bounds
from runtime.environment.isolated.heavy_module import descendants, row

from runtime import sandboxed_functions

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(60)]


CALL = {"type": "function_call", "call_id": "c", "name": "count_up", "arguments": "{}"}


COUNTED = {"type": "function_call_output", "call_id": "c", "output": "{}"}


async def test_calls_are_replayed_and_the_verdict_comes_back_whatever_the_verifier_prints(
    module: str,
) -> None:
    verdict = await verify_isolated(
        module, row("chatter"), make_response(CALL, COUNTED, CALL, COUNTED, "done"), 15
    )
    assert verdict.reward == 2.0
    assert verdict.fields["pid"] != os.getpid()
    again = await verify_isolated(module, row("chatter"), make_response("done"), 15)
    assert again.reward == 0.0
    assert again.fields != verdict.fields


def children() -> set[int]:
    return {process.pid for process in psutil.Process().children()}


async def test_a_process_that_was_started_ahead_takes_the_first_verification(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "OVERRUN_S", 60.0)  # no other process takes its turn,
    monkeypatch.setattr(os, "cpu_count", lambda: 8)  # and none is begun for the next call
    before = children()
    environment = catalogue.environment(module)
    assert start_ahead([environment]) == [environment.name]
    started = children() - before
    assert started
    await verify_isolated(module, row(""), make_response("done"), 15, environment.asset_folders)
    assert children() - before == started


async def test_a_rollout_may_wait_for_its_group_whose_comparison_is_not_isolated(module: str) -> None:
    pending = await verify_isolated(module, row("wait"), make_response(CALL, COUNTED, "done"), 15)
    assert isinstance(pending, Pending)
    assert pending.features["count"] == 1
    assert pending.features["pid"] != os.getpid()
    candidates = [Candidate(rollout_index=index, features=as_features(pending.features)) for index in (0, 1)]
    resource = catalogue.environment(module).resource
    assert [one.reward for one in await resource.compare(row("wait"), candidates, Models())] == [
        float(os.getpid())
    ] * 2


async def test_what_goes_wrong_is_a_fault_and_the_next_one_is_judged(module: str) -> None:
    silence = make_response()
    with pytest.raises(ResourceError, match="ZeroDivisionError: by nought"):
        await verify_isolated(module, row("raise"), silence, 15)
    with pytest.raises(TaskError, match="missing required field `how`"):
        await verify_isolated(module, b'{"responses_create_params": {}}', silence, 15)
    with pytest.raises(ResourceError, match="the process that verified died"):
        await verify_isolated(module, row("die"), silence, 15)
    with pytest.raises(ResourceError, match=r"verification took longer than 0.2 s"):
        await verify_isolated(module, row("spin"), silence, 0.2)
    assert (await verify_isolated(module, row(""), silence, 15)).reward == 0.0


async def test_cancelling_kills_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "OVERRUN_S", 60.0)  # no other process takes its turn meanwhile,
    monkeypatch.setattr(os, "cpu_count", lambda: 8)  # and none is begun for the next call
    await run_isolated(sandboxed_functions.pid, timeout_s=15)
    before, before_threads = descendants(), threaded()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(run_isolated, sandboxed_functions.wait_with_a_thread, timeout_s=60))
        with anyio.fail_after(15):
            while not threaded() - before_threads:
                await anyio.sleep(0.02)
        tasks.cancel_scope.cancel()
    assert descendants() <= before


def threaded() -> set[int]:
    """Processes with threads: one more executes `sandboxed_functions.wait_with_a_thread`."""
    found: set[int] = set()
    for one in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it has ended since it was listed
            if one.num_threads() > 1:
                found.add(one.pid)
    return found


async def test_more_calls_than_processes_wait_without_spending_their_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    done: list[float] = []

    async def work() -> None:
        await run_isolated(sandboxed_functions.sleep, 0.3, timeout_s=1)
        done.append(time.monotonic())

    began_s = time.monotonic()
    async with anyio.create_task_group() as tasks:
        for _ in range(6):
            tasks.start_soon(work)
    assert len(done) == 6
    # One after the other in two processes at most.
    assert done[-1] - began_s >= 0.8

"""Killing and freezing parts of a real system in the middle of a run loses and repeats nothing."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Sequence

import anyio
import pytest
from gym_runtime import connect
from gym_runtime.client import make_pools
from gym_runtime.messages.outcomes import Completed, RolloutRecord
from gym_runtime.system.hosting import host
from gym_runtime.system.spec import PoolSpec, SystemSpec
from gym_runtime.system.system import System, running
from gym_runtime.workers.adapter import ModelSettings
from stubs import stub_engine

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.anyio, pytest.mark.timeout(180)]

ROLLOUTS = 2000
ROW = b"""{"responses_create_params": {"input": [{"role": "user", "content": "add 1, add 2, get the count"}],
"tools": [{"type": "function", "name": "increment_counter", "strict": true, "parameters": {"type": "object",
"properties": {"count": {"type": "integer"}}, "required": ["count"], "additionalProperties": false}}]},
"initial_count": 3, "expected_count": 4, "number": %d}"""

Injection = Callable[[System], None]


def kill(kind: str, number: int = signal.SIGKILL) -> Injection:
    """Signal one worker of a kind, or the broker."""

    def injection(system: System) -> None:
        if kind == "broker":
            os.kill(system.broker_pid, number)
        else:
            os.kill(next(event.pid for event in system.workers.values() if event.kind == kind), number)

    return injection


async def run(
    injections: dict[int, Injection], layout: Callable[[Sequence[PoolSpec]], Sequence[PoolSpec]] = tuple
) -> Counter[tuple[int, int]]:
    """2,000 rollouts in a system of two workers of each kind; faults are injected at these counts."""
    seen: Counter[tuple[int, int]] = Counter()
    rows = [ROW % index for index in range(ROLLOUTS)]
    with stub_engine.running("--latency-s", "0.05") as engine:
        model = ModelSettings(provider="openai", name="stub", urls=(engine.url,))
        pools = make_pools(["example_session_state_mgmt"], model, workers=2, concurrency=256)
        async with running(SystemSpec(pools=tuple(layout(pools)))) as system, connect(nats=system.url) as gym:
            records: list[RolloutRecord] = []
            async for record in gym.rollouts(rows, environment="example_session_state_mgmt"):
                records.append(record)
                seen[record.task_index, record.rollout_index] += 1
                injection = injections.get(len(records))
                if injection is not None:
                    injection(system)
    failures = [record.outcome for record in records if not isinstance(record.outcome, Completed)]
    assert not failures, failures[:3]
    assert all(record.reward is not None for record in records)
    return seen


@pytest.mark.parametrize(
    "victim",
    [
        pytest.param("agent", marks=pytest.mark.soak),
        pytest.param("resource", marks=pytest.mark.soak),
        pytest.param("model", marks=pytest.mark.soak),
        pytest.param("broker", marks=pytest.mark.soak),
    ],
)
async def test_killing_one_of_two_workers_or_the_broker_ends_with_every_rollout_once(victim: str) -> None:
    seen = await run({500: kill(victim)})
    assert len(seen) == ROLLOUTS
    assert set(seen.values()) == {1}


async def test_killing_all_four_in_one_run_ends_with_every_rollout_once() -> None:
    seen = await run({300: kill("agent"), 700: kill("resource"), 1100: kill("model"), 1500: kill("broker")})
    assert len(seen) == ROLLOUTS
    assert set(seen.values()) == {1}


async def test_killing_a_worker_that_hosts_others_ends_with_every_rollout_once() -> None:
    seen = await run({700: kill("agent"), 1500: kill("broker")}, host)
    assert len(seen) == ROLLOUTS
    assert set(seen.values()) == {1}


@pytest.mark.soak
@pytest.mark.parametrize("victim", ["agent", "resource", "model"])
async def test_a_worker_frozen_for_longer_than_its_lease_repeats_nothing(victim: str) -> None:
    frozen: list[int] = []

    def freeze(system: System) -> None:
        pid = next(event.pid for event in system.workers.values() if event.kind == victim)
        frozen.append(pid)
        os.kill(pid, signal.SIGSTOP)

    async with anyio.create_task_group() as tasks:

        async def thaw() -> None:
            while not frozen:
                await anyio.sleep(0.05)
            await anyio.sleep(9)
            os.kill(frozen[0], signal.SIGCONT)

        tasks.start_soon(thaw)
        seen = await run({500: freeze})
    assert len(seen) == ROLLOUTS
    assert set(seen.values()) == {1}

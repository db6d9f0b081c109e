"""Whole systems in virtual time with faults by chance: every rollout ends once, and nothing is left.

Every seed is its own schedule (`runtime.workers.simulation`), and all cores play: about two thousand
seeds a minute on each. A failure names its seed::

    python -m pytest tests/runtime/workers/test_simulation.py --seeds 5000
    python -m pytest tests/runtime/workers/test_simulation.py --seeds 1 --first-seed 4711
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path

import anyio
import pytest
from gym_runtime.bus.interface import QueueDepth
from gym_runtime.messages.outcomes import Cancelled, Completed
from gym_testing.background import hosting
from gym_testing.memory import Chances, MemoryBroker
from gym_testing.small_system import SmallSystem, rollout_spec, row
from gym_testing.virtual_clock import run
from runtime.workers.invariants import play_all, silence, violations
from runtime.workers.sample_environments import OPEN, Thinker, environments
from runtime.workers.simulation import play
from runtime.workers.simulation_plan import CHANCES, Plan

SEEDS, SEEDS_OF_CI = 50, 300
BATCH = 50


@pytest.fixture(autouse=True)
def silent() -> None:
    silence()


def batches(config: pytest.Config) -> list[range]:
    first, number = config.getoption("first_seed"), config.getoption("seeds") or SEEDS_OF_CI
    return [range(start, min(start + BATCH, first + number)) for start in range(first, first + number, BATCH)]


@pytest.fixture(scope="module")
def playing(request: pytest.FixtureRequest) -> Iterator[dict[range, Future[tuple[Counter[str], int]]]]:
    """Every batch of seeds that is to be tested, being played on all cores."""
    every = (getattr(item, "callspec", None) for item in request.session.items)
    wanted = {one.params["seeds"]: None for one in every if one is not None and "seeds" in one.params}
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn"), initializer=silence) as pool:
        yield {seeds: pool.submit(play_all, seeds) for seeds in wanted}
        pool.shutdown(cancel_futures=True)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seeds" in metafunc.fixturenames:
        asked = metafunc.config.getoption("seeds")
        each = [
            pytest.param(seeds, marks=[] if asked or seeds[0] < SEEDS else pytest.mark.long)
            for seeds in batches(metafunc.config)
        ]
        metafunc.parametrize("seeds", each, ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_whatever_befalls_a_system_every_rollout_ends_once_and_nothing_is_left(
    seeds: range, playing: dict[range, Future[tuple[Counter[str], int]]]
) -> None:
    outcomes, _ = playing[seeds].result()
    if len(seeds) == BATCH:
        # 96 % of the first 300 seeds do; schedules that nothing survives may fall into one batch.
        assert outcomes["Completed"] >= 0.85 * outcomes.total(), "almost all should survive"


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_lost_sessions_go_on_from_what_they_have_saved(
    playing: dict[range, Future[tuple[Counter[str], int]]],
) -> None:
    restored = sum(future.result()[1] for future in playing.values())
    assert len(playing) * BATCH < SEEDS or restored >= SEEDS // 30


def test_a_calm_system_leaves_nothing_at_all() -> None:
    calm = Plan(
        seed=1, rollouts=["tally", "quest", "once", "saver"], twice=[0], chances=Chances(), injections=[]
    )
    played = play(calm)
    assert violations(calm, played) == []
    assert (played.parts, played.stored) == (1, {"task": 0, "rollout": 0, "journal": 0})


@pytest.mark.slow
def test_a_seed_is_replayed_message_by_message() -> None:
    plans = [
        next(plan for plan in map(Plan.of, range(100)) if plan.chances == chances) for chances in CHANCES
    ]
    for plan in plans:
        first, second = play(plan), play(Plan.of(plan.seed))
        assert len(first.trace) > 10
        assert first.trace == second.trace
        assert first.disk == second.disk


@pytest.mark.slow
def test_a_seed_is_replayed_in_another_process() -> None:
    program = (
        "import structlog\n"
        "structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))\n"
        "from runtime.workers.simulation import play\n"
        "from runtime.workers.simulation_plan import Plan\n"
        "print([play(Plan.of(seed)).digest for seed in range(6)])\n"
    )
    here = Path(__file__).parents[2]
    said = [
        subprocess.check_output(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": str(here), "PYTHONHASHSEED": salt},
        )
        for salt in ("1", "2")
    ]
    assert said[0] == said[1]


@pytest.mark.parametrize("seed", range(10))
def test_whenever_a_run_is_cancelled_nothing_is_left_a_moment_later(seed: int) -> None:
    async def main() -> None:
        # What a worker sends another one arrives in order; what comes back may come at any time.
        late = Chances(delay=0.5, delay_s=(0.0, 0.05), kinds=frozenset({"answer", "delivery", "ack"}))
        broker = MemoryBroker(faults=late, seed=seed)
        async with broker.connect("client") as bus, hosting() as tasks:
            system = SmallSystem(broker, bus, tasks)
            for number in (1, 2):
                await system.add_resource(*environments().values(), name=f"resource-{number}")
                await system.add_model(Thinker(), name=f"model-{number}")
                await system.add_agent(name=f"agent-{number}", slots=20)
            await system.enqueue(*(rollout_spec(row(), task=task, environment="tally") for task in range(20)))
            await anyio.sleep(0.05 + seed / 8)
            await bus.forget("task.*.*.run")
            await bus.publish("cancel.run", b"")
            await anyio.sleep(3.0)
            assert OPEN["sessions"] == 0
            assert await bus.depth("agent-tool_loop") == QueueDepth(waiting=0, in_flight=0)
            records = await system.records(len(await bus.counts("rollout.run.>")))
            assert {type(record.outcome) for record in records} <= {Completed, Cancelled}

    OPEN.clear()
    run(main, seed=seed)

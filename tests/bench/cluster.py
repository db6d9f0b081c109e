"""Scale out and in, in the middle of a run: rollouts per second with 2, 4, 8, 4 and 2 agent workers.

    PYTHONPATH=tests python -m bench.cluster
    PYTHONPATH=tests python -m bench.cluster --picture docs/images/scale-out.svg

Every rollout has two turns, and the engine answers after 0.3 s, so SLOTS / 0.6 s is what a worker can make.
Each phase says how long after its first worker was started or asked to leave the rate was within a tenth of
that. The engine counts its calls: what is repeated would be seen.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import anyio
from bench.counter_rows import ENVIRONMENT, counter_rows
from bench.rate_picture import Step, drawing
from gym_runtime import connect
from gym_runtime.client import Client, RunInfo
from gym_runtime.files.rows import expand
from gym_runtime.system.private_broker import Broker
from gym_runtime.system.spec import PoolSpec, SystemSpec
from gym_runtime.system.system import System, launch, running
from gym_runtime.workers.adapter import ModelSettings
from stubs import stub_engine

SLOTS = 8
TURN_S = 0.3
PHASES = (2, 4, 8, 4, 2)
PHASE_S = 10.0
WINDOW_S = 1.2
"""Two times a rollout: the workers of a phase begin in step, so a shorter window would see waves."""


class Agents:
    """Agent workers, each with its own supervisor, as on machines of their own."""

    def __init__(self, url: str, gym: Client) -> None:
        self._url = url
        self._gym = gym
        self._running: list[System] = []

    async def be(self, count: int) -> None:
        """Start workers, or ask some to leave; returns when they are asked."""
        while len(self._running) > count:
            await self._gym.drain(*self._running.pop().workers)
        pool = PoolSpec(kind="agent", names=("tool_loop",), capacity=SLOTS)
        more = [
            launch(SystemSpec(pools=(pool,), nats=(self._url,))) for _ in range(count - len(self._running))
        ]
        self._running += more
        for system in more:
            await system.until("all_ready")

    async def stop(self) -> None:
        for system in self._running:
            await system.stop()


async def measure(gym: Client, agents: Agents, done: list[float]) -> list[Step]:
    """One line for each phase; the phases, by the clock."""
    steps: list[Step] = []
    print("| agent workers | rollouts/s | slots / latency | full rate after |")
    print("|---|---|---|---|")
    for count in PHASES:
        wanted = count * SLOTS / (2 * TURN_S)
        began_s = time.monotonic()
        await agents.be(count)
        await anyio.sleep(began_s + PHASE_S - time.monotonic())
        times = [at_s for at_s in done if at_s >= began_s]
        reached = next(
            (
                start
                for start in (number / 10 for number in range(int(10 * (PHASE_S - WINDOW_S))))
                if abs(rate(times, began_s + start, WINDOW_S) / wanted - 1) <= 0.1
            ),
            None,
        )
        after = "-" if reached is None else f"{reached + WINDOW_S:.1f} s"
        steps.append(Step(f"{count} workers", began_s, began_s + PHASE_S, wanted))
        steady = rate(times, began_s + PHASE_S / 2, PHASE_S / 2)
        print(f"| {count} | {steady:.1f} | {wanted:.1f} | {after} |", flush=True)
    return steps


def rate(times: list[float], start_s: float, seconds: float) -> float:
    """Rollouts per second in a window."""
    return sum(start_s <= at_s < start_s + seconds for at_s in times) / seconds


def picture(done: list[float], steps: list[Step]) -> str:
    """The rate in windows of `WINDOW_S`, over the whole measurement."""
    zero_s, end_s = steps[0].start_s, steps[-1].end_s
    points = [
        (start + WINDOW_S / 2, rate(done, zero_s + start, WINDOW_S))
        for start in (number / 4 for number in range(int(4 * (end_s - zero_s - WINDOW_S)) + 1))
    ]
    moved = [step._replace(start_s=step.start_s - zero_s, end_s=step.end_s - zero_s) for step in steps]
    return drawing("Rollouts per second while agent workers join and leave a run", points, moved)


async def main(path: Path | None) -> None:
    """Measure, and check that nothing was lost or repeated."""
    total = int(sum(PHASES) * SLOTS / (2 * TURN_S) * PHASE_S)
    with tempfile.TemporaryDirectory() as folder, stub_engine.running("--latency-s", str(TURN_S)) as engine:
        broker = Broker(Path(folder))
        url = broker.start()
        model = ModelSettings(provider="openai", name="stub", urls=(engine.url,))
        others = (
            PoolSpec(kind="resource", names=(ENVIRONMENT,)),
            PoolSpec(kind="model", names=("policy",), model=model),
        )
        try:
            async with running(SystemSpec(pools=others, nats=(url,))), connect(nats=url) as gym:
                engine.stats(reset=True)
                agents, done = Agents(url, gym), list[float]()
                await gym.driver.open_run(RunInfo(run="run", total=total))
                await gym.driver.publish(expand(counter_rows(total), run="run", environment=ENVIRONMENT))
                turns = attempts = 0
                names: set[int] = set()
                steps: list[Step] = []
                async with anyio.create_task_group() as tasks:

                    async def collect() -> None:
                        nonlocal turns, attempts
                        async for record in gym.collect("run"):
                            done.append(time.monotonic())
                            names.add(record.task_index)
                            turns += record.turns
                            attempts += record.attempt

                    tasks.start_soon(collect)
                    steps = await measure(gym, agents, done)
                print(f"{len(names)} of {total} rollouts, {attempts} attempts, {turns} turns,", end=" ")
                print(f"{engine.stats().requests} calls to the engine")
                await agents.stop()
                if path is not None:
                    await anyio.Path(path).write_text(picture(done, steps))
        finally:
            broker.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--picture", type=Path, help="draw the rates into this SVG file")
    anyio.run(main, parser.parse_args().picture)

"""What a trainer pays besides the engine's time, with the scripted engine.

    python tests/bench/trainer.py                # all cases
    python tests/bench/trainer.py --case one     # one of: one, adapter, step, ahead

``one``: one rollout at a time. A rollout's own time is that of its record (``duration_s``): from its first
delivery to a worker until its end. ``adapter``: a TRL step's rollouts by the adapter, against the same
rollouts by `Client.groups`. ``step``: a step of 512 rollouts with an engine that takes 1 s. Its calls cannot
all begin at once, because a rollout costs processor time before its call: so besides the step's length it
says for which part of the step the engine was at work, what a rollout costs all processes together, and with
how many processors of this machine, all theirs, that would be a twentieth of the step. ``ahead``: the same
steps, with rollouts made one step ahead and an engine that works on 512 calls at a time, each for 1 s: its
limit is one step a second.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gym_runtime
import phases
import timed_engine
from gym_runtime.client import SyncClient
from gym_runtime.workers.adapter import ModelSettings
from gym_trainers.trl import GymSpec
from measure import print_table

ENVIRONMENT = "mcqa"
ROW = {
    "responses_create_params": {"input": "Answer with \\boxed{B}."},
    "options": [{"A": "no"}, {"B": "yes"}],
    "expected_answer": "B",
    "grading_mode": "strict_single_letter_boxed",
}
GROUP = 8


def rows(count: int) -> list[dict[str, Any]]:
    return [{**ROW, "bench_index": index} for index in range(count)]


class Times:
    """Of calls that make one rollout each: the whole, and what was added to the rollout's own, in ms."""

    def __init__(self) -> None:
        self.whole: list[float] = []
        self.added: list[float] = []

    def note(self, started_s: float, own_s: float) -> None:
        self.whole.append((time.perf_counter() - started_s) * 1e3)
        self.added.append(self.whole[-1] - own_s * 1e3)

    def cells(self) -> list[object]:
        middle = statistics.median(self.whole), statistics.median(self.added)
        # Where others use the machine too, the fastest tenth is nearest to what the calls themselves need.
        return [f"{value:.2f}" for value in (*middle, statistics.quantiles(self.added, n=10)[0])]


def timed(make: Callable[[], float], count: int) -> Times:
    times = Times()
    for _ in range(count):
        started_s = time.perf_counter()
        times.note(started_s, make())
    return times


async def alone(gym: gym_runtime.Client, count: int) -> Times:
    times = Times()
    async with gym.standing_run(environment=ENVIRONMENT) as run:
        await run.rollout(ROW)
        for _ in range(count):
            started_s = time.perf_counter()
            times.note(started_s, (await run.rollout(ROW)).duration_s)
    return times


def one(gym: SyncClient, count: int) -> list[list[object]]:
    def single() -> float:
        return next(gym.rollouts([ROW], environment=ENVIRONMENT)).duration_s

    table: list[list[object]] = [["a standing run, async", *gym.call(alone, count).cells()]]
    with gym.standing_run(environment=ENVIRONMENT) as run:
        sync = timed(lambda: run.rollout(ROW).duration_s, count)
    table.append(["a standing run, sync", *sync.cells()])
    table.append(["a run for each", *timed(single, count // 4).cells()])
    return table


class Trainer(SimpleNamespace):
    """What the adapter reads of a trainer."""

    def __init__(self) -> None:
        args = SimpleNamespace(temperature=1.0, top_p=1.0, top_k=0, min_p=None, max_completion_length=64)
        args.steps_per_generation = args.num_iterations = 1
        super().__init__(
            args=args,
            num_generations=GROUP,
            num_generations_eval=GROUP,
            state=SimpleNamespace(global_step=0, max_steps=1 << 30),
            model=SimpleNamespace(training=True),
            processing_class=SimpleNamespace(eos_token_id=1),
        )


def adapter(gym: SyncClient, groups: int, repeats: int) -> list[object]:
    spec, trainer = GymSpec(gym, rows(groups), environment=ENVIRONMENT), Trainer()
    prompts = [json.dumps(row) for row in rows(groups) for _ in range(GROUP)]
    settings = {"temperature": 1.0, "max_output_tokens": 64, "return_tokens": True}

    async def bare(client: gym_runtime.Client) -> None:
        made = client.groups(
            [json.dumps(row) for row in rows(groups)], environment=ENVIRONMENT, repeats=GROUP, **settings
        )
        async for _ in made:
            pass

    times: dict[str, list[float]] = {"bare": [], "adapter": []}
    for _ in range(repeats + 1):
        for name, make in (
            ("bare", lambda: gym.call(bare)),
            ("adapter", lambda: spec.rollout_func(prompts, trainer)),
        ):
            started_s = time.perf_counter()
            make()
            times[name].append(time.perf_counter() - started_s)
    count = groups * GROUP
    ms = {name: statistics.median(found[1:]) / count * 1e3 for name, found in times.items()}
    differences = [b - a for a, b in zip(times["bare"][1:], times["adapter"][1:], strict=True)]
    more = statistics.median(differences) / count * 1e3
    return [count, f"{ms['bare']:.2f}", f"{ms['adapter']:.2f}", f"{more:.2f}"]


def step(count: int, repeats: int, calls: Path) -> None:
    engine = str(Path(timed_engine.__file__))
    model = ModelSettings(provider=engine, name="echo", options={"latency_s": 1.0})
    os.environ["BENCH_CALLS"] = str(calls)
    with gym_runtime.connect_sync(model=model, environments=[ENVIRONMENT]) as gym:
        groups = count // GROUP
        spec, trainer = GymSpec(gym, rows(groups), environment=ENVIRONMENT), Trainer()
        prompts = [json.dumps(row) for row in rows(groups) for _ in range(GROUP)]
        times: list[float] = []
        busy: list[float] = []
        cost_ms: list[float] = []
        for _ in range(repeats + 1):
            before = phases.used(phases.processes())
            began_s = time.time()
            spec.rollout_func(prompts, trainer)
            ended_s = time.time()
            after = phases.used(phases.processes())
            cost_ms.append(sum(after[kind][0] - before[kind][0] for kind in before) / count)
            gym.control(gym_runtime.adapters.Control(op="state"))
            times.append(ended_s - began_s)
            busy.append(timed_engine.busy_s(calls, began_s, ended_s) / times[-1])
        middle = statistics.median(times[1:])
        shares = [f"{1.0 / middle:.1%}", f"{statistics.median(busy[1:]):.1%}"]
        cost = statistics.median(cost_ms[1:])
        shares += [f"{cost:.2f}", f"{cost * count / (1e3 / 0.95 - 1e3):.1f}"]
        header = ["rollouts", "seconds a step", "1 s of it", "the engine is at work"]
        header += ["ms on processors, each", "processors for 95 %"]
        print_table("A step with an engine of 1 s", header, [[count, f"{middle:.3f}", *shares]])
        watch = phases.Watch()
        with watch.watching():
            began_s = time.time()
            spec.rollout_func(prompts, trainer)
            ended_s = time.time()
        gym.control(gym_runtime.adapters.Control(op="state"))
    starts, ends = zip(*timed_engine.calls_since(calls, began_s), strict=True)
    marks = {"before the first call": (began_s, min(starts)), "calls begin": (min(starts), max(starts))}
    marks |= {"calls end": (min(ends), max(ends)), "after the last call": (max(ends), ended_s)}
    print_table(
        "One more step: ms on a processor, ms waiting for one",
        ["", "ms", *watch.kinds],
        [[name, f"{1e3 * (b - a):.0f}", *watch.between(a, b)] for name, (a, b) in marks.items()],
    )


def ahead(count: int, repeats: int, calls: Path) -> None:
    engine = str(Path(timed_engine.__file__))
    model = ModelSettings(
        provider=engine, name="echo", options={"latency_s": 1.0}, max_concurrent_requests=count
    )
    os.environ["BENCH_CALLS"] = str(calls)
    with gym_runtime.connect_sync(model=model, environments=[ENVIRONMENT]) as gym:
        groups = count // GROUP
        spec, trainer = GymSpec(gym, rows(groups), environment=ENVIRONMENT, asynchronous=True), Trainer()
        prompts = [json.dumps(row) for row in rows(groups) for _ in range(GROUP)]
        ended_s: list[float] = []
        for step in range(repeats + 3):
            trainer.state.global_step = step
            spec.rollout_func(prompts, trainer)
            ended_s.append(time.time())
        # The first steps differ: the rollouts of two steps began together.
        since_s, until_s = ended_s[2], ended_s[-1]
        trainer.state.max_steps = trainer.state.global_step + 1
        spec.rollout_func(prompts, trainer)
        gym.control(gym_runtime.adapters.Control(op="state"))
    seconds = (until_s - since_s) / repeats
    share = timed_engine.work_s(calls, since_s, until_s) / (until_s - since_s) / count
    print_table(
        "Rollouts one step ahead, with an engine that works on as many calls at a time as a step has",
        ["rollouts", "seconds a step", "1 s of it", "share of the engine's work in progress"],
        [[count, f"{seconds:.3f}", f"{1.0 / seconds:.1%}", f"{share:.1%}"]],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", default="all", choices=["all", "one", "adapter", "step", "ahead"])
    parser.add_argument("--count", type=int, default=400)
    options = parser.parse_args()
    if options.case in ("all", "one", "adapter"):
        with gym_runtime.connect_sync(model="scripted/echo", environments=[ENVIRONMENT]) as gym:
            if options.case != "adapter":
                header = ["by", "ms", "ms beyond the rollout's own", "the same, fastest tenth"]
                print_table("One at a time", header, one(gym, options.count))
            if options.case != "one":
                header = ["rollouts", "groups, ms each", "adapter, ms each", "more, ms each"]
                print_table("The adapter", header, [adapter(gym, 64, 9)])
    if options.case in ("all", "step"):
        with tempfile.TemporaryDirectory() as folder:
            step(512, 5, Path(folder) / "calls.json")
    if options.case in ("all", "ahead"):
        with tempfile.TemporaryDirectory() as folder:
            ahead(512, 20, Path(folder) / "calls.json")


if __name__ == "__main__":
    main()

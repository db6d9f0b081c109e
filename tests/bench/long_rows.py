"""What a rollout of a long row costs: a recorded run with its files, short and long prompts in turn.

    python tests/bench/long_rows.py                # 256 KB of prompt
    python tests/bench/long_rows.py --kb 1024 --hosted

CPU is that of all processes but the engine, by kind; the client reads the rows and writes all files of a run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections import defaultdict
from pathlib import Path

import anyio
from gym_runtime import connect
from gym_runtime.adapters import ModelSettings
from gym_runtime.client import Client
from gym_runtime.files.dataset import open_dataset
from gym_runtime.files.recorded_run import RecordedRun, RunPlan
from gym_runtime.messages.outcomes import Completed
from gym_runtime.messages.rollout_settings import RolloutSettings
from gym_runtime.messages.stored_records import new_run_id
from gym_testing.bench import instant_engine, loop
from gym_testing.bench.system_bench import parts_of
from gym_testing.checks.cpu_meter import cpu_ns
from measure import print_table

IN_FLIGHT, ROUNDS = 64, 5


def write_rows(path: Path, count: int, kb: int) -> None:
    """Rows whose system prompt is ``kb`` KB of words that differ from row to row."""
    with path.open("wb") as file:
        for index, line in enumerate(loop.rows(count)):
            row = json.loads(line)
            if kb:
                text = f"Document {index}.\n" + 'All work and no play makes a "dull" day.\n' * (
                    kb * 1024 // 43
                )
                row["responses_create_params"]["input"].insert(0, {"role": "system", "content": text})
            file.write(json.dumps(row).encode() + b"\n")


async def one_run(gym: Client, rows: Path, output: Path) -> None:
    """As ``gym-runtime run`` makes it: rows checked, rollouts, all files."""
    with open_dataset(rows, environment=loop.ENVIRONMENT) as dataset:
        plan = RunPlan(dataset, RolloutSettings())
        recorded = RecordedRun(plan, output, run=new_run_id(), model="bench", overwrite=True)
        recorded.begin()
        async for record in gym.recorded(recorded, in_flight=IN_FLIGHT):
            assert isinstance(record.outcome, Completed), record.outcome
        recorded.summarize()


async def measure(kb: int, count: int, *, hosted: bool) -> None:
    spent: dict[int, dict[str, list[float]]] = {0: defaultdict(list), kb: defaultdict(list)}
    with instant_engine.running() as (url, engine), tempfile.TemporaryDirectory() as folder:
        model = ModelSettings(provider="openai", name="bench", urls=(url,), api="responses")
        async with connect(
            model=model, environments=[loop.ENVIRONMENT], concurrency=IN_FLIGHT, hosted=hosted
        ) as gym:
            kinds = {
                worker.pid: f"{worker.kind} worker"
                for worker in await gym.workers()
                if "hosted_by" not in worker.detail
            }
            parts = parts_of(kinds, engine)
            for size in spent:
                write_rows(Path(folder) / f"{size}.jsonl", count, size)
                await one_run(gym, Path(folder) / f"{size}.jsonl", Path(folder) / f"out-{size}.jsonl")
            for _ in range(ROUNDS):
                for size, found in spent.items():
                    before = {name: cpu_ns(pids) for name, pids in parts.items()}
                    await one_run(gym, Path(folder) / f"{size}.jsonl", Path(folder) / f"out-{size}.jsonl")
                    for name, pids in parts.items():
                        found[name].append((cpu_ns(pids) - before[name]) / 1e6 / count)
        sizes = {
            entry.name: entry.stat().st_size for entry in os.scandir(folder) if f"out-{kb}" in entry.name
        }
    rows: list[list[object]] = []
    for name in [*spent[0], "all"]:
        cells = [
            statistics.median(found[name] if name != "all" else map(sum, zip(*found.values(), strict=True)))
            for found in spent.values()
        ]
        rows.append([name, *(f"{cell:.2f}" for cell in cells), f"{cells[1] - cells[0]:.2f}"])
    print_table(
        f"CPU ms of a rollout, {'hosted' if hosted else 'apart'}, the median of {ROUNDS} rounds",
        ["process", "short row", f"{kb} KB", "the prompt's share"],
        rows,
    )
    prompt = kb * 1024 * count
    print_table(
        "Files of the run",
        ["file", "times the prompts"],
        [[n, f"{s / prompt:.2f}"] for n, s in sizes.items()],
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kb", type=int, default=256)
    parser.add_argument("--rollouts", type=int, default=300)
    parser.add_argument("--hosted", action="store_true")
    options = parser.parse_args()
    anyio.run(
        lambda: measure(options.kb, options.rollouts, hosted=options.hosted),
        backend_options={"use_uvloop": True},
    )

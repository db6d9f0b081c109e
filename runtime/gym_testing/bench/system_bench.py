"""What rollouts cost in a system on this machine, against the bare loop in the same minute.

Each round makes the same rollouts three times: in the bare loop, with the journal and without it; figures are
medians over the rounds. A rollout is two model calls, a tool call and a verification. All of the system's
processes count, its broker and the client included, the engine does not.
"""

from __future__ import annotations

import os
import platform
import statistics
import sys
import sysconfig
import time
import urllib.request
from collections import defaultdict
from pathlib import Path
from typing import Literal

import msgspec
from gym_runtime import Completed
from gym_runtime.adapters import ModelSettings
from gym_runtime.client import Client, connect
from gym_runtime.errors import RuntimeFault, UsageError
from gym_sandbox.processes.tree import members

from gym_testing.bench import instant_engine, loop, openai_loop
from gym_testing.bench.loop import ENVIRONMENT
from gym_testing.checks.cpu_meter import cpu_ns

ROUNDS = 5
OPENAI_ROLLOUTS = 100
"""So few of the loop with `openai` in each round: it takes 20 times as long as the bare one."""
BUSY = 0.85
"""From this share of a core on, a process is what limits the rate."""


class PartCost(msgspec.Struct, frozen=True, kw_only=True):
    """CPU microseconds per rollout of one kind of process."""

    cpu_us: float
    without_journal_us: float


class SystemCost(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured; times are CPU microseconds per rollout.

    Attributes:
        per_s, bare_per_s: rollouts per second.
        openai_us: of a loop with the `openai` package.
        parts: by kind of process.
        most_at_engine: calls in progress at the engine, at most.
        limit: what limits the rate.
        python: which Python was measured.
    """

    rollouts: int
    in_flight: int
    engine_s: float
    workers: int
    per_s: float
    bare_per_s: float
    cpu_us: float
    without_journal_us: float
    bare_us: float
    openai_us: float
    parts: dict[str, PartCost]
    most_at_engine: int
    limit: str
    python: str

    @property
    def ratio(self) -> float:
        """The system's CPU time as a multiple of the bare loop's."""
        return self.cpu_us / self.bare_us

    @property
    def journal_share(self) -> float:
        """The journal's share of the system's CPU time."""
        return 1 - self.without_journal_us / self.cpu_us


class _Run(msgspec.Struct, frozen=True):
    wall_s: float
    spent_us: dict[str, float]

    @property
    def all_us(self) -> float:
        return sum(self.spent_us.values())


async def measure(
    *,
    rollouts: int = 2000,
    in_flight: int = 256,
    engine_s: float = 0.0,
    workers: int = 1,
    rounds: int = ROUNDS,
    hosted: bool = False,
) -> SystemCost:
    """Measure a system of ``workers`` processes of each kind, with ``in_flight`` rollouts in flight.

    Args:
        hosted: agent workers host the environment and the model.

    Raises:
        UsageError: this is not Linux, whose ``/proc`` it reads; or the environment is not installed.
        RuntimeFault: rollouts failed.
    """
    if sys.platform != "linux":
        raise UsageError("bench system reads the processor time of processes from /proc: it needs Linux")
    with instant_engine.running(engine_s) as (url, engine_pid):
        model = ModelSettings(provider="openai", name="bench", urls=(url,), api="responses")
        async with connect(
            model=model, environments=[ENVIRONMENT], workers=workers, concurrency=in_flight, hosted=hosted
        ) as gym:
            kinds = {
                worker.pid: f"{worker.kind} worker"
                for worker in await gym.workers()
                if "hosted_by" not in worker.detail
            }
            parts = parts_of(kinds, engine_pid)
            await _run(gym, parts, min(rollouts, max(200, in_flight)), in_flight, "turn")
            bare: list[tuple[float, float]] = []
            openai_s: list[float] = []
            few = min(rollouts, OPENAI_ROLLOUTS)
            runs: dict[str, list[_Run]] = defaultdict(list)
            for number in range(rounds):
                bare.append(await loop.run(url, rollouts, in_flight))
                openai_s.append(await openai_loop.run(url, few, in_flight))
                both: tuple[Literal["turn", "result"], ...] = ("turn", "result")
                # In turn, so that neither has the machine's better moments.
                for durability in both[:: 1 if number % 2 else -1]:
                    runs[durability].append(await _run(gym, parts, rollouts, in_flight, durability))
        most = _most_at_engine(url)
    with_journal, without = runs["turn"], runs["result"]
    return SystemCost(
        rollouts=rollouts,
        in_flight=in_flight,
        engine_s=engine_s,
        workers=workers,
        per_s=rollouts / statistics.median(run.wall_s for run in with_journal),
        bare_per_s=rollouts / statistics.median(wall_s for wall_s, _ in bare),
        cpu_us=statistics.median(run.all_us for run in with_journal),
        without_journal_us=statistics.median(run.all_us for run in without),
        bare_us=statistics.median(cpu_s for _, cpu_s in bare) / rollouts * 1e6,
        openai_us=statistics.median(openai_s) / few * 1e6,
        parts={
            name: PartCost(
                cpu_us=statistics.median(run.spent_us[name] for run in with_journal),
                without_journal_us=statistics.median(run.spent_us[name] for run in without),
            )
            for name in parts
        },
        most_at_engine=most,
        limit=_limit(with_journal, rollouts, workers),
        python=python(),
    )


def parts_of(workers: dict[int, str], engine_pid: int) -> dict[str, list[int]]:
    """The processes of the system, by kind."""
    kinds = workers | {os.getpid(): "client", engine_pid: ""}
    found: dict[str, list[int]] = defaultdict(list)
    for pid in members(os.getpid()):
        broker = "nats-server" in Path(f"/proc/{pid}/comm").read_text()
        kind = "broker" if broker else kinds.get(pid, "supervisor")
        if kind:
            found[kind].append(pid)
    return dict(sorted(found.items()))


async def _run(
    gym: Client,
    parts: dict[str, list[int]],
    rollouts: int,
    in_flight: int,
    durability: Literal["turn", "result"],
) -> _Run:
    before = {name: cpu_ns(pids) for name, pids in parts.items()}
    started_s, completed = time.perf_counter(), 0
    async for record in gym.rollouts(
        loop.rows(rollouts), environment=ENVIRONMENT, in_flight=in_flight * 2, durability=durability
    ):
        completed += isinstance(record.outcome, Completed)
    wall_s = time.perf_counter() - started_s
    if completed < rollouts:
        raise RuntimeFault(f"{rollouts - completed} of {rollouts} rollouts failed; see the lines above")
    return _Run(
        wall_s, {name: (cpu_ns(pids) - before[name]) / 1e3 / rollouts for name, pids in parts.items()}
    )


def _limit(runs: list[_Run], rollouts: int, workers: int) -> str:
    shares: dict[str, float] = {}
    for name in runs[0].spent_us:
        processes = workers if name.endswith("worker") else 1
        shares[name] = statistics.median(
            run.spent_us[name] * rollouts / 1e6 / run.wall_s / processes for run in runs
        )
    busiest = max(shares, key=lambda name: shares[name])
    everything = statistics.median(run.all_us * rollouts / 1e6 / run.wall_s for run in runs)
    cores = len(os.sched_getaffinity(0))
    if shares[busiest] >= BUSY:
        more = "; more workers raise it" if busiest.endswith("worker") else ""
        return f"the {busiest}, at {shares[busiest]:.0%} of one core{more}"
    if everything >= BUSY * cores:
        return f"this machine's {cores} cores"
    return (
        f"how many are in flight, or other programs: {everything:.1f} of {cores} cores were used, and the "
        f"busiest process is the {busiest} at {shares[busiest]:.0%}"
    )


def _most_at_engine(url: str) -> int:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # whatever HTTP_PROXY says
    with direct.open(url.removesuffix("/v1") + "/most") as answer:
        return int(answer.read())


def python() -> str:
    """Which Python runs here, and how it was built."""
    flags = str(sysconfig.get_config_var("CONFIG_ARGS") or "") + str(
        sysconfig.get_config_var("PGO_PROF_USE_FLAG")
    )
    optimized = "--enable-optimizations" in flags
    built = "with" if optimized else "without"
    return f"Python {platform.python_version()}, built {built} profile-guided optimization"

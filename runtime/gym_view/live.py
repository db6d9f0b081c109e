"""A running system in figures: what `top` and the commands ``status`` and ``ls runs`` show.

A pure function of one or two readings of a system (`gym_runtime.client.status.Status`). Counters of workers
are cumulative, so rates and latencies are those between the two readings.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from gym_runtime.client import RunProgress, Status
from gym_runtime.messages import Distribution, Figures, Metric, merged
from gym_runtime.messages import metric_names as names
from gym_runtime.rpc import Heartbeat
from gym_runtime.training import RunInfo

_ABOUT = {
    "hosted_by": "in {}",
    "stalled": "stalled: {}",
    "suspects": "after a lost worker, {} wait to start again",
}
"""How details of a worker are put; others stand as they are."""
_NOT_SHOWN = ("paused", "code")
GOING_ON = ("active", "paused")
"""States of runs that are not over."""
HOPS = ("model", "tool", "verify")
_CALLS: dict[str, tuple[Metric, dict[str, str]]] = {
    "agent": (names.HOP_DURATION, {names.HOP: "verify"}),
    "model": (names.ENGINE_DURATION, {}),
    "resource": (names.RESOURCE_DURATION, {}),
}
"""The work of each kind of worker: judged rollouts, calls of engines, calls of environments."""


class Reading(msgspec.Struct, frozen=True):
    """A system at one moment, a time of `gym_runtime.clock.monotonic`."""

    at_s: float
    status: Status


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    """One worker. An unknown value, such as a rate at the first reading, is None.

    Attributes:
        state: ``serving``, ``draining``, ``paused`` where a model's weights are, or ``slow link`` where that
            is so of its connection to the broker.
        calls_per_s: of an agent, rollouts that were judged; of others, calls that were answered.
        p50_s, p99_s: how long these calls took; for an agent, how long it waited for the model.
        busy: share of one core that its process used.
        failures: calls that failed, and retries, since the worker began.
        about: its own description, such as its model.
        refused: why the broker refuses what it is storing now; empty if it does not.
        held: why rollouts wait before they ask this model worker; empty if they do not.
        suspects: rollouts that wait for their place here after a lost agent worker.
    """

    worker: str
    kind: str
    pools: list[str]
    host: str
    pid: int
    state: str
    in_use: int
    capacity: int
    load: float
    round_trip_s: float
    started_s: float
    calls_per_s: float | None = None
    p50_s: float | None = None
    p99_s: float | None = None
    busy: float | None = None
    memory_bytes: int = 0
    failures: int = 0
    about: str = ""
    refused: str = ""
    held: str = ""
    suspects: int = 0

    @property
    def name(self) -> str:
        """Unique in the system."""
        return f"{self.kind}.{self.worker}"


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """One run, as far as it is known.

    Attributes:
        most: rollouts in progress at most, as was set for the run; None for no limit.
        useful: useful tokens per sampled token, 0 to 1 (`gym_runtime.files.token_use`).
    """

    run: str
    state: str
    total: int
    model: str
    environments: list[str]
    agents: list[str]
    created_s: float
    done: int | None
    failed: int | None
    rate_per_s: float | None
    left_s: float | None
    mean_reward: float | None
    truncated: int | None
    most: int | None = None
    useful: float | None = None


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Failed rollouts of a run that failed alike."""

    run: str
    environment: str
    error: str
    stage: str
    count: int


class View(msgspec.Struct, frozen=True, kw_only=True):
    """A system now.

    Attributes:
        queues: rollouts that wait for an agent, and that agents have, by agent.
        shares: which part of their rollouts' time agents waited for each hop, 0 to 1, since the last reading.
        rollouts_per_s: of all agents.
        unserved: agents, environments and models that active runs ask for and no worker serves.
    """

    at_s: float
    workers: list[WorkerView]
    runs: list[RunView]
    queues: dict[str, tuple[int, int]]
    failures: list[Failure]
    shares: dict[str, float]
    rollouts_per_s: float | None
    unserved: list[tuple[str, str]]


def view(now: Reading, before: Reading | None = None) -> View:
    """The figures of a system, from its reading now and the one before."""
    elapsed_s = now.at_s - before.at_s if before is not None else 0.0
    earlier = {one.name: one for one in before.status.workers} if before is not None else {}
    status = now.status
    workers = [_worker(one, earlier.get(one.name), elapsed_s) for one in status.workers]
    rates = [one.calls_per_s for one in workers if one.kind == "agent" and one.calls_per_s is not None]
    return View(
        at_s=now.at_s,
        workers=sorted(workers, key=lambda one: (one.kind, one.pools, one.worker)),
        runs=[run_view(run, status.progress.get(run.run)) for run in status.runs],
        queues={agent: (depth.waiting, depth.in_flight) for agent, depth in status.queues.items()},
        failures=_failures(status.progress),
        shares=_shares(status.workers, earlier),
        rollouts_per_s=sum(rates) if rates else None,
        unserved=_unserved(status),
    )


def run_view(run: RunInfo, progress: RunProgress | None) -> RunView:
    """One run's figures."""
    known = progress or RunProgress()
    figures = known.figures
    rewards = figures.distribution(names.ROLLOUT_REWARD) if figures is not None else None
    return RunView(
        run=run.run,
        state="paused" if is_paused(run, known) else run.state,
        total=run.total,
        model=run.model,
        environments=run.environments,
        agents=run.agents,
        created_s=run.created_s,
        done=known.done,
        failed=known.failed,
        rate_per_s=known.rate_per_s,
        left_s=known.left_s,
        mean_reward=rewards.total / rewards.count if rewards is not None and rewards.count else None,
        truncated=int(figures.total(names.ROLLOUTS, {names.OUTCOME: "truncated"})) if figures else None,
        most=known.control.concurrency if known.control is not None else None,
        useful=useful_share(figures) if figures else None,
    )


def has_all(run: RunInfo, progress: RunProgress | None) -> bool:
    """Whether all rollouts of a run are finished, so that it waits only to be collected."""
    return progress is not None and progress.done is not None and 0 < run.total <= progress.done


def is_paused(run: RunInfo, progress: RunProgress) -> bool:
    """Whether a run that is not over is paused."""
    return run.state == "active" and progress.control is not None and progress.control.paused


def useful_share(figures: Figures, environment: str | None = None) -> float | None:
    """Useful tokens per sampled token, of one environment or of all; None before a group has ended."""
    where = {} if environment is None else {names.ENVIRONMENT: environment}
    sampled = figures.total(names.SAMPLED_TOKENS, where)
    return figures.total(names.SAMPLED_TOKENS, {**where, names.USE: "useful"}) / sampled if sampled else None


def useful_shares(figures: Figures) -> dict[str, float]:
    """The same by environment; without those in which no group has ended."""
    known = sorted({one.labels[0] for one in figures.counts if one.name == names.SAMPLED_TOKENS.name})
    return {name: share for name in known if (share := useful_share(figures, name)) is not None}


def _worker(one: Heartbeat, before: Heartbeat | None, elapsed_s: float) -> WorkerView:
    figures = one.figures or Figures()
    calls_per_s = p50_s = p99_s = busy = None
    if before is not None and before.figures is not None and before.started_s == one.started_s:
        busy = max(0.0, figures.cpu_s - before.figures.cpu_s) / elapsed_s if elapsed_s else None
    if one.kind in _CALLS and one.figures is not None:
        metric, where = _CALLS[one.kind]
        if busy is not None and before is not None and before.figures is not None:
            calls = figures.distribution(metric, where).since(before.figures.distribution(metric, where))
            calls_per_s = calls.count / elapsed_s
        timed = (names.HOP_DURATION, {names.HOP: "model"}) if one.kind == "agent" else (metric, where)
        times = figures.distribution(*timed)
        if before is not None and before.figures is not None:
            recent = times.since(before.figures.distribution(*timed))
            times = recent if recent.count else times
        p50_s, p99_s = (times.quantile(share, timed[0].bounds) for share in (0.5, 0.99))
    return WorkerView(
        worker=one.worker,
        kind=one.kind,
        pools=one.pools,
        host=one.host,
        pid=one.pid,
        state=_state(one),
        in_use=one.in_use,
        capacity=one.capacity,
        load=one.load,
        round_trip_s=one.round_trip_s,
        started_s=one.started_s,
        calls_per_s=calls_per_s,
        p50_s=p50_s,
        p99_s=p99_s,
        busy=busy,
        memory_bytes=figures.memory_bytes,
        failures=int(figures.total(names.RETRIES)) + _erroneous(figures, one.kind),
        about=", ".join(_about(one)),
        refused=one.refused,
        held=one.held,
        suspects=int(said) if (said := one.detail.get("suspects", "")).isdecimal() else 0,
    )


def _about(one: Heartbeat) -> list[str]:
    about = [
        _ABOUT.get(name, "{}").format(said) for name, said in one.detail.items() if name not in _NOT_SHOWN
    ]
    return [*about, f"{one.round_trip_s:.1f} s to the broker and back"] if one.slow else about


def _state(one: Heartbeat) -> str:
    if one.draining:
        return "draining"
    if one.detail.get("paused"):
        return "paused"
    return "slow link" if one.slow else "serving"


def _erroneous(figures: Figures, kind: str) -> int:
    """Calls that ended with an error: the last label of these metrics says which."""
    metric, _ = _CALLS.get(kind, (names.ENGINE_DURATION, {}))
    if metric.labels[-1] != names.ERROR:
        return 0
    return sum(
        one.count
        for one in figures.distributions
        if one.name == metric.name and one.labels and one.labels[-1]
    )


def _shares(workers: list[Heartbeat], earlier: Mapping[str, Heartbeat]) -> dict[str, float]:
    now = merged([one.figures for one in workers if one.kind == "agent" and one.figures is not None])
    known = [earlier.get(one.name) for one in workers if one.kind == "agent"]
    then = merged([one.figures for one in known if one is not None and one.figures is not None])

    def spent_s(figures: Figures, hop: str) -> Distribution:
        return figures.distribution(names.HOP_DURATION, {names.HOP: hop})

    spent = {hop: max(0.0, spent_s(now, hop).total - spent_s(then, hop).total) for hop in HOPS}
    whole = sum(spent.values())
    return {hop: seconds / whole for hop, seconds in spent.items()} if whole else {}


def _failures(progress: Mapping[str, RunProgress]) -> list[Failure]:
    found = [
        Failure(run=run, environment=environment, error=error, stage=stage, count=int(count.value))
        for run, known in progress.items()
        if known.figures is not None
        for count in known.figures.counts
        if count.name == names.ROLLOUTS.name and len(count.labels) == len(names.ROLLOUTS.labels)
        for environment, outcome, error, stage in [count.labels]
        if outcome == "failed"
    ]
    return sorted(found, key=lambda one: -one.count)


def _unserved(status: Status) -> list[tuple[str, str]]:
    """``(kind, name)`` of what active runs ask for in vain."""
    served = {(worker.kind, pool) for worker in status.workers for pool in worker.pools}
    active = [
        run for run in status.runs if run.state == "active" and not has_all(run, status.progress.get(run.run))
    ]
    wanted = {("agent", name) for run in active for name in run.agents}
    wanted |= {("resource", name) for run in active for name in run.environments}
    wanted |= {("model", name) for run in active for name in run.models}
    return sorted(wanted - served)

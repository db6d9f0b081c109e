"""The state of a system: live workers, queues, the progress of runs, and reasons to stop a run."""

from __future__ import annotations

import math
from collections import Counter as Counts
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

import anyio
import msgspec
from msgspec.structs import replace

from gym_runtime import clock
from gym_runtime.bus.interface import Bus, QueueDepth
from gym_runtime.bus.streams import FULL_REMEDY
from gym_runtime.client.streaming import background
from gym_runtime.errors import UNREADABLE, BrokerError, Fault, GymError
from gym_runtime.files.sample import Sample, sample_record, sample_row
from gym_runtime.files.token_use import GroupTokens
from gym_runtime.messages import metric_names
from gym_runtime.messages.alarms import MOST, Alarm, decode_alarms, encode_alarms
from gym_runtime.messages.metric_names import Figures, merged
from gym_runtime.messages.names import is_token, token
from gym_runtime.messages.outcomes import Failed, RolloutRecord, rollout_of
from gym_runtime.messages.rollout_spec import is_comparison
from gym_runtime.messages.run_control import CONTROLS, RunControl, own_queue
from gym_runtime.messages.stored_records import RunInfo, leave_out
from gym_runtime.rpc.members import all_workers, fresh
from gym_runtime.rpc.meter import Meter
from gym_runtime.rpc.registry import Heartbeat
from gym_runtime.timing import API_ANSWER_S

QUEUES = 256
"""The most queues that are counted: each costs a request, and any name may be announced as an agent."""
REFUSED_S = 20.0
"""How long a run waits for a broker that stores nothing. A worker notices it within 10 s, and files are
closed within 5 s: together less than a minute. A broker of ours that has space again needs 6 s."""
REFUSALS_LOOK_S = 2.0
"""How often a client that waits for records asks the workers whether they can store."""

Workers = Callable[[], Awaitable[list[Heartbeat]]]


class RunProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a run is; unknown figures are None.

    Attributes:
        done: rollouts that have a result, whatever their outcome.
        failed: how many of these are failures.
        rate_per_s: results per second since the run, or this part of it, began.
        left_s: seconds until the rest has results at this rate.
        figures: what its client has counted: rewards, outcomes, tokens, durations.
        control: what users have set for it while it goes on; None if nothing.
        alarms: what its client has heard of rewards that are no longer confirmed.
    """

    done: int | None = None
    failed: int | None = None
    rate_per_s: float | None = None
    left_s: float | None = None
    figures: Figures | None = None
    control: RunControl | None = None
    alarms: list[Alarm] = []


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """What is alive and what is waiting. ``progress`` is by run."""

    workers: list[Heartbeat]
    queues: dict[str, QueueDepth]
    runs: list[RunInfo]
    progress: dict[str, RunProgress] = {}


# -- counting --------------------------------------------------------------------------------------------


def results(subjects: Iterable[str]) -> int:
    """How many of the subjects of stored records are of rollouts, not of comparisons."""
    keys = (rollout_of(subject) for subject in subjects)
    return sum(key is not None and not is_comparison(key[1]) for key in keys)


_NO_FAULT = Fault(kind="", name="")


class Counter:
    """Counts the records of an attached run, and tells them in its client's heartbeat.

    Each record reaches the client once, so its counts are exact, whichever workers are killed. A client that
    takes up the run of a killed client also counts the rows in the files (`add_rows`), because the killed
    client had not yet announced the last ones. Both figures begin with the run, so the new ones replace the
    old.

    Args:
        repeats: rollouts of each task, for the use of their tokens (`gym_runtime.files.token_use`).

    Attributes:
        done, failed: the records that this client has had.
        alarms: the last ones that were counted here.
    """

    def __init__(self, since_s: float = 0.0, repeats: int = 1) -> None:
        self.done = self.failed = 0
        self.alarms: list[Alarm] = []
        self.started_s, self._began_s = clock.now(), clock.monotonic()
        self._meter = Meter(since_s)
        self._groups = GroupTokens(repeats)

    def add(self, record: RolloutRecord) -> None:
        self.done += 1
        self.failed += isinstance(record.outcome, Failed)
        left_out = 0 if record.left_out is None else record.left_out.size
        self._count(sample_record(record, agent=""), len(record.row) + left_out)

    def add_rows(self, lines: Iterable[bytes], run: str) -> None:
        """Count the rows of a run in the lines of its files; those of earlier runs there are left out."""
        for line in lines:
            with suppress(*UNREADABLE):  # it is in no run's numbers
                sample = sample_row(line)
                if sample.rollout_id.startswith(f"{run}."):
                    # A record's row has no line break; the same rows must count the same.
                    self._count(sample, len(line.rstrip(b"\n")))

    def _count(self, one: Sample, size: int) -> None:
        meter, where, fault = self._meter, one.environment, one.fault or _NO_FAULT
        meter.add(metric_names.ROLLOUTS, where, one.outcome, fault.name, fault.stage)
        if one.reward is not None:
            meter.observe(metric_names.ROLLOUT_REWARD, one.reward, where)
        meter.observe(metric_names.ROLLOUT_DURATION, one.duration_s, where)
        meter.add(metric_names.ROLLOUT_TURNS, where, by=one.turns)
        meter.add(metric_names.ROLLOUT_TOOL_CALLS, where, by=one.tool_calls)
        spent = {kind: int(one.numbers.get(f"{kind}_tokens", 0)) for kind in ("input", "output")}
        for kind, tokens in spent.items():
            meter.add(metric_names.ROLLOUT_TOKENS, where, kind, by=tokens)
        for use, tokens in self._groups.add((where, one.task_index), one.reward, spent["output"]).items():
            self.add_use(where, use, tokens)
        meter.add(metric_names.ROLLOUT_ROWS, where, by=size)
        for role, use in one.roles.items():
            meter.add(metric_names.ROLE_CALLS, where, role, by=use.calls)
            meter.add(metric_names.ROLE_TOKENS, where, role, "input", by=use.input_tokens)
            meter.add(metric_names.ROLE_TOKENS, where, role, "output", by=use.output_tokens)
            meter.add(metric_names.ROLE_TIME, where, role, by=use.seconds)

    def add_use(self, environment: str, use: str, tokens: int) -> None:
        """Count sampled tokens of an environment by what became of them."""
        self._meter.add(metric_names.SAMPLED_TOKENS, environment, use, by=tokens)

    def ring(self, alarm: Alarm) -> None:
        """Count an alarm."""
        self._meter.add(metric_names.ALARMS, alarm.environment)
        self.alarms = [*self.alarms, alarm][-MOST:]

    def told(self, run: RunInfo) -> RunInfo:
        """A run that is over, with what has been counted."""
        return replace(run, done=self.done, failed=self.failed, figures=self.figures(), alarms=self.alarms)

    def figures(self) -> Figures:
        """What it has counted."""
        return self._meter.figures()

    def detail(self) -> dict[str, str]:
        """As a heartbeat carries it. The rate is by this machine's clock: others may be set differently."""
        elapsed_s = max(clock.monotonic() - self._began_s, 1e-3)
        said = {"done": str(self.done), "failed": str(self.failed), "rate": f"{self.done / elapsed_s:.4g}"}
        return {**said, "alarms": encode_alarms(self.alarms).decode()} if self.alarms else said


# -- looking ---------------------------------------------------------------------------------------------


async def whole(bus: Bus, workers: Sequence[Heartbeat], runs: list[RunInfo]) -> Status:
    """The state of a system of these workers and runs; workers that are gone are left out.

    Raises:
        GymError: the broker is not reachable.
    """
    found: list[Heartbeat] = []
    depths: dict[str, QueueDepth] = {}
    progress: dict[str, RunProgress] = {}

    async def ask_workers() -> None:
        found.extend(await fresh(bus, workers))

    async def count_queues() -> None:
        depths.update(await queues(bus, workers, runs))

    async def ask_clients() -> None:
        progress.update(await look(bus, runs))

    # Together, so that silent workers and silent clients are waited for once, and the queues meanwhile.
    async with background(cancel=False) as tasks:
        for part in (ask_workers, count_queues, ask_clients):
            tasks.start_soon(part)
    return Status(workers=found, queues=depths, runs=runs, progress=progress)


async def queues(bus: Bus, workers: Iterable[Heartbeat], runs: Iterable[RunInfo]) -> dict[str, QueueDepth]:
    """How much waits for each agent that is served or that an active run asks for: `QUEUES` of them at most.

    Raises:
        GymError: the broker is not reachable.
    """
    wanted = {agent for run in runs if run.state == "active" for agent in run.agents}
    served = Counts(pool for worker in workers if worker.kind == "agent" for pool in worker.pools)
    # The agents of active runs were named by other clients, which may not have checked them.
    names = [*sorted(filter(is_token, wanted)), *(agent for agent, _ in served.most_common())]
    names = list(dict.fromkeys(names))
    if len(names) > QUEUES:
        leave_out("task.>", f"{len(names):,} agents are announced; the queues of {QUEUES} are counted")
    depths = {name: await bus.depth(f"agent-{token(name, 'agent')}") for name in sorted(names[:QUEUES])}
    # Runs with their own queue; a paused one waits for nothing.
    going_on = [control.run for control in (await read_controls(bus)).values() if not control.paused]
    for run in going_on[:QUEUES]:
        for name, depth in depths.items():
            own = await bus.depth(own_queue(run, name)[1])
            depths[name] = QueueDepth(
                waiting=depth.waiting + own.waiting, in_flight=depth.in_flight + own.in_flight
            )
    return depths


async def look(bus: Bus, runs: Iterable[RunInfo]) -> dict[str, RunProgress]:
    """The progress of each run, by its id.

    Raises:
        GymError: the broker is not reachable.
    """
    # Other programs may have stored runs under names that no subject can hold.
    runs = [run for run in runs if is_token(run.run)]
    asked = [Heartbeat(worker=run.run, kind="client", pools=[]) for run in runs if run.state == "active"]
    answers = {answer.worker: answer for answer in await fresh(bus, asked)}
    controls = await read_controls(bus) if asked else {}
    return {run.run: await _progress(bus, run, answers.get(run.run), controls.get(run.run)) for run in runs}


async def read_controls(bus: Bus) -> dict[str, RunControl]:
    """What is set for each run for which something is.

    Raises:
        GymError: the broker is not reachable.
    """
    return {one.run: one for one in CONTROLS.read_all(await bus.latest("runs.*.control"))}


async def _progress(
    bus: Bus, run: RunInfo, client: Heartbeat | None, control: RunControl | None
) -> RunProgress:
    paused = control is not None and control.paused
    said: dict[str, str] = {} if client is None else client.detail
    figures = run.figures if client is None else client.figures
    done, failed, rate_per_s = run.done, run.failed, None
    with suppress(KeyError, ValueError):  # a client of an earlier version does not say it
        done, failed, rate_per_s = int(said["done"]), int(said["failed"]), float(said["rate"])
    alarms = run.alarms
    with suppress(KeyError, *UNREADABLE):
        alarms = decode_alarms(said["alarms"])
    if done is None and run.state != "finished":
        with suppress(GymError):  # these credentials may not count them
            done = results(await bus.counts(f"rollout.{token(run.run, 'run')}.>"))
        if done is not None and run.state == "active" and run.created_s:
            rate_per_s = done / max(clock.now() - run.created_s, 1.0)
    left_s = None  # as of a paused run: when it ends is not known
    if done is not None and 0 < run.total <= done:
        # When the last result came is not known, and nothing is left.
        rate_per_s = None
    elif done is not None and run.total and rate_per_s and math.isfinite(rate_per_s) and not paused:
        left_s = max(0, run.total - done) / rate_per_s
    return RunProgress(
        done=done,
        failed=failed,
        rate_per_s=rate_per_s,
        left_s=left_s,
        figures=figures,
        control=control,
        alarms=alarms,
    )


# -- what a run looks for while it goes on ----------------------------------------------------------------


async def dead_engine(bus: Bus, workers: Workers, model: str) -> str:
    """The engine's last error, if every worker of the model has had only errors so far; else empty."""
    asked = [one for one in await workers() if one.kind == "model" and model in one.pools]
    said = [one.detail.get("only_errors", "") for one in await fresh(bus, asked)]
    return said[0] if said and all(said) else ""


class InProgress(NamedTuple):
    """What workers are at: rollouts that agents have, calls that a model answered, tokens that it wrote, and
    why rollouts wait for its engines.
    """

    rollouts: int
    answers: int
    tokens: int
    held: str = ""


async def in_progress(bus: Bus, workers: Workers, model: str) -> InProgress:
    """What the workers of a system are at, and what the model of a pool has done so far.

    Raises:
        GymError: the broker is not reachable.
    """
    asked = [one for one in await workers() if one.kind == "agent" or model in one.pools]
    found = await fresh(bus, asked)
    figures = merged([one.figures for one in found if one.kind == "model" and one.figures])
    written = figures.distribution(metric_names.ENGINE_TOKENS, {metric_names.TOKEN_TYPE: "output"})
    answers = figures.distribution(metric_names.ENGINE_DURATION, {metric_names.ERROR: ""})
    rollouts = sum(one.in_use for one in found if one.kind == "agent")
    held = [one.held for one in found if one.kind == "model"]
    return InProgress(rollouts, answers.count, int(written.total), held[0] if all(held) and held else "")


async def _reads(bus: Bus) -> bool:
    """Whether the broker reads what it has stored, which a full disk does not prevent."""
    with anyio.move_on_after(API_ANSWER_S):
        await bus.latest("rollout.none")  # of a cluster only the leader answers it
        return True
    return False


async def watch_refusals(bus: Bus, waiting: Callable[[], bool]) -> None:
    """Check, until cancelled, whether the broker refuses to store the workers' records.

    Args:
        waiting: whether records are waited for; while they come, the workers are not asked.

    Raises:
        BrokerError: for `REFUSED_S` some worker could not store anything; names the reason and the remedy.
    """
    since_s = math.inf
    while True:
        await anyio.sleep(REFUSALS_LOOK_S)
        refused = ""
        if waiting():
            # Where nothing answers, the broker is away, and comes back: that is not this case.
            with suppress(GymError):
                workers = await fresh(bus, await all_workers(bus))
                refused = next((one.refused for one in workers if one.refused), "")
                # Nor is it a cluster without a leader, whose JetStream comes back with another broker.
                if refused and not await _reads(bus):
                    refused = ""
        now_s = anyio.current_time()
        # Seen at each look: right after an outage a worker has not stored again yet.
        since_s = min(since_s, now_s) if refused else math.inf
        if now_s >= since_s + REFUSED_S:
            raise BrokerError(
                f"the broker has stored nothing for {REFUSED_S:.0f} s ({refused}): {FULL_REMEDY}"
            )

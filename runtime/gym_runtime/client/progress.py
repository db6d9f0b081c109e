"""How far runs are: what the client of an attached run counts, or what the broker has of a published one."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress

from msgspec.structs import replace

from gym_runtime import clock
from gym_runtime.bus.interface import Bus
from gym_runtime.client.status import RunProgress
from gym_runtime.errors import GymError
from gym_runtime.messages import metric_names
from gym_runtime.messages.comparison import is_comparison
from gym_runtime.messages.figures import Figures
from gym_runtime.messages.names import is_token, token
from gym_runtime.messages.outcomes import Failed, RolloutRecord
from gym_runtime.messages.run_info import RunInfo
from gym_runtime.rpc.meter import Meter
from gym_runtime.rpc.registry import Heartbeat
from gym_runtime.rpc.roll_call import fresh


def results(subjects: Iterable[str]) -> int:
    """How many of the subjects of stored records are of rollouts, not of comparisons."""
    return sum(not is_comparison(subject.rpartition(".")[2]) for subject in subjects)


class Counter:
    """Counts the records of an attached run, and tells them in its client's heartbeat.

    Each record reaches the client once, so what it counts is exact, whichever workers are killed.
    """

    def __init__(self) -> None:
        self.done = self.failed = 0
        self.started_s = clock.now()
        self._meter = Meter()

    def add(self, record: RolloutRecord) -> None:
        self.done += 1
        outcome = record.outcome
        failed = isinstance(outcome, Failed)
        self.failed += failed
        environment = record.environment
        meter, numbers = self._meter, record.numbers
        error, stage = (outcome.fault.name, outcome.fault.stage) if failed else ("", "")
        meter.add(metric_names.ROLLOUTS, environment, type(outcome).__name__.lower(), error, stage)
        if record.reward is not None:
            meter.observe(metric_names.ROLLOUT_REWARD, record.reward, environment)
        meter.observe(metric_names.ROLLOUT_DURATION, record.duration_s, environment)
        meter.add(metric_names.ROLLOUT_TURNS, environment, by=record.turns)
        meter.add(metric_names.ROLLOUT_TOOL_CALLS, environment, by=record.tool_calls)
        for kind in ("input", "output"):
            tokens = int(numbers.get(f"{kind}_tokens", 0))
            meter.add(metric_names.ROLLOUT_TOKENS, environment, kind, by=tokens)
        meter.add(metric_names.ROLLOUT_ROWS, environment, by=len(record.row))
        for role, use in record.roles.items():
            meter.add(metric_names.ROLE_CALLS, environment, role, by=use.calls)
            meter.add(metric_names.ROLE_TOKENS, environment, role, "input", by=use.input_tokens)
            meter.add(metric_names.ROLE_TOKENS, environment, role, "output", by=use.output_tokens)
            meter.add(metric_names.ROLE_TIME, environment, role, by=use.seconds)

    def told(self, run: RunInfo) -> RunInfo:
        """A run that is over, with what has been counted."""
        return replace(run, done=self.done, failed=self.failed, figures=self.figures())

    def figures(self) -> Figures:
        """What it has counted."""
        return self._meter.figures()

    def detail(self) -> dict[str, str]:
        """As a heartbeat carries it. The rate is by this machine's clock: others may be set differently."""
        elapsed_s = max(clock.now() - self.started_s, 1e-3)
        return {"done": str(self.done), "failed": str(self.failed), "rate": f"{self.done / elapsed_s:.4g}"}


async def look(bus: Bus, runs: Iterable[RunInfo]) -> dict[str, RunProgress]:
    """The progress of each run, by its id.

    Raises:
        GymError: the broker is not reachable.
    """
    runs = [run for run in runs if is_token(run.run)]
    asked = [Heartbeat(worker=run.run, kind="client", pools=[]) for run in runs if run.state == "active"]
    answers = {answer.worker: answer for answer in await fresh(bus, asked)}
    return {run.run: await _progress(bus, run, answers.get(run.run)) for run in runs}


async def _progress(bus: Bus, run: RunInfo, client: Heartbeat | None) -> RunProgress:
    said: dict[str, str] = {} if client is None else client.detail
    figures = run.figures if client is None else client.figures
    done, failed, rate_per_s = run.done, run.failed, None
    with suppress(KeyError, ValueError):  # a client of an earlier version does not say it
        done, failed, rate_per_s = int(said["done"]), int(said["failed"]), float(said["rate"])
    if done is None and run.state != "finished":
        done = await _stored(bus, run)
        if done is not None and run.state == "active" and run.created_s:
            rate_per_s = done / max(clock.now() - run.created_s, 1.0)
    left_s = None
    if done is not None and run.total and rate_per_s and math.isfinite(rate_per_s):
        left_s = max(0, run.total - done) / rate_per_s
    return RunProgress(done=done, failed=failed, rate_per_s=rate_per_s, left_s=left_s, figures=figures)


async def _stored(bus: Bus, run: RunInfo) -> int | None:
    """How many results the broker has; None if these credentials may not count them."""
    try:
        return results(await bus.counts(f"rollout.{token(run.run, 'run')}.>"))
    except GymError:
        return None

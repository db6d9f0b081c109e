"""The aggregates of a run while it goes on, from each record once; cheap to add and to read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import msgspec
from gym_runtime import clock
from gym_runtime.errors import UNREADABLE
from gym_runtime.files import GroupTokens, PassScores, Summary, steps
from gym_runtime.messages import Failed, RolloutRecord, metric_names
from gym_runtime.rpc import Meter
from gym_runtime.statistics import Total
from msgspec import Raw

HOPS = ("model", "tool", "verify")
MOST_ENVIRONMENTS = 20
_QUANTILES = {"p50": 0.5, "p99": 0.99}


class _Turn(msgspec.Struct, frozen=True):
    model_s: float = 0.0
    tool_s: float = 0.0


class _Timing(msgspec.Struct, frozen=True):
    turns: list[_Turn] = []
    verify_s: float = 0.0


class _Own(msgspec.Struct, frozen=True):
    timing: _Timing = _Timing()


class _Row(msgspec.Struct, frozen=True):
    own: _Own = msgspec.field(name="_gym", default=_Own())


_decode_row = msgspec.json.Decoder(_Row).decode


class Curves:
    """What is known of a run so far.

    Args:
        repeats: rollouts of each task. pass@k counts the tasks that have all of them, and says how many.
        before: what an interrupted part of the run came to; it is in all figures but pass@k and times.

    Attributes:
        alarms: how many each environment had.
    """

    def __init__(
        self, repeats: int = 1, before: Summary | None = None, now: Callable[[], float] = clock.monotonic
    ) -> None:
        self._repeats = repeats
        self._now = now
        self._outcomes: Counter[str] = Counter(before.outcomes if before else {})
        self._failures: Counter[str] = Counter(before.failures if before else {})
        self.alarms: Counter[str] = Counter()
        self._totals: Counter[str] = Counter()
        self._rewards = Total()
        self._environments: dict[str, Total] = {}
        if before is not None:
            if before.mean_reward is not None:
                self._rewards.add(before.mean_reward, times=before.rewarded)
            for name in ("turns", "tool_calls", "input_tokens", "output_tokens"):
                self._totals[name] = getattr(before, name)
        self._groups: dict[tuple[str, int], list[tuple[int, float]]] = {}
        self._scores = PassScores(steps(repeats))
        self._tokens = GroupTokens(repeats)
        self._uses: Counter[str] = Counter()
        self._shares = True
        self._meter = Meter()
        self._read = (now(), self.rollouts)

    @property
    def rollouts(self) -> int:
        """How many have a result."""
        return self._outcomes.total()

    def add(self, record: RolloutRecord) -> None:
        """Take a record in."""
        outcome = record.outcome
        self._outcomes[outcome.__struct_config__.tag] += 1  # pyright: ignore[reportArgumentType]
        if isinstance(outcome, Failed):
            self._failures[outcome.fault.kind] += 1
        totals = self._totals
        totals["turns"] += record.turns
        totals["tool_calls"] += record.tool_calls
        spent = {name: int(record.numbers.get(name, 0)) for name in ("input_tokens", "output_tokens")}
        totals.update(spent)
        task = record.environment, record.task_index
        self._uses.update(self._tokens.add(task, record.reward, spent["output_tokens"]))
        self._meter.observe(metric_names.ROLLOUT_DURATION, record.duration_s, "")
        self._time(record.row)
        if record.reward is not None:
            self._reward(record, record.reward)

    def _time(self, row: Raw) -> None:
        try:
            timing = _decode_row(row).own.timing
        except UNREADABLE:  # another program's row; it has no times of ours
            return
        for turn in timing.turns:
            self._meter.observe(metric_names.HOP_DURATION, turn.model_s, "model", "")
            if turn.tool_s:
                self._meter.observe(metric_names.HOP_DURATION, turn.tool_s, "tool", "")
        if timing.verify_s:
            self._meter.observe(metric_names.HOP_DURATION, timing.verify_s, "verify", "")

    def _reward(self, record: RolloutRecord, reward: float) -> None:
        self._rewards.add(reward)
        self._shares = self._shares and 0 <= reward <= 1
        environment = record.environment
        if environment in self._environments or len(self._environments) < MOST_ENVIRONMENTS:
            self._environments.setdefault(environment, Total()).add(reward)
        task = environment, record.task_index
        group = self._groups.setdefault(task, [])
        group.append((record.rollout_index, reward))
        if len(group) >= self._repeats:
            del self._groups[task]
            self._scores.add([one for _, one in sorted(group)])

    def numbers(self) -> dict[str, float]:
        """All figures now. The rate is that since the last call; what is not known is left out."""
        done = self.rollouts
        now = self._now()
        since, earlier = self._read
        self._read = now, done
        found: dict[str, float] = {"rollouts/done": float(done)}
        if now > since:
            found["rollouts/per_s"] = (done - earlier) / (now - since)
        for name in ("completed", "truncated", "failed", "cancelled"):
            found[f"outcome/{name}"] = self._outcomes[name] / done if done else 0.0
        found |= {f"failures/{kind}": float(count) for kind, count in self._failures.items()}
        found |= {f"alarms/{name}": float(count) for name, count in self.alarms.items()}
        if len(self._environments) > 1:
            found |= _known({f"reward/{name}": total.mean for name, total in self._environments.items()})
        found |= _known({"reward/mean": self._rewards.mean})
        if self._shares:
            scores = self._scores
            found |= _passes(scores.pass_at, scores.pass_error, scores.pass_tasks)
        found |= {f"tokens/{name}": float(self._totals[f"{name}_tokens"]) for name in ("input", "output")}
        if sampled := self._uses.total():
            found["tokens/useful_share"] = self._uses["useful"] / sampled
        if done:
            found["turns/mean"] = self._totals["turns"] / done
            found["tool_calls/mean"] = self._totals["tool_calls"] / done
        figures = self._meter.figures()
        durations = figures.distribution(metric_names.ROLLOUT_DURATION)
        for name, share in _QUANTILES.items():
            value = durations.quantile(share, metric_names.ROLLOUT_DURATION.bounds)
            if value is not None:
                found[f"rollout_s/{name}"] = value
            for hop in HOPS:
                times = figures.distribution(metric_names.HOP_DURATION, {"gym.hop": hop})
                value = times.quantile(share, metric_names.HOP_DURATION.bounds)
                if value is not None:
                    found[f"{hop}_s/{name}"] = value
        return found


def final_numbers(summary: Summary) -> dict[str, float]:
    """What the whole run came to, exactly, under the same names, and of how many tasks."""
    return {
        **_passes(summary.pass_at, summary.pass_error, summary.pass_tasks),
        **_known({"reward/mean": summary.mean_reward, "reward/standard_error": summary.mean_reward_error}),
        "tasks/rated": float(summary.tasks),
        "tasks/all": float(summary.all_tasks),
    }


def _passes(
    shares: Mapping[int, float], errors: Mapping[int, float | None], tasks: Mapping[int, int]
) -> dict[str, float]:
    """pass@k, its standard error, and over how many tasks it is."""
    found = {f"pass@{k}": share for k, share in shares.items()}
    found |= _known({f"pass@{k}/standard_error": error for k, error in errors.items()})
    return found | {f"pass@{k}/tasks": float(count) for k, count in tasks.items()}


def _known(numbers: Mapping[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in numbers.items() if value is not None}

"""What a run has made so far, counted as the records come in: a microsecond each, whatever is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gym_runtime.cli import formatting
from gym_runtime.errors import Fault
from gym_runtime.messages.outcomes import Failed, RolloutRecord
from gym_runtime.statistics import Total

if TYPE_CHECKING:
    from gym_runtime.files.run_metrics import Metrics, Summary


class Tally:
    """What is counted while records come in. ``before``: what an interrupted part of the run has made."""

    def __init__(self, total: int, before: Summary | None = None) -> None:
        self.total = total
        self.added = 0
        self.earlier = before.rollouts if before else 0
        self.rewards = Total()
        if before is not None and before.mean_reward is not None:
            self.rewards.add(before.mean_reward, times=before.rewarded)
        self.failures: dict[str, int] = dict(before.failures) if before else {}
        self.cancelled = before.outcomes["cancelled"] if before else 0
        self.examples: dict[str, Fault] = {}

    def add(self, record: RolloutRecord) -> None:
        """Count a record."""
        self.added += 1
        if record.reward is not None:
            self.rewards.add(record.reward)
        elif isinstance(record.outcome, Failed):
            fault = record.outcome.fault
            self.failures[fault.kind] = self.failures.get(fault.kind, 0) + 1
            self.examples.setdefault(fault.kind, fault)
        else:
            self.cancelled += 1

    def catch_up(self, metrics: Metrics) -> None:
        """Count also what was written while the run was stopped, and is not shown one by one."""
        tables = metrics.agents.values()
        self.added = metrics.rollouts - self.earlier
        self.rewards = metrics.rewards
        self.failures = dict(metrics.failures)
        self.cancelled = sum(table.outcomes["cancelled"] for table in tables)

    @property
    def done(self) -> int:
        return self.earlier + self.added

    @property
    def mean_reward(self) -> float | None:
        return self.rewards.mean

    @property
    def trouble(self) -> str:
        """Failed and cancelled rollouts, by kind; empty without any."""
        failures = self.failures.copy()  # another thread may be adding
        failed = sum(failures.values())
        parts = [f"{failed:,} failed ({formatting.breakdown(failures)})"] if failed else []
        return ", ".join([*parts, *([f"{self.cancelled:,} cancelled"] if self.cancelled else [])])

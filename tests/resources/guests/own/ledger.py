"""A taskset for verifiers 0.4 with tools on a state, a stop, and a judge; set by its configuration."""

from __future__ import annotations

from collections.abc import Iterator

import verifiers.v1 as vf

__all__ = ["Ledger"]


class LedgerState(vf.State):
    total: int = 0


class LedgerData(vf.TaskData):
    wanted: int


class Book(vf.Toolset[vf.ToolsetConfig, LedgerState]):
    start = 0

    async def setup_task(self, task: LedgerData) -> None:
        self.start = 100 * task.wanted

    @vf.tool
    async def add(self, amount: int) -> str:
        """Add an amount."""
        self.state.total += amount
        return f"{self.start + self.state.total}"

    @vf.tool
    def fail(self) -> str:
        """Always fails."""
        raise RuntimeError("no ink")


class LedgerTaskConfig(vf.TaskConfig):
    judged: bool = False
    broken: bool = False
    most: int = 100


class LedgerTask(vf.Task[LedgerData, LedgerState, LedgerTaskConfig]):
    @classmethod
    def toolsets(cls, config: LedgerTaskConfig) -> list[vf.Toolset]:
        return [Book(vf.ToolsetConfig())]

    @vf.stop
    async def too_much(self, trace: vf.Trace) -> bool:
        return trace.state.total > self.config.most

    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        if self.config.broken:
            raise RuntimeError("the reward is broken")
        return float(trace.state.total == self.data.wanted)

    @vf.reward(weight=2.0)
    async def liked(self, trace: vf.Trace) -> float:
        if not self.config.judged:
            return 0.0
        judge = vf.ReferenceJudge(vf.ReferenceJudgeConfig(question_field="", answer_field="wanted"))
        return await judge.score(self.data, trace)


class LedgerConfig(vf.TasksetConfig):
    task: LedgerTaskConfig = LedgerTaskConfig()


class Ledger(vf.Taskset[LedgerTask, LedgerConfig]):
    INFINITE = True

    def load(self) -> Iterator[LedgerTask]:
        number = 0
        while True:
            number += 1
            yield LedgerTask(LedgerData(prompt=f"Bring it to {number}", wanted=number), self.config.task)

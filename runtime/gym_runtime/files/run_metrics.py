"""Metrics of a run, kept up as rollouts finish: per agent, over its rollouts and over its groups.

Of a rollout it keeps twelve bytes, and eight for every numeric field of its row, on the disk until the end of
the run. Failed and cancelled rollouts are counted; their numbers enter no statistic but the totals of
tokens, turns and tool calls.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, cast

import msgspec

from gym_runtime.files.columns import Column, Spill
from gym_runtime.files.sample import USAGE, Sample, sample_record
from gym_runtime.files.scores import STATISTICS, PassScores, describe, steps
from gym_runtime.messages.outcomes import RolloutRecord
from gym_runtime.messages.role_use import RoleUse, add_use

_NAN = math.nan
_encode = msgspec.json.Encoder().encode


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A run, or one agent's part of it, in a few numbers.

    Attributes:
        rollouts: finished ones, whatever their outcome.
        outcomes: how many were ``completed``, ``truncated``, ``failed``, ``cancelled``.
        failures: how many failed by whose fault, most frequent first.
        tasks: groups with at least one reward.
        mean_reward: over the rollouts with a reward; None if no rollout has one.
        pass_at: pass@k, 0 to 1, by k; empty if a reward is outside 0 to 1.
        turns, tool_calls, input_tokens, output_tokens, total_tokens: sums over all rollouts.
        mean_duration_s: of an attempt, over all rollouts; None if not known.
        roles: what models in roles cost, by role; sums over all rollouts.
        score: what a benchmark's authors report, if it is one agent's part and a benchmark's.
    """

    rollouts: int
    outcomes: dict[str, int]
    failures: dict[str, int]
    tasks: int
    mean_reward: float | None
    pass_at: dict[int, float]
    turns: int
    tool_calls: int
    input_tokens: int
    output_tokens: int
    total_tokens: int
    mean_duration_s: float | None
    roles: dict[str, RoleUse] = {}
    score: dict[str, float] = {}


class Table(msgspec.Struct, frozen=True):
    """The numbers of one agent's rollouts that have a verdict, by column; NaN where a rollout has none."""

    task_indices: array[int]
    rollout_indices: array[int]
    columns: dict[str, array[float]]

    def order(self) -> array[int]:
        """The positions in the columns, sorted by task index, then by rollout index."""
        # Two stable sorts: the second one keeps the order of the first among equal tasks.
        order = sorted(range(len(self.task_indices)), key=self.rollout_indices.__getitem__)
        order.sort(key=self.task_indices.__getitem__)
        return array("q", order)

    def groups(self) -> Iterator[tuple[int, list[int]]]:
        """``(task index, positions in the columns)``: tasks by their index, rollouts by theirs."""
        for task_index, positions in groupby(self.order(), key=self.task_indices.__getitem__):
            yield task_index, list(positions)

    def statistics(self, positions: Sequence[int] | None = None) -> dict[str, float]:
        """``mean|max|min|median|std/<field>`` over some rollouts, or all of them.

        A rollout without a field does not count for it.
        """
        described: dict[str, tuple[float, ...]] = {}
        for name, column in sorted(self.columns.items(), key=_reward_first):
            taken = column if positions is None else [column[position] for position in positions]
            # Not true of NaN, which stands for a missing value.
            values = [value for value in taken if value == value]
            if values:
                described[name] = describe(values)
        return {
            f"{statistic}/{name}": values[index]
            for index, statistic in enumerate(STATISTICS)
            for name, values in described.items()
        }

    def reward_groups(self) -> Iterator[list[float]]:
        """The rewards of each group, in the order of its rollouts."""
        rewards = self.columns.get("reward", ())
        for _, positions in self.groups():
            yield [rewards[position] for position in positions]


class AgentTable:
    """One agent's rollouts as they come: the numbers of those that have a verdict, and counts of all."""

    def __init__(self) -> None:
        self._spill = Spill()
        self._task_indices = Column(self._spill, "q")
        self._rollout_indices = Column(self._spill, "i")
        self._columns: dict[str, Column] = {}
        self.outcomes: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.totals: Counter[str] = Counter()
        self.reward_sum = 0.0
        self.rewards = 0
        self.duration_s = 0.0
        self.roles: dict[str, RoleUse] = {}

    def add(self, sample: Sample) -> None:
        """Take one finished rollout in."""
        self.outcomes[sample.outcome] += 1
        if sample.failure:
            self.failures[sample.failure] += 1
        self.totals["turns"] += sample.turns
        self.totals["tool_calls"] += sample.tool_calls
        for name in USAGE:
            self.totals[name] += int(sample.numbers.get(name, 0))
        self.duration_s += sample.duration_s
        add_use(self.roles, sample.roles)
        if sample.reward is None:
            return
        self.reward_sum += sample.reward
        self.rewards += 1
        for name in sample.numbers:
            if name not in self._columns:
                # Rollouts before this one did not have the field.
                self._columns[name] = Column(self._spill, "d", missing=len(self._task_indices))
        for name, column in self._columns.items():
            column.append(sample.numbers.get(name, _NAN))
        self._task_indices.append(sample.task_index)
        self._rollout_indices.append(sample.rollout_index)

    def read(self, *names: str) -> Table:
        """The columns of these names, or all, as they are now."""
        wanted = names or self._columns
        return Table(
            cast("array[int]", self._task_indices.values()),
            cast("array[int]", self._rollout_indices.values()),
            {name: column.values() for name, column in self._columns.items() if name in wanted},
        )


class Metrics:
    """All agents of a run.

    Attributes:
        scores: of the agents that run benchmarks, once the run's rows are complete
            (`gym_runtime.files.benchmark_scores`).
    """

    def __init__(self) -> None:
        self.agents: dict[str, AgentTable] = {}
        self.scores: dict[str, dict[str, float]] = {}

    def add(self, record: RolloutRecord) -> None:
        """Take one record in. Each rollout is to be added once."""
        self.add_sample(sample_record(record))

    def add_sample(self, sample: Sample) -> None:
        """Take one finished rollout in, of this run or of the one that it goes on with."""
        table = self.agents.get(sample.agent)
        if table is None:
            table = self.agents[sample.agent] = AgentTable()
        table.add(sample)

    @property
    def rollouts(self) -> int:
        """Finished rollouts so far; cheap."""
        return sum(table.outcomes.total() for table in self.agents.values())

    @property
    def tokens(self) -> tuple[int, int]:
        """Tokens read and written so far, by all rollouts; cheap."""
        totals = [table.totals for table in self.agents.values()]
        return sum(one["input_tokens"] for one in totals), sum(one["output_tokens"] for one in totals)

    @property
    def mean_reward(self) -> float | None:
        """Over all rollouts with a reward so far; cheap."""
        rewards = sum(table.rewards for table in self.agents.values())
        return sum(table.reward_sum for table in self.agents.values()) / rewards if rewards else None

    @property
    def failures(self) -> Counter[str]:
        """Failed rollouts so far by whose fault it was; cheap."""
        return sum((table.failures for table in self.agents.values()), Counter[str]())

    def summary(self, *agents: str) -> Summary:
        """The whole run, or some agents' part; sorts all rollouts, so it is for the end."""
        agents = agents or tuple(self.agents)
        tables = [self.agents[agent] for agent in agents]
        outcomes = sum((table.outcomes for table in tables), Counter[str]())
        failures = sum((table.failures for table in tables), Counter[str]())
        totals = sum((table.totals for table in tables), Counter[str]())
        rewarded = [table.read("reward") for table in tables]
        scores = pass_scores(rewarded)
        # A best reward of 7, or of -0.2, is no share of passes. The aggregate has it, as NeMo Gym's does.
        shares = all(0 <= reward <= 1 for table in rewarded for reward in table.columns.get("reward", ()))
        rewards = sum(table.rewards for table in tables)
        duration_s = sum(table.duration_s for table in tables)
        roles: dict[str, RoleUse] = {}
        for table in tables:
            add_use(roles, table.roles)
        return Summary(
            rollouts=outcomes.total(),
            outcomes={name: outcomes[name] for name in ("completed", "truncated", "failed", "cancelled")},
            failures=dict(failures.most_common()),
            tasks=scores.groups,
            mean_reward=sum(table.reward_sum for table in tables) / rewards if rewards else None,
            pass_at=scores.pass_at if shares else {},
            turns=totals["turns"],
            tool_calls=totals["tool_calls"],
            input_tokens=totals["input_tokens"],
            output_tokens=totals["output_tokens"],
            total_tokens=totals["total_tokens"],
            mean_duration_s=duration_s / outcomes.total() if duration_s else None,
            roles=roles,
            score=self.scores.get(agents[0], {}) if len(agents) == 1 else {},
        )

    def aggregate(self) -> Iterator[bytes]:
        """The content of ``_aggregate_metrics.json``, in pieces; groups stand one per line.

        A list with one entry per agent: ``agent_ref``, ``agent_metrics`` (statistics of every field over
        all rollouts; with several rollouts per task also pass@k, in percent as NeMo Gym has it),
        ``key_metrics`` (the means), ``score`` (of a benchmark, as its authors compute it) and ``failures``
        (how many by whose fault), where there are any (NeMo Gym has neither), and ``group_level_metrics``
        (statistics per task). It does not depend on the order in which the rollouts came.
        """
        yield b"["
        for position, (agent, entry) in enumerate(sorted(self.agents.items())):
            table = entry.read()
            agent_metrics = table.statistics() | _pass_metrics(pass_scores([table]))
            key_metrics = {name: value for name, value in agent_metrics.items() if name.startswith("mean/")}
            yield b",\n{" if position else b"\n{"
            yield b'"agent_ref":' + _encode({"name": agent})
            yield b',\n"agent_metrics":' + _pretty(agent_metrics)
            yield b',\n"key_metrics":' + _pretty(key_metrics)
            if agent in self.scores:
                yield b',\n"score":' + _pretty(self.scores[agent])
            if entry.failures:
                yield b',\n"failures":' + _encode(dict(entry.failures.most_common()))
            yield b',\n"group_level_metrics":['
            for number, (task_index, positions) in enumerate(table.groups()):
                group = {"_ng_task_index": task_index, **table.statistics(positions)}
                yield (b",\n" if number else b"\n") + _encode(group)
            yield b"]}"
        yield b"\n]\n"


def pass_scores(tables: Sequence[Table]) -> PassScores:
    """pass@k of all groups, for the usual ``k`` up to the size of the largest group."""
    most = max((len(rewards) for table in tables for rewards in table.reward_groups()), default=0)
    scores = PassScores(steps(most))
    for table in tables:
        for rewards in table.reward_groups():
            scores.add(rewards)
    return scores


def _pass_metrics(scores: PassScores) -> dict[str, float]:
    """pass@k and pass@1[avg-of-k] of the reward, in percent, when a task has several rollouts."""
    if max(scores.pass_at, default=0) < 2:
        return {}
    passes = {f"pass@{k}/reward": 100.0 * value for k, value in scores.pass_at.items()}
    means = {f"pass@1[avg-of-{k}]/reward": 100.0 * value for k, value in scores.mean_of_first.items()}
    return passes | means


def _reward_first(column: tuple[str, array[float]]) -> tuple[bool, str]:
    return column[0] != "reward", column[0]


def _pretty(value: Any) -> bytes:
    return msgspec.json.format(_encode(value), indent=2)

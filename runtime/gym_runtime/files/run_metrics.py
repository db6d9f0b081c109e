"""Metrics of a run, kept up as rollouts finish: per agent, over its rollouts and over its groups.

Of a rollout it keeps twelve bytes, and eight for every numeric field of its row and for its answer. Failed
and cancelled rollouts are counted; their numbers enter no statistic but the totals of tokens, turns and tool
calls.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec

from gym_runtime.files.sample import CANCELLED, NO_ANSWER, NOT_ASKED, USAGE, Sample, sample_record
from gym_runtime.files.scores import STATISTICS, PassScores, describe, percent, repeat_means, steps
from gym_runtime.messages.calls import RoleUse, add_use
from gym_runtime.messages.outcomes import RolloutRecord
from gym_runtime.statistics import Clusters, Total, deviation, mean

SUBSETS = 200
"""So many subsets have their own figures: rows of a foreign file may name any number."""


class Table(msgspec.Struct, frozen=True):
    """The numbers of one agent's rollouts that have a verdict, by column; NaN where a rollout has none.

    Attributes:
        unjudged: the task of each rollout that has no verdict.
        answers: `Sample.answer` of each rollout; empty if no row has an answer's field.
        subsets: the positions in the columns by `Sample.subset`, of the first `SUBSETS` subsets.
    """

    task_indices: array[int]
    rollout_indices: array[int]
    columns: dict[str, array[float]]
    unjudged: array[int]
    answers: array[int] = msgspec.field(default_factory=lambda: array("q"))
    subsets: dict[str, array[int]] = msgspec.field(default_factory=dict[str, "array[int]"])

    def rewards_at(self, positions: Sequence[int]) -> Table:
        """The rewards of some rollouts, as their own table."""
        return Table(
            array("q", (self.task_indices[position] for position in positions)),
            array("i", (self.rollout_indices[position] for position in positions)),
            {"reward": array("d", (self.columns["reward"][position] for position in positions))},
            array("q"),
        )

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

    def statistics(self, positions: Sequence[int] | None = None) -> dict[str, float | None]:
        """``mean|max|min|median|std/<field>`` over some rollouts, or all of them.

        A rollout without a field does not count for it.
        """
        described: dict[str, tuple[float | None, ...]] = {}
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

    def errors(self) -> dict[str, float | None]:
        """The standard error of each ``mean/<field>``, clustered by task."""
        clusters = {name: Clusters() for name, _ in sorted(self.columns.items(), key=_reward_first)}
        for _, positions in self.groups():
            for name, found in clusters.items():
                column = self.columns[name]
                found.add([value for position in positions if (value := column[position]) == value])
        return {f"mean/{name}": found.standard_error for name, found in clusters.items()}

    def reward_groups(self) -> Iterator[list[float]]:
        """The rewards of each group, in the order of its rollouts; none for a group without a verdict."""
        rewards = self.columns.get("reward", ())
        unjudged = set(self.unjudged)
        for task_index, positions in self.groups():
            unjudged.discard(task_index)
            yield [rewards[position] for position in positions]
        yield from ([] for _ in unjudged)


def over_repeats(table: Table) -> dict[str, float | None]:
    """How far the repeats differ, in percent: the standard deviation of their mean rewards, and the standard
    error of the mean over the repeats; nothing for a single repeat.
    """
    means = repeat_means(zip(table.rollout_indices, table.columns.get("reward", ()), strict=False))
    if len(means) < 2:
        return {}
    name, spread = f"pass@1[avg-of-{len(means)}]/reward", deviation(means)
    error = None if spread is None else spread / math.sqrt(len(means))
    return {f"{name}/std_dev_across_runs": percent(spread), f"{name}/std_err_across_runs": percent(error)}


def answer_shares(table: Table) -> dict[str, float | None]:
    """Where rows have an ``extracted_answer``, in percent: ``majority@k``, the reward of a task's most
    frequent answer, or the mean of those that are equally frequent; ``no_answer``, the share without one.

    A task in which no rollout has an answer counts 0 for the majority.
    """
    votes: list[float] = []
    missing: list[float] = []
    most = 0
    for _, positions in table.groups() if table.answers else ():
        asked = [position for position in positions if table.answers[position] != NOT_ASKED]
        if not asked:
            continue
        rewards: dict[int, list[float]] = {}
        for position in asked:
            rewards.setdefault(table.answers[position], []).append(table.columns["reward"][position])
        missing.append(len(rewards.pop(NO_ANSWER, ())) / len(asked))
        first = max(map(len, rewards.values()), default=0)
        votes.append(mean([mean(one) or 0.0 for one in rewards.values() if len(one) == first]) or 0.0)
        most = max(most, len(positions))
    if not votes:
        return {}
    majority = {f"majority@{most}/reward": percent(mean(votes))} if most > 1 else {}
    return majority | {f"pass@1[avg-of-{most}]/no_answer": percent(mean(missing))}


def subset_shares(table: Table) -> dict[str, float | None]:
    """The mean reward of each subset of the rows; with several rollouts per task also pass@k, in percent."""
    found: dict[str, float | None] = {}
    for name in sorted(table.subsets):
        part = table.rewards_at(table.subsets[name])
        scores = pass_scores([part])
        figures = {"mean/reward": scores.rewards.mean}
        figures |= _pass_fields(scores, scores.pass_at, scores.mean_of_first)
        found |= {f"{name}/{figure}": value for figure, value in figures.items()}
    return found


def pass_scores(tables: Sequence[Table]) -> PassScores:
    """pass@k of all groups, for the usual ``k`` up to the size of the largest group."""
    most = max((len(rewards) for table in tables for rewards in table.reward_groups()), default=0)
    scores = PassScores(steps(most))
    for table in tables:
        for rewards in table.reward_groups():
            scores.add(rewards)
    return scores


def _pass_fields(
    scores: PassScores, passes: Mapping[int, float | None], firsts: Mapping[int, float | None]
) -> dict[str, float | None]:
    """pass@k and pass@1[avg-of-k] of the reward, in percent, when a task has several rollouts."""
    if max(scores.pass_tasks, default=0) < 2:
        return {}
    found = {f"pass@{k}/reward": percent(value) for k, value in passes.items()}
    return found | {f"pass@1[avg-of-{k}]/reward": percent(value) for k, value in firsts.items()}


def task_counts(scores: PassScores) -> dict[str, int]:
    counts = {"all": scores.tasks, "rated": scores.groups}
    return counts | {f"pass@{k}/reward": tasks for k, tasks in scores.pass_tasks.items()}


def _reward_first(column: tuple[str, array[float]]) -> tuple[bool, str]:
    return column[0] != "reward", column[0]


_NAN = math.nan
_encode = msgspec.json.Encoder().encode


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A run, or one agent's part of it, in a few numbers.

    Attributes:
        rollouts: finished ones, whatever their outcome.
        outcomes: how many were ``completed``, ``truncated``, ``failed``, ``cancelled``.
        failures: how many failed by whose fault, most frequent first.
        tasks: groups with at least one reward.
        all_tasks: groups with at least one finished rollout, whatever its outcome.
        failures_as_zero: failed rollouts count as those with a reward of 0, as was asked for.
        mean_reward: over the rollouts with a reward; None if no rollout has one.
        mean_reward_error: its standard error, clustered by task (`gym_runtime.statistics.Clusters`); None
            with less than two tasks.
        pass_at: pass@k, 0 to 1, by k; empty if a reward is outside 0 to 1.
        pass_error: the standard error of each; None with one task.
        pass_tasks: how many tasks each is computed over: those with k rewards.
        turns, tool_calls, input_tokens, output_tokens, total_tokens: sums over all rollouts.
        mean_duration_s: of an attempt, over all rollouts; None if not known.
        roles: what models in roles cost, by role; sums over all rollouts.
        score: the metric that a benchmark's authors report, if this is one agent's part of a benchmark.
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
    all_tasks: int = 0
    failures_as_zero: bool = False
    mean_reward_error: float | None = None
    pass_error: dict[int, float | None] = {}
    pass_tasks: dict[int, int] = {}

    @property
    def rewarded(self) -> int:
        """How many rollouts the mean reward is over."""
        failed = self.outcomes["failed"] if self.failures_as_zero else 0
        return self.outcomes["completed"] + self.outcomes["truncated"] + failed


class AgentTable:
    """One agent's rollouts on arrival: the numbers of rollouts with a verdict, and counts of all.

    Args:
        failures_as_zero: failed rollouts count as those with a reward of 0.

    Attributes:
        table: the numbers so far; it grows with each rollout.
    """

    def __init__(self, *, failures_as_zero: bool = False) -> None:
        self._failures_as_zero = failures_as_zero
        self.table = Table(array("q"), array("i"), {}, array("q"))
        self.outcomes: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.totals: Counter[str] = Counter()
        self.durations = Total()
        self.roles: dict[str, RoleUse] = {}

    def add(self, sample: Sample) -> float | None:
        """Take one finished rollout in; returns the reward that it counts with, if it has one."""
        self.outcomes[sample.outcome] += 1
        if sample.failure:
            self.failures[sample.failure] += 1
        self.totals["turns"] += sample.turns
        self.totals["tool_calls"] += sample.tool_calls
        for name in USAGE:
            self.totals[name] += int(sample.numbers.get(name, 0))
        self.durations.add(sample.duration_s)
        add_use(self.roles, sample.roles)
        reward, numbers = sample.reward, sample.numbers
        if reward is None and self._failures_as_zero and sample.outcome == "failed":
            reward, numbers = 0.0, {"reward": 0.0}
        if reward is None:
            self.table.unjudged.append(sample.task_index)
            return None
        columns = self.table.columns
        for name in numbers:
            if name not in columns:
                # Rollouts before this one did not have the field.
                columns[name] = array("d", [_NAN]) * len(self.table.task_indices)
        for name, column in columns.items():
            column.append(numbers.get(name, _NAN))
        self.table.task_indices.append(sample.task_index)
        self.table.rollout_indices.append(sample.rollout_index)
        if sample.answer != NOT_ASKED or self.table.answers:
            missed = len(self.table.task_indices) - 1 - len(self.table.answers)
            self.table.answers.extend([NOT_ASKED] * missed + [sample.answer])
        subsets = self.table.subsets
        if sample.subset and (sample.subset in subsets or len(subsets) < SUBSETS):
            place = len(self.table.task_indices) - 1
            subsets.setdefault(sample.subset, array("q")).append(place)
        return reward


class Metrics:
    """All agents of a run.

    Args:
        failures_as_zero: failed rollouts count as those with a reward of 0; cancelled ones never do.

    Attributes:
        rollouts, cancelled: how many so far.
        failures: how many failed so far, by whose fault it was.
        scores: of the agents that run benchmarks, once the run's rows are complete
            (`gym_runtime.files.recorded_run`).
    """

    def __init__(self, *, failures_as_zero: bool = False) -> None:
        self.failures_as_zero = failures_as_zero
        self.agents: dict[str, AgentTable] = {}
        self.scores: dict[str, dict[str, float]] = {}
        self.rollouts = self.cancelled = 0
        self.failures: Counter[str] = Counter()
        self._rewards = Total()

    def add(self, record: RolloutRecord) -> None:
        """Take one record in. Each rollout is to be added once."""
        self.add_sample(sample_record(record))

    def add_sample(self, sample: Sample) -> None:
        """Add one finished rollout, of this run or of the run that it resumes."""
        table = self.agents.get(sample.agent)
        if table is None:
            table = self.agents[sample.agent] = AgentTable(failures_as_zero=self.failures_as_zero)
        reward = table.add(sample)
        if reward is not None:
            self._rewards.add(reward)
        if sample.failure:
            self.failures[sample.failure] += 1
        self.cancelled += sample.outcome == CANCELLED
        self.rollouts += 1

    @property
    def tokens(self) -> tuple[int, int]:
        """Tokens read and written so far, by all rollouts; cheap."""
        totals = [table.totals for table in self.agents.values()]
        return sum(one["input_tokens"] for one in totals), sum(one["output_tokens"] for one in totals)

    @property
    def mean_reward(self) -> float | None:
        """Over all rollouts with a reward so far; cheap."""
        return self._rewards.mean

    def summary(self, *agents: str) -> Summary:
        """The whole run, or some agents' part; sorts all rollouts, so it is for the end."""
        agents = agents or tuple(self.agents)
        tables = [self.agents[agent] for agent in agents]
        outcomes = sum((table.outcomes for table in tables), Counter[str]())
        failures = sum((table.failures for table in tables), Counter[str]())
        totals = sum((table.totals for table in tables), Counter[str]())
        rewarded = [table.table for table in tables]
        scores = pass_scores(rewarded)
        # A best reward of 7, or of -0.2, is no share of passes. The aggregate has it, as NeMo Gym's does.
        shares = all(0 <= reward <= 1 for table in rewarded for reward in table.columns.get("reward", ()))
        durations = sum((table.durations for table in tables), Total())
        roles: dict[str, RoleUse] = {}
        for table in tables:
            add_use(roles, table.roles)
        return Summary(
            rollouts=outcomes.total(),
            outcomes={name: outcomes[name] for name in ("completed", "truncated", "failed", "cancelled")},
            failures=dict(failures.most_common()),
            tasks=scores.groups,
            all_tasks=scores.tasks,
            failures_as_zero=self.failures_as_zero,
            mean_reward=scores.rewards.mean,
            mean_reward_error=scores.rewards.standard_error,
            pass_at=scores.pass_at if shares else {},
            pass_error=scores.pass_error if shares else {},
            pass_tasks=scores.pass_tasks if shares else {},
            turns=totals["turns"],
            tool_calls=totals["tool_calls"],
            input_tokens=totals["input_tokens"],
            output_tokens=totals["output_tokens"],
            total_tokens=totals["total_tokens"],
            mean_duration_s=durations.mean or None,
            roles=roles,
            score=self.scores.get(agents[0], {}) if len(agents) == 1 else {},
        )

    def aggregate(self) -> Iterator[bytes]:
        """The content of ``_aggregate_metrics.json``, in pieces; groups stand one per line.

        A list with one entry per agent: ``agent_ref``, ``agent_metrics`` (statistics of every field over
        all rollouts; with several rollouts per task also pass@k, in percent as NeMo Gym has it, how far the
        repeats differ; and what `answer_shares` and `subset_shares` say),
        ``key_metrics`` (the means) and ``group_level_metrics`` (statistics per task); and what NeMo Gym has
        not: ``standard_errors`` of the means and of pass@k, clustered by task; ``tasks``: how many there are
        (``all``), how many have a reward (``rated``), and over how many each pass@k is computed;
        ``failures_as_zero`` if that was asked for; ``score`` (of a benchmark, as its authors compute it) and
        ``failures`` (how many by whose fault), where there are any. What is undefined, or larger than a
        double, is null. It does not depend on the order in which the rollouts came.
        """
        yield b"["
        for position, (agent, entry) in enumerate(sorted(self.agents.items())):
            table = entry.table
            scores = pass_scores([table])
            agent_metrics = table.statistics() | _pass_fields(scores, scores.pass_at, scores.mean_of_first)
            agent_metrics |= over_repeats(table) | answer_shares(table) | subset_shares(table)
            pass_errors = _pass_fields(scores, scores.pass_error, scores.mean_of_first_error)
            key_metrics = {name: value for name, value in agent_metrics.items() if name.startswith("mean/")}
            yield b",\n{" if position else b"\n{"
            yield b'"agent_ref":' + _encode({"name": agent})
            yield b',\n"agent_metrics":' + _pretty(agent_metrics)
            yield b',\n"key_metrics":' + _pretty(key_metrics)
            yield b',\n"standard_errors":' + _pretty(table.errors() | pass_errors)
            yield b',\n"tasks":' + _pretty(task_counts(scores))
            if self.failures_as_zero:
                yield b',\n"failures_as_zero":true'
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


def _pretty(value: Any) -> bytes:
    return msgspec.json.format(_encode(value), indent=2)

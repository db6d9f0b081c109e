"""The numbers of one agent's rollouts as columns, for when metrics are asked for, and what they come to."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

import msgspec

from gym_runtime.files.scores import STATISTICS, PassScores, describe, percent, steps
from gym_runtime.statistics import Clusters


class Table(msgspec.Struct, frozen=True):
    """The numbers of one agent's rollouts that have a verdict, by column; NaN where a rollout has none.

    Attributes:
        unjudged: the task of each rollout that has no verdict.
    """

    task_indices: array[int]
    rollout_indices: array[int]
    columns: dict[str, array[float]]
    unjudged: array[int]

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


def pass_scores(tables: Sequence[Table]) -> PassScores:
    """pass@k of all groups, for the usual ``k`` up to the size of the largest group."""
    most = max((len(rewards) for table in tables for rewards in table.reward_groups()), default=0)
    scores = PassScores(steps(most))
    for table in tables:
        for rewards in table.reward_groups():
            scores.add(rewards)
    return scores


def pass_metrics(scores: PassScores) -> dict[str, float | None]:
    """pass@k and pass@1[avg-of-k] of the reward, in percent, when a task has several rollouts."""
    return _pass_fields(scores, scores.pass_at, scores.mean_of_first)


def pass_errors(scores: PassScores) -> dict[str, float | None]:
    """The standard errors of `pass_metrics`, in percent."""
    return _pass_fields(scores, scores.pass_error, scores.mean_of_first_error)


def _pass_fields(
    scores: PassScores, passes: Mapping[int, float | None], firsts: Mapping[int, float | None]
) -> dict[str, float | None]:
    if max(scores.pass_tasks, default=0) < 2:
        return {}
    found = {f"pass@{k}/reward": percent(value) for k, value in passes.items()}
    return found | {f"pass@1[avg-of-{k}]/reward": percent(value) for k, value in firsts.items()}


def task_counts(scores: PassScores) -> dict[str, int]:
    counts = {"all": scores.tasks, "rated": scores.groups}
    return counts | {f"pass@{k}/reward": tasks for k, tasks in scores.pass_tasks.items()}


def _reward_first(column: tuple[str, array[float]]) -> tuple[bool, str]:
    return column[0] != "reward", column[0]

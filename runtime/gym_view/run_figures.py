"""The figures of a run, from its rows: what ``compare`` prints and the page draws."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import itemgetter
from pathlib import Path

import msgspec
from gym_runtime.files import PassScores, Spent, steps, token_uses
from gym_runtime.statistics import Total, mean

from gym_view.index import IndexedRow
from gym_view.index_entry import OUTCOMES, DoubledRows
from gym_view.indexing import indexed
from gym_view.run_files import Run


class GroupFigures(msgspec.Struct):
    """The rollouts of one task that have a reward.

    ``rewards`` are pairs of rollout index and reward, as they came; ``key`` is the prompt's (`Entry.key`).
    ``spent`` has all rollouts, also those without a reward.
    """

    environment: str
    task: int
    key: int
    rewards: list[tuple[int, float]] = []
    spent: list[Spent] = []

    @property
    def ordered(self) -> tuple[float, ...]:
        """The rewards in the order of the rollouts."""
        return tuple(reward for _, reward in sorted(self.rewards, key=itemgetter(0)))

    @property
    def mean(self) -> float:
        """The mean reward; NaN without any."""
        found = mean(self.ordered)
        return math.nan if found is None else found

    @property
    def kind(self) -> str:
        """``mixed`` if the rewards differ, ``zero`` if all are 0, ``equal`` if all are the same; ``none``."""
        values = {reward for _, reward in self.rewards}
        if not values:
            return "none"
        return "mixed" if len(values) > 1 else "zero" if values == {0.0} else "equal"


Groups = Mapping[tuple[str, int], GroupFigures]
_FAILED, _UNREADABLE = OUTCOMES.index("failed"), OUTCOMES.index("unreadable")


class RunFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A run in a few numbers.

    Attributes:
        rollouts: all rollouts. A failed rollout that was run again and now has a verdict does not count.
        mean_reward: over rollouts with a reward; None without any.
        mean_error: its standard error, clustered by task (`gym_runtime.statistics.Clusters`); None with less
            than two tasks.
        tasks: all of them, also those without a reward.
        pass_at: pass@k, 0 to 1, by k; empty if a reward is outside 0 to 1.
        pass_error: the standard error of each; None with one task.
        pass_tasks: how many tasks each is computed over: those with k rewards.
        all_zero, all_equal, mixed: tasks whose rewards are all 0, all the same and not 0, or differ. Only the
            last give a gradient to group-relative training.
        mean_duration_s: of an attempt, over rollouts that have one.
        useful: useful tokens per sampled token (`gym_runtime.files.token_use`); None if no task has two
            rollouts. `useful_by_environment` has it for each environment with such a task.
    """

    rollouts: int
    outcomes: dict[str, int]
    mean_reward: float | None
    mean_error: float | None
    tasks: int
    pass_at: dict[int, float]
    pass_error: dict[int, float | None]
    pass_tasks: dict[int, int]
    all_zero: int
    all_equal: int
    mixed: int
    input_tokens: int
    output_tokens: int
    turns: int
    tool_calls: int
    mean_duration_s: float | None
    useful: float | None = None
    useful_by_environment: dict[str, float | None] = {}


Reader = Callable[[Path], Iterable[IndexedRow]]
"""Gives the rows of a file in their order."""


def rows_of(
    run: Run, read: Reader = indexed, read_failures: Reader | None = None
) -> Iterator[tuple[Path, IndexedRow]]:
    """Every rollout of a run with the file that it is in: rollouts, then failures not made up for.

    Of several rows of a rollout the first counts, of several failures the last.

    Args:
        read_failures: for the failures, of which a rollout may have several; by default as ``read``.
    """
    done: set[tuple[int, int]] = set()
    parts, doubled = run.parts, DoubledRows()
    for row in read(run.rollouts):
        if doubled.again(row.entry):
            continue
        if "failures" in parts and not _unreadable(row):
            done.add((row.entry.task, row.entry.rollout))
        yield run.rollouts, row
    if "failures" not in parts:
        return
    latest: dict[tuple[int, int], IndexedRow] = {}
    for row in (read_failures or read)(parts["failures"]):
        where = (row.entry.task, row.entry.rollout)
        if _unreadable(row):
            yield parts["failures"], row
        elif where not in done:
            latest[where] = row
    for row in latest.values():
        yield parts["failures"], row


def _unreadable(row: IndexedRow) -> bool:
    """A line that is no JSON: it is of no task, and its numbers are those of the line."""
    return row.entry.outcome == _UNREADABLE


def figures_of(rows: Iterable[IndexedRow], *, failures_as_zero: bool = False) -> tuple[RunFigures, Groups]:
    """A run's figures, and its rollouts by environment and task.

    ``failures_as_zero``: failed rollouts count with a reward of 0.
    """
    outcomes = [0] * len(OUTCOMES)
    input_tokens = output_tokens = turns = tool_calls = 0
    durations = Total()
    groups: dict[tuple[str, int], GroupFigures] = {}
    for row in rows:
        entry = row.entry
        outcomes[entry.outcome] += 1
        input_tokens += entry.input_tokens
        output_tokens += entry.output_tokens
        turns += entry.turns
        tool_calls += entry.tool_calls
        if entry.duration_s > 0:
            durations.add(entry.duration_s)
        if entry.outcome == _UNREADABLE:
            continue  # it is of no task
        where = (entry.environment, entry.task)
        group = groups.get(where)
        if group is None:
            group = groups[where] = GroupFigures(entry.environment, entry.task, entry.key)
        reward = entry.reward if entry.reward == entry.reward else None
        group.spent.append((reward, entry.output_tokens))
        if reward is not None:
            group.rewards.append((entry.rollout, reward))
        elif failures_as_zero and entry.outcome == _FAILED:
            group.rewards.append((entry.rollout, 0.0))
    # Of many tasks most have the rewards of another one: what comes of them is computed once.
    rewards = Counter(group.ordered for group in groups.values())
    # A best reward of 7, or of -0.2, is no share of passes.
    shares = all(0 <= reward <= 1 for group in rewards for reward in group)
    scores = PassScores(steps(max(map(len, rewards), default=0)))
    for group, times in rewards.items():
        scores.add(group, times)
    kinds = Counter(group.kind for group in groups.values())
    uses = _uses(groups)
    return (
        RunFigures(
            rollouts=sum(outcomes),
            outcomes={name: count for name, count in zip(OUTCOMES, outcomes, strict=True) if count},
            mean_reward=scores.rewards.mean,
            mean_error=scores.rewards.standard_error,
            tasks=scores.tasks,
            pass_at=scores.pass_at if shares else {},
            pass_error=scores.pass_error if shares else {},
            pass_tasks=scores.pass_tasks if shares else {},
            all_zero=kinds["zero"],
            all_equal=kinds["equal"],
            mixed=kinds["mixed"],
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            turns=turns,
            tool_calls=tool_calls,
            mean_duration_s=durations.mean,
            useful=_share(uses.values()),
            useful_by_environment={name: _share([found]) for name, found in uses.items()},
        ),
        groups,
    )


def _uses(groups: Groups) -> dict[str, Counter[str]]:
    """What became of the tokens of groups, by environment; a task with one rollout is no group."""
    found: dict[str, Counter[str]] = {}
    for group in groups.values():
        if len(group.spent) > 1:
            found.setdefault(group.environment, Counter()).update(token_uses(group.spent))
    return found


def _share(uses: Iterable[Counter[str]]) -> float | None:
    every = sum(uses, Counter[str]())
    return every["useful"] / every.total() if every.total() else None

"""Means of rollouts' figures, and votes among the rollouts of a task. All figures are in percent.

A figure's mean is that of the tasks' means, so that a task with a failed rollout counts as much as any other.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from gym_runtime import ScoredRollout

Tasks = Sequence[Sequence[ScoredRollout]]


def by_task(rollouts: Sequence[ScoredRollout]) -> Tasks:
    """The rollouts of each task, in the order of the tasks' numbers."""
    tasks: dict[int, list[ScoredRollout]] = defaultdict(list)
    for rollout in rollouts:
        tasks[rollout.task_index].append(rollout)
    return [tasks[index] for index in sorted(tasks)]


def mean(tasks: Tasks, field: str = "") -> float:
    """The mean of a field's numbers or truth values, or of the rewards. A rollout without it counts 0."""
    return 100 * fmean(fmean(_number(rollout, field) for rollout in task) for task in tasks)


def accuracy(rollouts: Sequence[ScoredRollout]) -> dict[str, float]:
    """``accuracy``, or ``mean@k`` where a task has k rollouts."""
    tasks = by_task(rollouts)
    return {_name("mean", tasks): mean(tasks)}


def accuracy_and_majority(rollouts: Sequence[ScoredRollout]) -> dict[str, float]:
    """As `accuracy`, and ``majority@k``: the reward of the most frequent ``extracted_answer``.

    Answers are told apart by their text; of several that are equally frequent the rewards' mean counts. A
    rollout without an answer has no vote, and a task without any vote counts 0.
    """
    tasks = by_task(rollouts)
    found = {_name("mean", tasks): mean(tasks)}
    if max(map(len, tasks)) > 1:
        found[_name("majority", tasks)] = 100 * fmean(map(_vote, tasks))
    return found


def by_category(rollouts: Sequence[ScoredRollout], field: str) -> dict[str, float]:
    """As `accuracy`, of all rollouts and of those of each value of a field."""
    return {
        **accuracy(rollouts),
        **{name: mean(tasks) for name, tasks in categories(rollouts, field).items()},
    }


def categories(rollouts: Iterable[ScoredRollout], field: str) -> dict[str, Tasks]:
    """The tasks of each value of a field, by the value; those without one are left out."""
    parts: Mapping[str, list[ScoredRollout]] = defaultdict(list)
    for rollout in rollouts:
        if rollout.fields[field] is not None:
            parts[str(rollout.fields[field])].append(rollout)
    return {name: by_task(parts[name]) for name in sorted(parts)}


def by_truth(rollouts: Sequence[ScoredRollout], field: str, names: tuple[str, str]) -> dict[str, float]:
    """The means of the rollouts in which a field is false, or missing, and of those in which it is true, by
    these names; nothing where one of them has no rollouts.
    """
    parts = [[one for one in rollouts if bool(one.fields.get(field)) is truth] for truth in (False, True)]
    return dict(zip(names, (mean(by_task(part)) for part in parts), strict=True)) if all(parts) else {}


def found_and_missed(rollouts: Sequence[ScoredRollout], said: str, truth: str) -> dict[str, float]:
    """``f1``, ``precision`` and ``recall`` of what a field ``said`` where the field ``truth`` is true.

    A rollout that said nothing found nothing. Each rollout counts once.
    """
    found = [one for one in rollouts if one.fields[said]]
    right = sum(bool(one.fields[truth]) for one in found)
    there = sum(bool(one.fields[truth]) for one in rollouts)
    precision, recall = right / len(found) if found else 0.0, right / there if there else 0.0
    both = precision + recall
    f1 = 2 * precision * recall / both if both else 0.0
    return {"f1": 100 * f1, "precision": 100 * precision, "recall": 100 * recall}


def _vote(task: Sequence[ScoredRollout]) -> float:
    answers: dict[Any, list[float]] = defaultdict(list)
    for rollout in task:
        if rollout.fields["extracted_answer"] is not None:
            answers[rollout.fields["extracted_answer"]].append(rollout.reward)
    votes = Counter({answer: len(rewards) for answer, rewards in answers.items()})
    if not votes:
        return 0.0
    most = max(votes.values())
    return fmean(fmean(answers[answer]) for answer, count in votes.items() if count == most)


def _number(rollout: ScoredRollout, field: str) -> float:
    return float(rollout.fields[field] or 0) if field else rollout.reward


def _name(what: str, tasks: Tasks) -> str:
    k = max(map(len, tasks))
    return "accuracy" if k == 1 else f"{what}@{k}"

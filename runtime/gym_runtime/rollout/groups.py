"""Groups: all rollouts of one task, returned together, as group-relative training needs them.

The run's policy decides what happens to a group in which a rollout fails for good:

==============  ==========================================================================================
``replace``     a new rollout takes its place, at most `REPLACEMENTS` times for each, unless the row itself
                is wrong, and so wrong for all, or it could not be compared; if rollouts are still missing,
                the group has failed
``mask``        the group keeps its size, even if all rollouts failed; a failed rollout has no reward, and
                `Group.mask` is False for it; a group without any reward has failed
``shrink``      the group is returned without it; a group without any rollout left has failed
``fail_group``  the group has failed, and its other rollouts are cancelled
==============  ==========================================================================================

A failed group is returned too, with the reason in `Group.failed`, and without rollouts except under ``mask``.
So every task of a run comes back exactly once. The rules are a pure function of the records: `Groups.take`.

Advantages compare a rollout with the others of its group that have a reward, as trainers define it. A rollout
without a reward has the advantage 0 and does not change those of the others. The only rollout with a reward
has the advantage 0, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Literal, get_args

import msgspec

from gym_runtime.environment.catalogue import unknown
from gym_runtime.errors import TaskError, UsageError
from gym_runtime.files.rows import renumbered
from gym_runtime.messages.outcomes import Cancelled, Failed, RolloutRecord
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.messages.transcripts import MOST_ROWS, html_table, html_transcript
from gym_runtime.plurals import counted
from gym_runtime.rollout.comparisons import COMPARE
from gym_runtime.statistics import deviation, mean

GroupPolicy = Literal["replace", "mask", "shrink", "fail_group"]
REPLACEMENTS = 3


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """The rollouts of one task.

    Attributes:
        rollouts: in the order of their ``rollout_index``; empty if the group has failed, except under
            ``mask``.
        failures: the records of failed rollouts, including replaced ones.
        failed: why the group has failed; empty if it has not.
        row: the dataset row, as the caller gave it.
        key: the caller's name for the row; None if it gave none.
        weight: how often its advantages count: more than once for a group that was likelier to be stopped.
    """

    run: str
    task_index: int
    environment: str
    rollouts: list[RolloutRecord] = []
    failures: list[RolloutRecord] = []
    failed: str = ""
    row: Any = None
    key: Any = None
    weight: float = 1.0

    @property
    def records(self) -> list[RolloutRecord]:
        """Of all rollouts: ``rollouts``, then failed ones that are not among them."""
        return [*self.rollouts, *(one for one in self.failures if one not in self.rollouts)]

    @property
    def rewards(self) -> list[float | None]:
        """One per rollout; None exactly where `mask` is False."""
        return [rollout.reward for rollout in self.rollouts]

    def rewards_of(self, seat: str) -> list[float | None]:
        """One per rollout: of a trained seat, where rollouts have several."""
        return [rollout.reward_of(seat) for rollout in self.rollouts]

    @property
    def mask(self) -> list[bool]:
        """Which rollouts have a verdict and may be trained on."""
        return [rollout.reward is not None for rollout in self.rollouts]

    def _repr_html_(self) -> str:
        """What a notebook shows: a line for each rollout, and their conversations folded."""
        shown = self.records[:MOST_ROWS]
        rows = [
            (one.rollout_index, one.reward, one.ending, one.turns, one.tool_calls, one.duration_s)
            for one in shown
        ]
        average = mean([reward for reward in self.rewards if reward is not None])
        summary = (self.environment, self.task_index, len(self.rollouts), average, self.failed or None)
        heads = ("environment", "task", "rollouts", "mean reward", "failed")
        return (
            html_table(heads, [summary])
            + html_table(("rollout", "reward", "outcome", "turns", "tool calls", "seconds"), rows)
            + "".join(html_transcript(one.row, f"rollout {one.rollout_id}") for one in shown)
        )

    @property
    def advantages(self) -> list[float]:
        """One per rollout, as GRPO defines it, 0.0 where `mask` is False.

        ``gym_runtime.training.advantages(group.rewards, "rloo")`` gives those of another definition.
        """
        return advantages(self.rewards)


class Make(msgspec.Struct, frozen=True):
    """Publish one more rollout."""

    task: RolloutSpec


class Cancel(msgspec.Struct, frozen=True):
    """Cancel these rollouts of a group."""

    task_index: int
    rollouts: list[int]


class _Open(msgspec.Struct):
    """A group that is not complete yet."""

    tasks: dict[int, RolloutSpec]
    left: int
    next_index: int
    replacements: int = 0
    done: list[RolloutRecord] = []
    failures: list[RolloutRecord] = []
    cancelled: set[int] = set()

    @property
    def running(self) -> set[int]:
        """The indices of the rollouts that are not finished; without replacements."""
        return self.tasks.keys() - {record.rollout_index for record in (*self.done, *self.failures)}


class Groups:
    """Collects a run's records into groups.

    The specs of a group must be noted before its first record comes; `noting` ensures that.

    Args:
        seeded: each rollout of a group has a seed, its index (``seed_repeats``).

    Attributes:
        replacements: how many rollouts replaced failed ones.
    """

    def __init__(self, policy: GroupPolicy, *, seeded: bool = False) -> None:
        if policy not in get_args(GroupPolicy):
            known = list(get_args(GroupPolicy))
            raise UsageError(f"there is no group policy '{policy}'{unknown(policy, known)}")
        self.replacements = 0
        self._open: dict[int, _Open] = {}
        self._policy, self._seeded = policy, seeded

    def noting(self, specs: Iterable[RolloutSpec]) -> Iterator[RolloutSpec]:
        """The specs, noted before they are passed on.

        All specs of a list are noted before the first is passed on, so a row that occurs again later joins
        its group. Of a stream the repeats of a row are noted together; each row has its own ``task_index``
        there, because a row that comes again and again would keep its group open for ever.
        """
        if isinstance(specs, Sequence):
            for spec in specs:
                self._note(spec)
            yield from specs
            return
        # `groupby` reads one spec too many; it is noted when its own group begins.
        for _, members in groupby(specs, key=lambda spec: spec.task_index):
            group = list(members)
            for spec in group:
                self._note(spec)
            yield from group

    def _note(self, spec: RolloutSpec) -> None:
        group = self._open.setdefault(spec.task_index, _Open(tasks={}, left=0, next_index=0))
        group.tasks[spec.rollout_index] = spec
        group.left += 1
        group.next_index = max(group.next_index, spec.rollout_index + 1)

    def take(self, record: RolloutRecord) -> list[Make | Cancel | Group]:
        """The commands that follow from a record; a complete group comes last."""
        group = self._open[record.task_index]
        group.left -= 1
        commands: list[Make | Cancel | Group] = []
        if isinstance(record.outcome, (Failed, Cancelled)):
            group.failures.append(record)
            # Before the check for completeness, because a replacement keeps the group open.
            if self._policy == "replace" and self._replaceable(group, record):
                commands.append(Make(self._replacement(group)))
            elif self._policy == "fail_group" and (rest := group.running - group.cancelled):
                group.cancelled |= rest
                commands.append(Cancel(record.task_index, sorted(rest)))
        else:
            group.done.append(record)
        if group.left == 0:
            del self._open[record.task_index]
            commands.append(self._whole(group, record))
        return commands

    def _replaceable(self, group: _Open, record: RolloutRecord) -> bool:
        # A cancelled rollout has no fault, and no replacement is wanted.
        fault = record.outcome.fault if isinstance(record.outcome, Failed) else None
        hopeless = fault is None or fault.kind == TaskError.kind or fault.stage == COMPARE
        return not hopeless and group.replacements < REPLACEMENTS * len(group.tasks)

    def _replacement(self, group: _Open) -> RolloutSpec:
        # Any of the group's specs will do: they differ in their index only, and in the seed made of it.
        again = renumbered(next(iter(group.tasks.values())), group.next_index, seeded=self._seeded)
        group.next_index += 1
        group.replacements += 1
        group.left += 1
        self.replacements += 1
        return again

    def _whole(self, group: _Open, last: RolloutRecord) -> Group:
        policy, wanted = self._policy, len(group.tasks)
        kept = group.done + (group.failures if policy == "mask" else [])
        failed = ""
        if not group.done:
            many = len(group.failures)
            which = "the only rollout" if many == 1 else f"all {many} rollouts"
            failed = f"{which} failed: {_reason(group.failures)}"
        elif group.failures and policy == "fail_group":
            failed = f"a rollout failed: {_reason(group.failures)}"
        elif len(group.done) < wanted and policy == "replace":
            failed = (
                f"{wanted - len(group.done)} of {counted(wanted, 'rollout')} are missing after "
                f"{counted(group.replacements, 'replacement')}: {_reason(group.failures)}"
            )
        return Group(
            run=last.run,
            task_index=last.task_index,
            environment=last.environment,
            rollouts=[]
            if failed and policy != "mask"
            else sorted(kept, key=lambda record: record.rollout_index),
            failures=group.failures,
            failed=failed,
        )


def _reason(records: Sequence[RolloutRecord]) -> str:
    """The message of the last failed record; cancelled records have no message."""
    messages = [record.outcome.fault.message for record in records if isinstance(record.outcome, Failed)]
    return messages[-1] if messages else "cancelled"


Advantage = Literal["grpo", "dr_grpo", "rloo"]
EPSILON = 1e-4
"""Added to the standard deviation, as TRL adds it."""


def advantages(rewards: Iterable[float | None], kind: Advantage = "grpo") -> list[float]:
    """The advantage of each rollout of a group, in their order.

    Args:
        rewards: None or NaN for a rollout without a reward.
        kind: ``grpo``: the difference from the mean, divided by the standard deviation (of a sample, with
            n - 1) plus `EPSILON`. ``dr_grpo``: that difference alone. ``rloo``: the difference from the mean
            of the others.

    Raises:
        UsageError: there is no such definition, or a reward is infinite.

    Source: Shao et al., "DeepSeekMath" (GRPO), https://arxiv.org/abs/2402.03300, with TRL's GRPOTrainer 1.16
    for the sample's deviation and `EPSILON`; Liu et al., "Understanding R1-Zero-Like Training: A Critical
    Perspective" (Dr. GRPO), https://arxiv.org/abs/2503.20783; Ahmadian et al., "Back to Basics: Revisiting
    REINFORCE Style Optimization" (RLOO), https://arxiv.org/abs/2402.14740.

    >>> advantages([1.0, 0.0, None], "dr_grpo")
    [0.5, -0.5, 0.0]
    >>> advantages([1.0, 0.0, 0.5], "rloo")
    [0.75, -0.75, 0.0]
    """
    if kind not in get_args(Advantage):
        known = list(get_args(Advantage))
        raise UsageError(f"there is no advantage '{kind}'{unknown(kind, known)}")
    # One form for "no reward", as trainers' arrays have it; numbers of numpy become plain.
    given = [math.nan if reward is None else float(reward) for reward in rewards]
    if any(map(math.isinf, given)):
        raise UsageError("a reward is infinite: give finite numbers, and None where there is no reward")
    scored = [reward for reward in given if not math.isnan(reward)]
    if len(scored) < 2:
        return [0.0] * len(given)
    center, scale = mean(scored) or 0.0, 1.0
    if kind == "grpo":
        scale = 1.0 / ((deviation(scored) or 0.0) + EPSILON)
    elif kind == "rloo":
        # r - (sum - r) / (n - 1) is (r - mean) * n / (n - 1).
        scale = len(scored) / (len(scored) - 1)
    return [0.0 if math.isnan(reward) else (reward - center) * scale for reward in given]

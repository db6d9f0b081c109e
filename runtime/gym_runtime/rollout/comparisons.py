"""Groups whose rollouts get their rewards together: when a group is complete, and what each rollout gets.

A rollout that waits for the comparison of its group is committed like any other, without a reward. Each
client that reads a run's records holds the waiting records back until the group is complete, that is until
each of its rollouts is committed: with a verdict, waiting, or failed for good. Then the client publishes the
comparison, a task on the same queue, which the broker accepts only once. The comparison's result is committed
once, under a negative ``rollout_index``, and gives each waiting record its reward.

The waiting rollouts are compared, in the order of their ``rollout_index``. A single one cannot be compared,
and fails. So the records alone decide, and every client decides alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from gym_runtime.errors import Fault, ResourceError
from gym_runtime.messages.calls import ComparedVerdict, Comparison, RoleAnswer, add_use, role_numbers
from gym_runtime.messages.names import is_own
from gym_runtime.messages.outcomes import Cancelled, Completed, Failed, Outcome, RolloutRecord
from gym_runtime.messages.rollout_spec import Candidate, RolloutSpec, comparison_index, is_comparison
from gym_runtime.rollout.record import add_verdict

COMPARE = "compare"
"""The stage of a failure to compare."""

_NOTHING_ASKED = Comparison(verdicts=[])
_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder().encode


class _Group(msgspec.Struct):
    """A group that has no result yet: the indices still to come, and the records that wait."""

    left: set[int]
    waiting: dict[int, RolloutRecord] = {}


class Comparisons:
    """Keeps a run's waiting records until their comparison has a result.

    Args:
        settled: whether a rollout, given by task index and rollout index, has its row already, so that no
            record is awaited.
        resumed: an earlier client of this run may have published or completed comparisons.
    """

    def __init__(self, settled: Callable[[int, int], bool] | None = None, *, resumed: bool = False) -> None:
        self._settled: Callable[[int, int], bool] = settled or (lambda task_index, rollout_index: False)
        self._resumed = resumed
        self._open: dict[tuple[int, int], _Group] = {}
        self._asked: dict[tuple[int, int], _Group] = {}
        self._lost: dict[int, set[int]] = {}

    def lose(self, record: RolloutRecord) -> None:
        """A stored record cannot be read, so its group is unknown: no group waits for it."""
        self._lost.setdefault(record.task_index, set()).add(record.rollout_index)

    def expect(self, task: RolloutSpec) -> None:
        """One more rollout takes part in its group: it replaces one that failed."""
        if task.group is not None:
            # The group exists, because it has the replaced record; so its size is not needed.
            self._group(task.task_index, task.group.first, 0).left.add(task.rollout_index)

    def take(self, record: RolloutRecord) -> Iterator[RolloutRecord | RolloutSpec]:
        """The records to hand over now, each with its outcome, and the comparison to publish, if any.

        The caller must `expect` the replacement of a yielded record before it takes the next item.
        """
        if is_comparison(record.rollout_index):
            yield from self._compared(record)
            return
        if record.group is None:
            yield record
            for place, group in list(self._open.items()):
                if place[0] == record.task_index and record.rollout_index in group.left:
                    group.left.discard(record.rollout_index)
                    if not group.left:
                        del self._open[place]
                        yield from self._complete(group)
            return
        place = (record.task_index, record.group.first)
        group = self._group(*place, record.group.size)
        group.left.discard(record.rollout_index)
        if record.waiting is None:
            yield record
        else:
            group.waiting[record.rollout_index] = record
        # After the yield above: the caller may have added a replacement (`expect`).
        if not group.left:
            del self._open[place]
            yield from self._complete(group)

    def rest(self) -> Iterator[RolloutRecord]:
        """The records that still wait when the run is cancelled, as cancelled."""
        for group in (*self._open.values(), *self._asked.values()):
            for record in group.waiting.values():
                yield without_verdict(record, Cancelled())
        self._open.clear()
        self._asked.clear()

    def _group(self, task_index: int, first: int, size: int) -> _Group:
        group = self._open.get((task_index, first))
        if group is None:
            span = range(first, first + size)
            lost = self._lost.get(task_index, ())
            left = {index for index in span if index not in lost and not self._settled(task_index, index)}
            group = self._open[task_index, first] = _Group(left)
        return group

    def _complete(self, group: _Group) -> Iterator[RolloutRecord | RolloutSpec]:
        members = [group.waiting[index] for index in sorted(group.waiting)]
        # An earlier client has written all their rows; the records arrive again because a run is read from
        # its start.
        if all(self._settled(one.task_index, one.rollout_index) for one in members):
            return
        if len(members) < 2:
            fault = ResourceError(
                "nothing to compare it with: no other rollout of its task has come this far; a group needs "
                "two at least (--repeats)",
                stage=COMPARE,
            ).fault()
            yield from (without_verdict(one, Failed(fault=fault)) for one in members)
            return
        task = comparison_task(members, taken_up=self._resumed)
        self._asked[task.task_index, task.rollout_index] = group
        yield task

    def _compared(self, record: RolloutRecord) -> Iterator[RolloutRecord]:
        group = self._asked.pop((record.task_index, record.rollout_index), None)
        if group is not None:
            yield from with_verdicts([group.waiting[index] for index in sorted(group.waiting)], record)


def comparison_task(members: list[RolloutRecord], *, taken_up: bool = False) -> RolloutSpec:
    """The task that compares waiting records, in the order of their indices."""
    first = members[0]
    candidates = [
        Candidate(rollout_index=one.rollout_index, features=one.waiting.features)
        for one in members
        if one.waiting is not None
    ]
    assert first.waiting is not None
    return replace(
        first.waiting.task,
        rollout_index=comparison_index(first.rollout_index),
        row=_task_row(first.row),
        candidates=candidates,
        group=None,
        attempt_base=0,
        taken_up=taken_up,
    )


def with_verdicts(members: list[RolloutRecord], comparison: RolloutRecord) -> Iterator[RolloutRecord]:
    """A group's records with the verdicts of its comparison; each record has a reward or has failed.

    The comparison's questions to models in roles are in one row, so that they are counted once: in the first
    row that has a reward, else in the first.
    """
    outcome, result = comparison.outcome, comparison.comparison
    if result is None or not isinstance(outcome, Completed):
        ended = outcome if not isinstance(outcome, Completed) else Failed(fault=_unjudged("it has no result"))
        for one in members:
            asked = result if result is not None and one is members[0] else _NOTHING_ASKED
            yield without_verdict(one, ended, asked)
        return
    verdicts = {verdict.rollout_index: verdict for verdict in result.verdicts}
    compared = sorted(verdicts)
    rewarded = [one for one in members if (of := verdicts.get(one.rollout_index)) and of.reward is not None]
    bearer = (rewarded or members)[0]
    for one in members:
        asked = result if one is bearer else _NOTHING_ASKED
        verdict = verdicts.get(one.rollout_index)
        if verdict is None or verdict.reward is None:
            fault = verdict.fault if verdict is not None and verdict.fault is not None else None
            failed = Failed(fault=fault or _unjudged("it was made without this rollout"))
            yield without_verdict(one, failed, asked)
        else:
            yield with_verdict(one, verdict, verdict.reward, compared, asked)


def _unjudged(why: str) -> Fault:
    return ResourceError(f"the comparison of its group says nothing of it: {why}", stage=COMPARE).fault()


def _task_row(row: Raw) -> Raw:
    """The dataset's row, from a result row that has no verdict."""
    kept = {
        name: value
        for name, value in _fields(row).items()
        if name == "responses_create_params" or not is_own(name)
    }
    return Raw(_encode(kept))


def with_verdict(
    record: RolloutRecord,
    verdict: ComparedVerdict,
    reward: float,
    compared: list[int],
    asked: Comparison,
) -> RolloutRecord:
    """A record that waited, with its reward.

    Args:
        compared: the rollouts that were compared with each other, itself included.
        asked: what models in roles answered, for this row.
    """
    numbers = dict(record.numbers)
    fields = _fields(record.row)
    row: dict[str, Any] = {}
    # Copied one by one, so that the reward is where rows of other rollouts have it.
    for name, value in fields.items():
        row[name] = value
        if name == "response":
            row["reward"] = reward
    add_verdict(row, numbers, reward, verdict.components, verdict.fields)
    rewards = verdict.rewards
    more: dict[str, Any] = {"compared": compared, **({"rewards": rewards} if rewards else {})}
    return _ended(replace(record, reward=reward, rewards=rewards), row, numbers, asked, more)


def without_verdict(
    record: RolloutRecord, outcome: Outcome, asked: Comparison = _NOTHING_ASKED
) -> RolloutRecord:
    """A waiting record that gets no reward."""
    row, numbers = {**_fields(record.row)}, dict(record.numbers)
    return _ended(replace(record, outcome=outcome), row, numbers, asked, {"outcome": outcome})


def _ended(
    record: RolloutRecord,
    row: dict[str, Any],
    numbers: dict[str, float],
    asked: Comparison,
    more: Mapping[str, object],
) -> RolloutRecord:
    """The record with its new row, whose ``_gym`` also gets the comparison's use of models in roles."""
    about: dict[str, Any] = {**_fields(row["_gym"]), **more}
    roles = dict(record.roles)
    if asked.role_use:
        add_use(roles, asked.role_use)
        about["roles"] = roles
        if asked.role_answers:
            recorded = about.get("role_answers", b"[]")
            about["role_answers"] = msgspec.json.decode(recorded, type=list[RoleAnswer]) + asked.role_answers
        numbers.update(role_numbers(roles))
    row["_gym"] = about
    return replace(record, row=Raw(_encode(row)), numbers=numbers, roles=roles, waiting=None)

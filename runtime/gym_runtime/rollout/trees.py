"""Advantages of forked rollouts: those of a tree, for each turn.

Rollouts that begin with the same turns form a tree. A segment is a run of turns between two forks; it is one
node, however many rollouts share it. The value of a segment is the mean of its children's values, and that of
a last segment is the reward of its rollout. Trees that have the same task are passed together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import msgspec

from gym_runtime.environment.catalogue import unknown
from gym_runtime.errors import UNREADABLE, TaskError, UsageError
from gym_runtime.messages.outcomes import RolloutRecord
from gym_runtime.messages.sequences import TokenSequence
from gym_runtime.rollout.groups import advantages
from gym_runtime.statistics import mean

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TreeAdvantage = Literal["leaves", "tree_grpo", "tree_rpo", "spo"]

_Turn = tuple[str, int]
"""A turn: the rollout that made it first, and its number."""
_Segment = tuple[_Turn, ...]
_Path = tuple[_Segment, ...]


class Grown(NamedTuple):
    """A rollout of a tree.

    Attributes:
        turns: how many it has, shared ones included.
        parent: the rollout that it forks; empty for none. It need not be among the others.
        shared: how many turns it shares with its parent.
    """

    rollout_id: str
    turns: int
    reward: float | None
    parent: str = ""
    shared: int = 0


class _Fork(msgspec.Struct, frozen=True):
    rollout_id: str = ""
    turn: int = 0


class _Own(msgspec.Struct, frozen=True):
    fork: _Fork | None = None


class _Row(msgspec.Struct, frozen=True):
    own: _Own = msgspec.field(name="_gym", default=_Own())


_decode = msgspec.json.Decoder(_Row).decode


def tree_advantages(
    rollouts: Iterable[RolloutRecord | Grown], kind: TreeAdvantage = "tree_grpo"
) -> list[list[float]]:
    """The advantage of each turn of each rollout of a task, in their order.

    A turn that several rollouts share has the same number in each of them; train it once
    (`RolloutRecord.sequences` with ``shared=False``). A rollout without a reward has zeros, and does not
    change the others.

    Args:
        kind: ``leaves``: GRPO's over all rollouts; a shared turn has the mean of its rollouts'.
            ``tree_grpo``: the same, of GRPO's within the tree plus GRPO's over all trees. ``tree_rpo``:
            GRPO's among the segments that follow the same one. ``spo``: the value of the segment less that of
            the segment before it.

    Raises:
        UsageError: there is no such definition.
        TaskError: a record's row is damaged.

    Source: Shao et al., "DeepSeekMath" (GRPO), https://arxiv.org/abs/2402.03300; Tree-GRPO,
    https://arxiv.org/abs/2509.21240; TreeRPO, https://arxiv.org/abs/2506.05183; SPO-tree,
    https://arxiv.org/abs/2505.23564.

    >>> parent = Grown("a", turns=2, reward=1.0)
    >>> tree_advantages([parent, Grown("b", turns=2, reward=0.0, parent="a", shared=1)], "spo")
    [[0.0, 0.5], [0.0, -0.5]]
    """
    if kind not in get_args(TreeAdvantage):
        known = list(get_args(TreeAdvantage))
        raise UsageError(f"there is no advantage of trees '{kind}'{unknown(kind, known)}")
    grown = [_grown(one) if isinstance(one, RolloutRecord) else one for one in rollouts]
    paths = _paths(grown)
    found = _of_segments([(path, one.reward) for path, one in zip(paths, grown, strict=True)], kind)
    return [
        [0.0 if one.reward is None else found[segment] for segment in path for _ in segment]
        for path, one in zip(paths, grown, strict=True)
    ]


def tree_sequences(
    records: Iterable[RolloutRecord], kind: TreeAdvantage = "tree_grpo"
) -> list[tuple[TokenSequence, NDArray[np.float32]]]:
    """What to train on of the rollouts of a tree: each token once, with its advantage.

    A turn that several of the records share is trained in the first of them that has its tokens. Rollouts
    without a reward are left out.

    Args:
        kind: as for `tree_advantages`.

    Returns:
        The sequences of the rollouts, each with float32 advantages of the shape of its ``completion_ids``,
        0.0 where its ``mask`` is False.

    Raises:
        UsageError: there is no such definition, or a record has no token ids.
        TaskError: a record's calls are not one conversation, turn by turn: they have branches or several
            seats; or its row is damaged.
    """
    import numpy as np

    found: list[tuple[TokenSequence, NDArray[np.float32]]] = []
    records = list(records)
    grown = [_grown(record) for record in records]
    known = {one.rollout_id: one for one in grown}
    trained: set[_Turn] = set()
    for record, one, own in zip(records, grown, tree_advantages(grown, kind), strict=True):
        if record.reward is None:
            continue
        sequences = record.sequences()
        # Where a fork changed the system prompt, its shared turns have no tokens.
        missing = len(own) - sum(len(sequence.turns) for sequence in sequences)
        # Turns stand in the order of the sequences only if all of them are of one line.
        lines = {(sequence.kind, sequence.seat) for sequence in sequences}
        if (
            missing not in (0, min(one.shared, one.turns))
            or len(lines) > 1
            or any(line[0] != "main" for line in lines)
        ):
            raise TaskError(f"the calls of rollout {record.rollout_id} are not one conversation")
        line = _line(one, known, frozenset())
        left = iter(zip(line[missing:], own[missing:], strict=True))
        for sequence in sequences:
            values, mask = np.zeros(len(sequence.completion_ids), np.float32), sequence.mask.copy()
            for start, end in sequence.turns:
                turn, values[start:end] = next(left)
                if turn in trained:
                    mask[start:end] = False
                elif mask[start:end].any():
                    trained.add(turn)
            found.append((replace(sequence, mask=mask), np.where(mask, values, np.float32(0.0))))
    return found


def _grown(record: RolloutRecord) -> Grown:
    try:
        fork = _decode(record.row).own.fork or _Fork()
    except UNREADABLE as error:
        raise TaskError(f"not a result row: {error}") from error
    return Grown(record.rollout_id, record.turns, record.reward, fork.rollout_id, fork.turn)


def _paths(rollouts: Sequence[Grown]) -> list[_Path]:
    """Each rollout's segments."""
    known = {one.rollout_id: one for one in rollouts}
    lines = [_line(one, known, frozenset()) for one in rollouts]
    # Of which rollouts each turn is a part: where that changes, a segment ends. A fork without a reward ends
    # none: what follows it would be compared with nothing.
    parts: defaultdict[_Turn, set[int]] = defaultdict(set)
    for number, line in enumerate(lines):
        if rollouts[number].reward is not None:
            for turn in line:
                parts[turn].add(number)
    found: list[_Path] = []
    for line in lines:
        segments: list[list[_Turn]] = []
        for turn in line:
            if segments and parts[segments[-1][-1]] == parts[turn]:
                segments[-1].append(turn)
            else:
                segments.append([turn])
        found.append(tuple(map(tuple, segments)))
    return found


def _line(one: Grown, known: dict[str, Grown], below: frozenset[str]) -> list[_Turn]:
    """The turns of a rollout, each with the rollout that made it.

    Raises:
        TaskError: rollouts fork each other in a circle, which only damaged rows do.
    """
    if one.rollout_id in below:
        raise TaskError(f"rollout {one.rollout_id} forks itself")
    shared = min(one.shared, one.turns)
    parent = known.get(one.parent)
    before: list[_Turn] = [(one.parent, turn) for turn in range(shared)]
    if parent is not None:
        before = _line(parent, known, below | {one.rollout_id})[:shared]
    return before + [(one.rollout_id, turn) for turn in range(len(before), one.turns)]


def _of_segments(
    rollouts: Sequence[tuple[_Path, float | None]], kind: TreeAdvantage
) -> dict[_Segment, float]:
    scored = [(path, reward) for path, reward in rollouts if reward is not None and path]
    rewards = [reward for _, reward in scored]
    if kind in ("leaves", "tree_grpo"):
        own = advantages(rewards)
        if kind == "tree_grpo":
            own = [a + b for a, b in zip(own, _within_trees(scored), strict=True)]
        below: defaultdict[_Segment, list[float]] = defaultdict(list)
        for (path, _), value in zip(scored, own, strict=True):
            for segment in path:
                below[segment].append(value)
        return {segment: mean(values) or 0.0 for segment, values in below.items()}
    children: defaultdict[_Segment, dict[_Segment, None]] = defaultdict(dict)
    ends: defaultdict[_Segment, list[float]] = defaultdict(list)
    for path, reward in scored:
        for before, segment in zip(((), *path), path, strict=False):
            children[before][segment] = None
        ends[path[-1]].append(reward)
    values: dict[_Segment, float] = {}
    for path, _ in sorted(scored, key=lambda one: -len(one[0])):
        for segment in (*reversed(path), ()):
            of = [values[child] for child in children[segment] if child in values] + ends[segment]
            values[segment] = mean(of) or 0.0
    if kind == "spo":
        return {
            child: values[child] - values[segment] for segment, those in children.items() for child in those
        }
    return {
        child: value
        for those in children.values()
        for child, value in zip(those, advantages([values[one] for one in those]), strict=True)
    }


def _within_trees(scored: Sequence[tuple[_Path, float]]) -> list[float]:
    """GRPO's advantages among the rollouts of each tree."""
    trees: defaultdict[_Segment, list[int]] = defaultdict(list)
    for number, (path, _) in enumerate(scored):
        trees[path[0]].append(number)
    found = [0.0] * len(scored)
    for numbers in trees.values():
        for number, value in zip(numbers, advantages([scored[one][1] for one in numbers]), strict=True):
            found[number] = value
    return found

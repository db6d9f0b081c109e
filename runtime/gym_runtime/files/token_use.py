"""Useful tokens per sampled token: how much of what the engine sampled can teach a group-relative trainer.

    U = tokens of rollouts whose reward differs from the mean of their group / tokens of all rollouts

Only tokens that the policy sampled count, and only those of groups that have ended: all rollouts of a task.
The other tokens are of one of these kinds:

==========  ================================================================================================
``flat``    of groups whose rewards do not differ
``zero``    of rollouts whose reward is the mean of their group, so that their advantage is 0
``failed``  of rollouts without a reward, and of groups with fewer than two rewards
==========  ================================================================================================
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence

Spent = tuple[float | None, int]
"""Of one rollout: its reward, None if it has none, and the tokens that it sampled."""
_NOTHING: Mapping[str, int] = {}


def has_signal(rewards: Sequence[float]) -> bool:
    """Whether rewards differ by more than a millionth of the largest one (at least of 1).

    >>> has_signal([0.0, 1.0]), has_signal([0.3, 0.3 + 1e-9]), has_signal([1.0])
    (True, False, False)
    """
    if len(rewards) < 2:
        return False
    return max(rewards) - min(rewards) > 1e-6 * max(1.0, *map(abs, rewards))


def token_uses(group: Iterable[Spent]) -> Counter[str]:
    """What became of the tokens of a group that has ended.

    >>> token_uses([(1.0, 10), (0.0, 20), (0.5, 30), (None, 40)])["useful"]
    30
    """
    group = list(group)
    rewards = [reward for reward, _ in group if reward is not None]
    signal, average = has_signal(rewards), sum(rewards) / max(1, len(rewards))
    found: Counter[str] = Counter()
    for reward, tokens in group:
        if reward is None or len(rewards) < 2:
            found["failed"] += tokens
        elif not signal:
            found["flat"] += tokens
        else:
            found["zero" if abs(reward - average) <= 1e-8 else "useful"] += tokens
    return found


class GroupTokens:
    """What became of the tokens of a run's groups, as the rollouts arrive.

    A group counts when ``size`` of its rollouts have ended, however they ended; what waits for that is kept.

    Args:
        size: rollouts of each task; with 1 there are no groups, and nothing is counted.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._open: dict[Hashable, list[Spent]] = {}

    def add(self, task: Hashable, reward: float | None, tokens: int) -> Mapping[str, int]:
        """A rollout of a task has ended; returns what became of its group's tokens, if that is complete."""
        if self._size < 2:
            return _NOTHING
        group = self._open.setdefault(task, [])
        group.append((reward, tokens))
        return token_uses(self._open.pop(task)) if len(group) >= self._size else _NOTHING

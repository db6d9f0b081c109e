"""Useful tokens per sampled token: how much of what the engine sampled taught the policy something.

    U = tokens of rollouts that were trained on with an advantage other than 0 / all sampled tokens

What is not useful is one of these, and together they are all tokens that are not pending:

============  ==============================================================================================
``flat``      of groups whose rewards do not differ
``stopped``   of groups that were stopped because their rewards would probably not differ
``failed``    of rollouts without a reward, and of groups with too few rewards
``refused``   of groups that the trainer did not take
``zero``      of rollouts whose reward is the mean of their group, so that their advantage is 0
============  ==============================================================================================

Tokens count when their rollout ends. Those of groups that wait for a batch are ``pending``.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable

import msgspec
from gym_runtime.files import token_uses

from gym_signal.plan import Drawn


class Useful(msgspec.Struct):
    """Tokens that the policy sampled, by what became of them.

    Attributes:
        sampled: all of them, of rollouts that have ended.
        groups: how many groups were in batches.
    """

    sampled: int = 0
    useful: int = 0
    flat: int = 0
    stopped: int = 0
    failed: int = 0
    refused: int = 0
    zero: int = 0
    groups: int = 0

    @property
    def pending(self) -> int:
        """Tokens of rollouts that have ended and are in no batch yet."""
        return self.sampled - (
            self.useful + self.flat + self.stopped + self.failed + self.refused + self.zero
        )

    @property
    def share(self) -> float | None:
        """Useful tokens per sampled token, without those that are pending; None before there are any."""
        settled = self.sampled - self.pending
        return self.useful / settled if settled else None

    def add(self, uses: Counter[str]) -> None:
        """Count tokens by what became of them."""
        for use, tokens in uses.items():
            setattr(self, use, getattr(self, use) + tokens)

    def taken(self, group: Drawn) -> None:
        """A group is in a batch."""
        self.groups += 1
        self.add(uses_of(group))

    def refuse(self, group: Drawn) -> None:
        """The trainer does not train on a group of its batch."""
        self.groups -= 1
        self.refused += group.spent
        self.add(Counter({use: -tokens for use, tokens in uses_of(group).items()}))

    def since(self, before: Useful) -> Useful:
        """What was counted since an earlier reading."""
        now, then = msgspec.structs.astuple(self), msgspec.structs.astuple(before)
        return Useful(*map(operator.sub, now, then))


def total(several: Iterable[Useful]) -> Useful:
    """The sum."""
    return Useful(*map(sum, zip(*map(msgspec.structs.astuple, several), strict=True)))


def uses_of(group: Drawn) -> Counter[str]:
    """What became of the tokens of a group that has ended, if the trainer takes it where it is in a batch."""
    if group.ended in ("stopped", "failed"):
        return Counter({group.ended: group.spent})
    return token_uses((group.rewards[one], tokens) for one, tokens in group.tokens.items())

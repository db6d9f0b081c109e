"""Advantages of trained seats: who is compared with whom in a rollout that trains several models, or one in
several roles.

A seat is compared with the same seat only: what wins for one loses for another. `seat_advantages` compares
within a group. `SeatBaselines` needs no group: it keeps a moving mean of each seat's rewards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gym_runtime import RolloutRecord, UsageError
from gym_runtime.client import Client
from gym_runtime.messages import token
from gym_runtime.plurals import counted
from gym_runtime.statistics import mean
from gym_runtime.training import Group, advantages
from msgspec import DecodeError, ValidationError, convert, json

DECAY = 0.95
Advantages = list[dict[str, float]]
"""Of each rollout, in order: the advantage of each of its seats; seats without a reward are left out. What a
rollout without seats samples has the seat ``""``."""


def seats_of(records: Sequence[RolloutRecord]) -> list[str]:
    """The seats that have rewards, the main one first."""
    main = [record.seat for record in records if record.seat]
    return list(dict.fromkeys([*main, *(seat for record in records for seat in record.rewards)]))


def seat_advantages(group: Group, kind: str = "hierarchical") -> Advantages:
    """The advantage of each seat of each rollout of a group.

    Args:
        kind: ``hierarchical``: the difference from the mean of its peers, itself included. The peers of
            ``solver/1`` are the solvers of its rollout, those of a seat without a number the same seats of
            the group; a seat without others has 0. Other kinds are those of
            `gym_runtime.training.advantages`, over the same seats of the group.

    Raises:
        UsageError: there is no such kind.

    Source: hierarchical GRPO as prime-rl computes it: no standard deviation.
    """
    records = group.rollouts
    found: Advantages = [{} for _ in records]
    for seat in seats_of(records) or [""]:
        rewards = group.rewards_of(seat)
        if kind == "hierarchical":
            own = [_apart(record, seat) for record in records]
            across = advantages(rewards, "dr_grpo")
            values = [other if one is None else one for one, other in zip(own, across, strict=True)]
        else:
            values = advantages(rewards, kind)  # pyright: ignore[reportArgumentType] - it is checked there
        for place, (reward, value) in enumerate(zip(rewards, values, strict=True)):
            if reward is not None:
                found[place][seat] = value
    return found


def _apart(record: RolloutRecord, seat: str) -> float | None:
    """The difference from the mean of the rollout's seats of the same name; None if they have no numbers."""
    name, number, _ = seat.partition("/")
    reward = record.reward_of(seat)
    if not number or reward is None:
        return None
    peers = [record.reward_of(one) for one in record.rewards if one.partition("/")[0] == name]
    return reward - (mean([one for one in peers if one is not None]) or 0.0)


class SeatBaselines:
    """Role-conditioned advantage estimation: the difference from a moving mean of the seat's rewards.

    It works for groups of one, and suits games in which one policy plays against itself. Each
    environment's seats have their own baselines, which begin at 0. A rollout is compared first and counted
    then, so the order of the groups decides the numbers: give them in the order of their ``task_index`` to
    repeat a run.

    Args:
        decay: how much of a baseline is kept at each reward, at least 0 and below 1.
        state: of `state`, to go on from it.

    Raises:
        UsageError: the decay or the state is not valid.

    Source: Liu et al., "SPIRAL: Self-Play on Zero-Sum Games Incentivizes Reasoning via Multi-Agent Multi-Turn
    Reinforcement Learning" (RAE), https://arxiv.org/abs/2506.24119.

    >>> baselines = SeatBaselines()
    >>> baselines.advantage("nim", "first", 1.0), round(baselines.advantage("nim", "first", 1.0), 4)
    (1.0, 0.95)
    """

    def __init__(self, decay: float = DECAY, state: Mapping[str, Mapping[str, float]] | None = None) -> None:
        if not 0 <= decay < 1:
            raise UsageError(f"decay={decay!r}: give a number of at least 0 and below 1, such as {DECAY}")
        self._decay = decay
        try:
            self._means = convert(dict(state or {}), dict[str, dict[str, float]])
        except ValidationError as error:
            raise UsageError(f"state: {error}; give what `SeatBaselines.state` was") from error
        self._sequence = 0

    @property
    def state(self) -> dict[str, dict[str, float]]:
        """The baselines by environment and seat, as plain Python, to be stored with a checkpoint."""
        return {environment: dict(seats) for environment, seats in self._means.items()}

    async def load(self, gym: Client, name: str) -> None:
        """Go on from what `store` has stored at the broker, if anything is.

        Args:
            name: of the training run.

        Raises:
            UsageError: what is stored cannot be read.
        """
        found = await gym.driver.bus.latest(_subject(name))
        if not found:
            return
        try:
            self._means = _decode_state(found[0].payload)
        except DecodeError as error:
            raise UsageError(f"the seats' baselines of {name!r} cannot be read: {error}") from error
        self._sequence = found[0].sequence

    async def store(self, gym: Client, name: str) -> None:
        """Store the baselines at the broker, after a step's groups; a trainer that was killed `load`s them.

        Raises:
            UsageError: another trainer has stored its own under this name meanwhile.
        """
        payload = json.encode(self._means)
        sequence = await gym.driver.bus.append(_subject(name), payload, expect=self._sequence)
        if sequence is None:
            what = f"another trainer uses the seats' baselines {name!r} now"
            raise UsageError(f"{what}: load them first, or give each training run its own name")
        self._sequence = sequence

    def advantage(self, environment: str, seat: str, reward: float) -> float:
        """The advantage of one reward, which then counts in the baseline."""
        means = self._means.setdefault(environment, {})
        before = means.get(seat, 0.0)
        means[seat] = self._decay * before + (1 - self._decay) * reward
        return reward - before

    def advantages(self, group: Group) -> Advantages:
        """Those of each seat of each rollout, in their order."""
        found: Advantages = []
        for record in group.rollouts:
            rewards = {seat: record.reward_of(seat) for seat in seats_of([record]) or [""]}
            found.append(
                {
                    seat: self.advantage(group.environment, seat, reward)
                    for seat, reward in rewards.items()
                    if reward is not None
                }
            )
        return found


_decode_state = json.Decoder(dict[str, dict[str, float]]).decode


def _subject(name: str) -> str:
    return f"runs.curriculum.{token(f'seats-{name}', 'baselines')}"


def seat_samples(group: Group, of_seats: Advantages, credit: Any = "accepted") -> list[tuple[Any, float]]:
    """Each sequence that is trained on, with its seat's advantage times its weight.

    Args:
        of_seats: of the group's rollouts, by `seat_advantages` or `SeatBaselines`.

    Raises:
        UsageError: there are not as many as rollouts, or a rollout has no token ids.
    """
    if len(of_seats) != len(group.rollouts):
        raise UsageError(
            f"{counted(len(of_seats), 'advantage')} for {counted(len(group.rollouts), 'rollout')}"
        )
    return [
        (sequence, sequence.weight * values[sequence.seat])
        for record, values in zip(group.rollouts, of_seats, strict=True)
        if values
        for sequence in record.sequences(credit)
        if sequence.weight and sequence.seat in values
    ]

"""How hard the rows are for a model, and which carry signal: rollouts of the model, judged as in a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import aclosing

import anyio
import msgspec
from gym_runtime import Client, UsageError, connect
from gym_runtime.adapters import ModelSettings
from gym_runtime.client import background, dead_engine
from gym_runtime.environment import Example, LoadedEnvironment, catalogue
from gym_runtime.training import Group

from gym_testing.audit.intervals import wilson

TOLERANCE = 1e-9
TENTHS = 10
ENGINE_LOOK_S = 2.0
"""How often it is asked whether the engine returns only errors."""


class RowDifficulty(msgspec.Struct, frozen=True, kw_only=True):
    """A row, tried by the model.

    Attributes:
        row: its number in its file, from 1.
        passed: rollouts that were paid in full, of all that were rated.
        low, high: the 95 % interval of the pass rate (Wilson); None without a rated rollout.
        mean_reward: None without a rated rollout.
    """

    row: int
    passed: int
    rated: int
    low: float | None
    high: float | None
    mean_reward: float | None


class Difficulty(msgspec.Struct, frozen=True, kw_only=True):
    """What a model made of the rows.

    Attributes:
        tries: rollouts of each row.
        failed: rollouts without a reward.
        pass_rate: the mean of the rows' pass rates; None if no row was rated.
        low, high: its 95 % interval (Wilson, of the rows: tries of one row are not independent).
        signal: rows whose rewards differ, of all with at least two rewards.
        signal_rows: these.
        signal_low, signal_high: the 95 % interval of their share (Wilson).
        tenths: rows by their pass rate: below 10 %, below 20 %, and so on; the last also has those of 100 %.
        length_p50, length_p95: tokens that a rollout wrote; None if the engine does not say.
    """

    model: str
    tries: int
    failed: int
    pass_rate: float | None
    low: float | None
    high: float | None
    signal: int
    signal_rows: int
    signal_low: float | None
    signal_high: float | None
    tenths: list[int]
    length_p50: float | None
    length_p95: float | None
    rows: list[RowDifficulty]


async def difficulty(
    environment: LoadedEnvironment,
    examples: Sequence[Example],
    model: ModelSettings,
    *,
    tries: int,
    roles: Mapping[str, ModelSettings] | None = None,
) -> Difficulty:
    """Start a system with the model, and run each row so often.

    Raises:
        UsageError: the model or one in a role is missing, or the model's engine has returned only errors.
    """
    address = catalogue.address(environment.name)
    async with (
        connect(model=model, environments=[address], roles=dict(roles or {})) as gym,
        background() as watching,
    ):
        watching.start_soon(_watch_engine, gym, model)
        groups = await _groups(gym, environment.name, examples, tries)
        if not any(rewards for rewards, _ in groups.values()):
            await _require_engine(gym, model)  # it was over before anyone has looked
    rewards = {number: found for number, (found, _) in sorted(groups.items())}
    lengths = [length for _, found in groups.values() for length in found]
    full = environment.definition.gold_reward - TOLERANCE
    return summarized(f"{model.provider}/{model.name}", tries, rewards, full, lengths)


def summarized(
    model: str, tries: int, rewards: Mapping[int, Sequence[float]], full: float, lengths: Sequence[float]
) -> Difficulty:
    """The figures of all rows.

    Args:
        rewards: of each row's rollouts, by its number.
        full: the reward that passes.
        lengths: of all rollouts.
    """
    rows = [_row(number, found, full) for number, found in rewards.items()]
    shares = [one.passed / one.rated for one in rows if one.rated]
    tenths = Counter(min(one.passed * TENTHS // one.rated, TENTHS - 1) for one in rows if one.rated)
    several = [found for found in rewards.values() if len(found) > 1]
    signal = sum(max(found) - min(found) > TOLERANCE for found in several)
    low, high = wilson(sum(shares), len(shares)) or (None, None)
    signal_low, signal_high = wilson(signal, len(several)) or (None, None)
    return Difficulty(
        model=model,
        tries=tries,
        failed=len(rows) * tries - sum(one.rated for one in rows),
        pass_rate=sum(shares) / len(shares) if shares else None,
        low=low,
        high=high,
        signal=signal,
        signal_rows=len(several),
        signal_low=signal_low,
        signal_high=signal_high,
        tenths=[tenths[place] for place in range(TENTHS)],
        length_p50=_quantile(sorted(lengths), 0.5),
        length_p95=_quantile(sorted(lengths), 0.95),
        rows=rows,
    )


async def _watch_engine(gym: Client, model: ModelSettings) -> None:
    while True:
        await anyio.sleep(ENGINE_LOOK_S)
        await _require_engine(gym, model)


async def _require_engine(gym: Client, model: ModelSettings) -> None:
    if said := await dead_engine(gym.driver.bus, gym.workers, "policy"):
        raise UsageError(
            f"the engine of {model.provider}/{model.name} has returned only errors: {said}. Repair it, or "
            "leave --model out"
        )


async def _groups(
    gym: Client, name: str, examples: Sequence[Example], tries: int
) -> dict[int, tuple[list[float], list[float]]]:
    """The rewards and the lengths of each row's rollouts, by the row's number."""
    rows, numbers = [one.row for one in examples], [one.number for one in examples]
    found: dict[int, tuple[list[float], list[float]]] = {}
    made = gym.groups(rows, environment=name, keys=numbers, repeats=tries, on_failure="mask")
    async with aclosing(made) as groups:
        async for group in groups:
            found[group.key] = _measured(group)
    return found


def _measured(group: Group) -> tuple[list[float], list[float]]:
    rated = [(one, one.reward) for one in group.rollouts if one.reward is not None]
    lengths = [one.numbers["output_tokens"] for one, _ in rated if one.numbers.get("output_tokens")]
    return [reward for _, reward in rated], lengths


def _row(number: int, rewards: Sequence[float], full: float) -> RowDifficulty:
    passed, rated = sum(reward >= full for reward in rewards), len(rewards)
    low, high = wilson(passed, rated) or (None, None)
    mean = sum(rewards) / rated if rated else None
    return RowDifficulty(row=number, passed=passed, rated=rated, low=low, high=high, mean_reward=mean)


def _quantile(values: Sequence[float], share: float) -> float | None:
    return values[min(int(share * len(values)), len(values) - 1)] if values else None

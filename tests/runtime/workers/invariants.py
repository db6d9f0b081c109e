"""What must hold at the end of a simulated system, whatever befell it."""

from __future__ import annotations

from collections import Counter

import structlog
from gym_runtime.messages.outcomes import Cancelled, Completed, Truncated
from gym_runtime.rollout.account import NOTES
from runtime.workers.sample_environments import TURNS
from runtime.workers.simulation import Plan, Play, play


def silence() -> None:
    """Faults are logged as warnings, thousands of them."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))


def violations(plan: Plan, played: Play) -> list[str]:
    """What does not hold of a plan's end."""
    found: list[str] = []
    for index, name in enumerate(plan.rollouts):
        records = played.disk.get((index, 0), [])
        if len(records) != 1:
            found.append(f"rollout {index} ({name}) has {len(records)} records")
        for record in records:
            judged = isinstance(record.outcome, Completed | Truncated)
            if judged != (record.reward is not None):
                found.append(f"rollout {index} ({name}) has reward {record.reward} and {record.outcome}")
            if isinstance(record.outcome, Cancelled):
                found.append(f"rollout {index} ({name}) was cancelled")
            if judged and record.reward != 1.0:
                found.append(f"rollout {index} ({name}) lost or repeated a call: reward {record.reward}")
    if played.sessions:
        found.append(f"{played.sessions} sessions are open")
    if played.busy:
        found.append(f"{played.busy} calls or rollouts are in progress")
    if played.stored["task"]:
        found.append(f"{played.stored['task']} tasks are queued")
    # An overtaken attempt may commit after its run was closed: once, as always.
    if played.stored["rollout"] > len(plan.rollouts) * played.parts:
        found.append(f"{played.stored['rollout']} records are stored")
    # So may the last turns and notes of what was in progress when its run was closed.
    if played.stored["journal"] > len(plan.rollouts) * played.parts * (TURNS + NOTES):
        found.append(f"{played.stored['journal']} turns and notes are stored")
    return found


def play_all(seeds: range) -> Counter[str]:
    """Play seeds and check each one's end; how many rollouts ended how."""
    outcomes: Counter[str] = Counter()
    for seed in seeds:
        plan = Plan.of(seed)
        try:
            played = play(plan)
        except BaseException as error:
            error.add_note(f"seed {seed}: {plan}")
            raise
        assert not violations(plan, played), f"seed {seed}: {violations(plan, played)} {plan}"
        outcomes.update(
            type(record.outcome).__name__ for records in played.disk.values() for record in records
        )
    return outcomes

"""What must hold at the end of a simulated system, whatever befell it."""

from __future__ import annotations

from collections import Counter

import msgspec
import structlog
from gym_runtime.messages.outcomes import Cancelled, Completed, Truncated
from gym_runtime.rollout.account import NOTES
from runtime.workers.sample_environments import CALLS, GROUPED, SIZE
from runtime.workers.simulation import Play, play
from runtime.workers.simulation_plan import Plan


def silence() -> None:
    """Faults are logged as warnings, thousands of them."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))


def violations(plan: Plan, played: Play) -> list[str]:
    """What does not hold of a plan's end."""
    found: list[str] = []
    first = len(plan.rollouts)
    places = [((index, 0), name) for index, name in enumerate(plan.rollouts)]
    places += [((first + group, one), GROUPED) for group in range(plan.groups) for one in range(SIZE)]
    for group in range(plan.groups):
        found += _unlike(first + group, played)
    for index, name in places:
        records = played.disk.get(index, [])
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
    if played.unknown:
        found.append(f"{played.unknown} sessions went on from a state that none has saved")
    if played.busy:
        found.append(f"{played.busy} calls or rollouts are in progress")
    if played.stored["task"]:
        found.append(f"{played.stored['task']} tasks are queued")
    # An overtaken attempt may commit after its run was closed: once, as always. So may a comparison.
    most = (plan.total + plan.groups) * played.parts
    if played.stored["rollout"] > most:
        found.append(f"{played.stored['rollout']} records are stored")
    # So may the last turns, notes and saved states of what was in progress when its run was closed.
    if played.stored["journal"] > most * (1 + 2 * CALLS + NOTES):
        found.append(f"{played.stored['journal']} turns, notes and states are stored")
    return found


def _unlike(task: int, played: Play) -> list[str]:
    """What does not hold of a group: all that have a reward have it from the same comparison."""
    members = [record for one in range(SIZE) for record in played.disk.get((task, one), [])]
    judged = [record for record in members if record.reward is not None]
    indices = [record.rollout_index for record in judged]
    compared = [msgspec.json.decode(record.row)["_gym"]["compared"] for record in judged]
    sizes = [record.numbers["of"] for record in judged]
    if compared == [indices] * len(judged) and sizes == [len(judged)] * len(judged) and len(judged) != 1:
        return []
    return [f"the rewards of group {task} are from {compared}, of {sizes}; it has {indices}"]


def play_all(seeds: range) -> tuple[Counter[str], int]:
    """Play seeds and check each one's end; how many rollouts ended how, and how many sessions went on."""
    outcomes: Counter[str] = Counter()
    restored = 0
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
        restored += played.restored
    return outcomes, restored

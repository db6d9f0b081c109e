"""A run that grows: more repeats of its rows, or more rows after those that it had.

What was made keeps its key. A row's repeats count on, and rows that follow come after the others in the
numbering (`gym_runtime.files.rows`), so a larger run contains the smaller one if its rows begin with the
same ones. The digest of these (`Dataset.earlier_digest`) says whether they do.
"""

from __future__ import annotations

from collections.abc import Iterable

from gym_runtime.files.manifest import GROWING, Manifest
from gym_runtime.files.results import OutputFiles, write_whole
from gym_runtime.files.rows import materialize
from gym_runtime.messages.rollout_spec import RolloutSpec


def grows(previous: Manifest, now: Manifest) -> bool:
    """Whether a run is asked for more than before, and for nothing else."""
    return (
        not previous.differences(now, but=GROWING)
        and not _fewer(previous, now)
        and previous.rows <= now.rows
        and previous.rollouts < now.rollouts
    )


def obstacles(previous: Manifest, now: Manifest, earlier_digest: str) -> list[str]:
    """Why a run cannot go on as a larger one; empty if it can."""
    found = previous.differences(now, but=GROWING)
    found += _fewer(previous, now)
    if previous.rows > now.rows:
        found.append(f"it had {previous.rows} rows, there are {now.rows}: a run only grows")
    elif earlier_digest != previous.digest:
        found.append(
            f"its {previous.rows} rows are not the first of these {now.rows} with the same numbers; "
            "put further rows after them"
        )
    return found


def write_inputs(files: OutputFiles, tasks: Iterable[RolloutSpec]) -> None:
    """Write the materialized inputs of a run that has grown: further repeats stand between the old lines.

    Raises:
        UsageError: the disk is full or broken; the old content stands.
    """
    write_whole(files.materialized_inputs, (materialize(task) + b"\n" for task in tasks))


def _fewer(previous: Manifest, now: Manifest) -> list[str]:
    """What is wrong with the repeats of an environment that has fewer than before."""
    before, after = _repeats(previous), _repeats(now)
    return [
        f"repeats was {before[name]}, is {after[name]}: a run only grows"
        for name in before
        if before[name] > after.get(name, before[name])
    ][:1]


def _repeats(manifest: Manifest) -> dict[str, int]:
    """The repeats of each environment: one number for all, or one for each."""
    given: int | dict[str, int] = manifest.settings.get("repeats") or 1
    environments: dict[str, int] = manifest.settings.get("environments") or {}
    return given if isinstance(given, dict) else dict.fromkeys(environments, given)

"""A job of Harbor's own runner beside a run of ``harbor:`` tasks: what each books, and where they differ.

Harbor counts a trial without a reward as 0 in its mean; here such a rollout has failed and has no reward. So
both figures of both are kept: over what was judged, and with 0 for what was not. The job's files are hostile.

Source: a job's folder as Harbor 0.26 writes it: ``JOB/TRIAL/result.json``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from gym_runtime.errors import UNREADABLE, UsageError
from gym_runtime.messages import as_object

from gym_view.run_files import Run

MAX_TRIALS = 1_000_000
MAX_BYTES = 64 << 20
_SHOWN_NAMES = 10
Rewards = dict[str, list[float | None]]
"""Of each task its rewards, None for what was not judged."""
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class Booked(msgspec.Struct, frozen=True):
    """A task's mean rewards here and with Harbor.

    Attributes:
        ours, theirs: over what was judged; None if nothing was.
        ours_as_zero, theirs_as_zero: with 0 for what was not judged, as Harbor's mean has it.
        why: the first reason why something was not judged; empty if all was.
    """

    task: str
    ours: float | None
    theirs: float | None
    ours_as_zero: float
    theirs_as_zero: float
    why: str = ""

    @property
    def differs(self) -> bool:
        return self.ours != self.theirs


def is_job(folder: Path) -> bool:
    """Whether a folder is a job of Harbor's."""
    return (folder / "result.json").is_file() and next(_trials(folder), None) is not None


def compared(run: Run, job: Path, reward_key: str = "") -> tuple[list[Booked], tuple[int, int], list[str]]:
    """The tasks that both have, those that differ first; how many only the run has, and only the job.

    Last come the names of the job's rewards that were read: of a trial with several ``reward_key``, by
    default ``reward``, else its only one.

    Raises:
        UsageError: they have no task in common, a file cannot be read, or ``reward_key`` must be another.
    """
    reasons: dict[str, str] = {}
    ours = _run_rewards(run, reasons)
    theirs, names = _job_rewards(job, reward_key, reasons)
    found = [
        Booked(
            task=task,
            ours=mean(ours[task]),
            theirs=mean(theirs[task]),
            ours_as_zero=mean(one or 0.0 for one in ours[task]) or 0.0,
            theirs_as_zero=mean(one or 0.0 for one in theirs[task]) or 0.0,
            why=reasons.get(task, ""),
        )
        for task in ours.keys() & theirs.keys()
    ]
    if not found:
        raise UsageError(
            f"{run.rollouts} and {job} have no task in common; the first is a run of harbor:PATH"
        )
    alone = len(ours.keys() - theirs.keys()), len(theirs.keys() - ours.keys())
    return sorted(found, key=lambda one: (not one.differs, one.task)), alone, names


def mean(rewards: Iterable[float | None]) -> float | None:
    """The mean of those that are numbers."""
    judged = [one for one in rewards if one is not None]
    return math.fsum(judged) / len(judged) if judged else None


def _run_rewards(run: Run, reasons: dict[str, str]) -> Rewards:
    found: dict[tuple[object, object], tuple[str, float | None]] = {}
    for path in (run.parts.get("failures"), run.rollouts):  # what was made up for comes last
        for row in _rows(path) if path else ():
            task, reward = _text(as_object(row.get("harbor")).get("path")), _number(row.get("reward"))
            if not task:
                continue
            found[row.get("_ng_task_index"), row.get("_ng_rollout_index")] = task, reward
            if reward is None:
                reasons[task] = _text(as_object(row.get("_ng_failure")).get("message"))
            else:
                reasons.pop(task, None)
    rewards: Rewards = {}
    for task, reward in found.values():
        rewards.setdefault(task, []).append(reward)
    return rewards


def _job_rewards(job: Path, key: str, reasons: dict[str, str]) -> tuple[Rewards, list[str]]:
    rewards: Rewards = {}
    read: set[str] = set()
    others: set[str] = set()
    for trial in _trials(job):
        given = as_object(as_object(trial.get("verifier_result")).get("rewards"))
        path = _text(as_object(trial.get("task_id")).get("path"))
        task = path.replace("\\", "/").rstrip("/").rpartition("/")[2] or _text(trial.get("task_name"))
        name = key or ("reward" if "reward" in given or len(given) != 1 else next(iter(given)))
        if name in given:
            read.add(name)
        else:
            others.update(given)
        reward = _number(given.get(name))
        rewards.setdefault(task, []).append(reward)
        if reward is None:
            raised = as_object(trial.get("exception_info"))
            missing = f"no reward '{name}'" if given else "no reward"
            reasons.setdefault(task, _text(raised.get("exception_type")) or missing)
    if others and (not key or not read):
        names = ", ".join(f"{' '.join(name.split()):.50}" for name in sorted(others)[:_SHOWN_NAMES])
        wanted = key or "reward"
        raise UsageError(f"trials in {job} have no reward '{wanted}'; --reward-key NAME says which: {names}")
    return rewards, sorted(read)


def _trials(job: Path) -> Iterator[Mapping[str, Any]]:
    for number, file in enumerate(sorted(job.glob("*/result.json"))):
        if number >= MAX_TRIALS:
            raise UsageError(f"{job} has more than {MAX_TRIALS:,} trials")
        try:
            if file.stat().st_size > MAX_BYTES:
                raise UsageError(f"{file} is larger than {MAX_BYTES >> 20} MiB")
            found = _decode(file.read_bytes())
        except (OSError, *UNREADABLE) as error:
            raise UsageError(f"{file} cannot be read: {error}") from error
        if "task_name" in found:
            yield found


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    if not path.is_file():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield _decode(line)
            except UNREADABLE as error:
                raise UsageError(f"{path}:{number} is no JSON object: {error}") from error


def _number(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        return None
    return float(value)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""

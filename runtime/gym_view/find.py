"""Finds one rollout: by its id, by its file and line, or by its file and numbers."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from gym_runtime.errors import UsageError
from gym_runtime.files import lines_of, load_manifest

from gym_view.index import IndexedRow
from gym_view.index_entry import OUTCOMES
from gym_view.indexing import indexed
from gym_view.run_files import Run, find_runs

_ID = re.compile(r"(?P<run>[\w-]+)\.(?P<task>\d+)\.(?P<rollout>\d+)")
_IN_FILE = re.compile(r"(?P<file>.+):(?:(?P<task>\d+)\.(?P<rollout>\d+)|(?P<line>\d+))", re.DOTALL)


def find_rollout(named: str, folder: Path) -> tuple[Path, bytes]:
    """The file in which a rollout stands, and its row.

    ``named`` is ``RUN.TASK.ROLLOUT``, looked for below ``folder``; ``FILE:LINE``, from 1; or
    ``FILE:TASK.ROLLOUT``.

    Raises:
        UsageError: no run was found.
    """
    if found := _IN_FILE.fullmatch(named):
        rows = Path(found["file"])
        if not rows.is_file():
            raise UsageError(f"there is no file {rows}")
        if found["line"]:
            return rows, _line(rows, int(found["line"]))
        return _in_run(Run(id=rows.stem, rollouts=rows), int(found["task"]), int(found["rollout"]))
    if found := _ID.fullmatch(named):
        if not folder.is_dir():
            raise UsageError(f"there is no folder {folder}; say where the rollouts are: --in FOLDER")
        for run in find_runs([folder]):
            manifest = None
            with suppress(UsageError):  # another run's may be damaged
                manifest = load_manifest(run.manifest)
            if manifest is not None and manifest.run == found["run"]:
                return _in_run(run, int(found["task"]), int(found["rollout"]))
        raise UsageError(f"no run below {folder} is {found['run']}; name the file: FILE:TASK.ROLLOUT")
    raise UsageError(f"'{named}' names no rollout; give RUN.TASK.ROLLOUT, FILE:LINE or FILE:TASK.ROLLOUT")


def _in_run(run: Run, task: int, rollout: int) -> tuple[Path, bytes]:
    """The row with these numbers: the first, as `compare` counts it; without a verdict the last failure."""
    for part, rows in run.parts.items():
        found: IndexedRow | None = None
        for row in indexed(rows):
            entry = row.entry
            if (entry.task, entry.rollout) == (task, rollout) and OUTCOMES[entry.outcome] != "unreadable":
                found = row
                if part == "rollouts":
                    break
        if found is not None:
            with rows.open("rb") as file:
                file.seek(found.offset)
                return rows, file.read(found.size)
    raise UsageError(f"{run.rollouts} has no rollout {task}.{rollout}")


def _line(rows: Path, number: int) -> bytes:
    for count, line in lines_of(rows):
        if count == number:
            return line
    raise UsageError(f"{rows} has no line {number}")

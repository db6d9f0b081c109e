"""The rows of a guest's own dataset, as a file: the same ones each time, so that a run can be resumed."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import msgspec

from gym_runtime.assets import cache_folder
from gym_runtime.environment import requirements
from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.errors import UsageError
from gym_runtime.files.results import write_whole

FOLDER = "rows"
SEED = 0


def generated_rows(environment: LoadedEnvironment, name: str, limit: int | None) -> Path:
    """Write the rows that an environment makes itself into the user's cache, and say where.

    Args:
        name: as the user has named it.
        limit: so many rows; None for all that there are.

    Raises:
        UsageError: it makes none, there is no end of them, or the file cannot be written.
    """
    make = environment.definition.generate
    if make is None:
        raise UsageError(f"{name} has no rows of its own: --input FILE")
    requirements.require(environment)
    folder = cache_folder() / FOLDER
    # The limit is part of the name: a run with fewer rows must not change the file of another.
    key = hashlib.sha256(f"{name}\0{limit}".encode()).hexdigest()[:12]
    path = folder / f"{environment.name[:80]}-{key}.jsonl"

    def lines() -> Iterator[bytes]:
        for row in make(limit, SEED):
            yield msgspec.json.encode(row) + b"\n"

    try:
        folder.mkdir(parents=True, exist_ok=True)
        with redirect_stdout(sys.stderr):  # libraries that make rows may talk
            write_whole(path, lines())
    except OSError as error:
        raise UsageError(f"cannot write {folder}: {error.strerror}") from error
    except (TypeError, ValueError, AssertionError) as error:
        raise UsageError(f"{name} cannot make its rows: {type(error).__name__}: {error}") from error
    return path

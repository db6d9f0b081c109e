"""Where the rows of a run are: in a file, or with the environments that were named."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gym_runtime.cli import terminal
from gym_runtime.environment import catalogue
from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.errors import UsageError
from gym_runtime.files.dataset import Source
from gym_runtime.files.rows import generated_rows

DATA = Path("data")
"""Where ``prepare`` puts an environment's rows by default: in a folder of its name."""


def sources(names: Sequence[str], file: Path | None, limit: int | None) -> list[Source]:
    """The file that was named, or the environments' own examples; a benchmark's prepared rows, and the rows
    that a guest makes.

    Args:
        limit: how many rows a guest makes; None for all.

    Raises:
        UsageError: neither a file nor an environment was named, there is no such environment, or a guest
            makes no rows.
    """
    if file is not None:
        return [Source(str(file), names[0] if len(names) == 1 else None)]
    if not names:
        raise UsageError(
            "name an environment or a file: gym-runtime run NAME, or -i FILE whose rows have agent_ref"
        )
    named = {name: catalogue.environment(name) for name in names}
    return [Source(str(_own_rows(environment, name, limit)), name) for name, environment in named.items()]


def _own_rows(environment: LoadedEnvironment, name: str, limit: int | None) -> Path:
    """A benchmark's prepared rows, else the example rows; for a benchmark, with a note on the choice."""
    if environment.guest:
        return generated_rows(environment, name, limit)
    if environment.definition.benchmark is None:
        return environment.examples
    prepared = DATA / environment.name / "benchmark.jsonl"
    if prepared.is_file():
        terminal.errors().print(f"{name}: the rows of {prepared}", soft_wrap=True)
        return prepared
    terminal.errors().print(
        f"{name}: example rows only, whose score means nothing; the benchmark's own rows are not at "
        f"{prepared}: gym-runtime prepare {environment.name}",
        soft_wrap=True,
    )
    return environment.examples

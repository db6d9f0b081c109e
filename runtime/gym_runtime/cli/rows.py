"""Where the rows of a run are: in a file, or with the environments that were named."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from gym_runtime.cli import formatting, terminal
from gym_runtime.cli.options import RowOptions
from gym_runtime.environment import catalogue
from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.errors import UsageError
from gym_runtime.files.dataset import Dataset, Source, open_dataset
from gym_runtime.files.rows import generated_rows
from gym_runtime.messages.names import MAX_CHARS

DATA = Path("data")
"""Where ``prepare`` puts an environment's rows by default: in a folder of its name."""
MOST_NAMES = 20
"""So many names are listed one by one."""


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


@contextmanager
def opened(
    found: Sequence[Source], rows: RowOptions, *, adopt: bool = False, earlier_rows: int | None = None
) -> Generator[Dataset]:
    """The rows that the options choose, as a dataset; says what the user should know of them.

    Args:
        adopt, earlier_rows: as for `open_dataset`.
    """
    for source in found:
        if Path(source.path).is_fifo():
            terminal.note(f"the rows are read from the pipe {source.path} until its writer closes it")
    with open_dataset(
        *found,
        limit=rows.limit,
        shuffle_seed=rows.shuffle_seed,
        settings=rows.settings(),
        earlier_rows=earlier_rows,
        skip_unknown=rows.skip_unknown,
        prompt=rows.prompt,
        adopt=adopt,
    ) as dataset:
        note_names(dataset)
        if rows.strict:
            note_lenient(dataset)
        yield dataset


def note_names(dataset: Dataset) -> None:
    """Say which rows were left out, and which name no environment and belong to the one that was named."""
    _note("left out", dataset.skipped)
    _note("taken by the environment that you named", dataset.adopted)


def note_lenient(dataset: Dataset) -> None:
    """Say which environments have no strict rule."""
    lenient = [name for name in sorted(dataset.environments) if not _has_strict(dataset.environment(name))]
    if lenient:
        terminal.note(f"--strict: no rule but the usual one: {', '.join(lenient)}")


def _has_strict(environment: LoadedEnvironment) -> bool:
    return environment.row_fields.get("strict") is bool


def _note(what: str, names: Mapping[str, int]) -> None:
    for name, count in sorted(names.items())[:MOST_NAMES]:
        rows = "row" if count == 1 else "rows"
        shown = formatting.shorten(name, MAX_CHARS)
        terminal.note(f"{what}: {count:,} {rows} of agent_ref '{shown}', which names no environment here")
    if len(names) > MOST_NAMES:
        terminal.note(f"{what}: rows of {len(names) - MOST_NAMES:,} more such names")


def _own_rows(environment: LoadedEnvironment, name: str, limit: int | None) -> Path:
    """A benchmark's prepared rows, else the example rows; for a benchmark, with a note on the choice."""
    if environment.guest:
        return generated_rows(environment, name, limit)
    if environment.definition.benchmark is None:
        return environment.examples
    prepared = DATA / environment.name / "benchmark.jsonl"
    if prepared.is_file():
        terminal.note(f"{name}: the rows of {prepared}")
        return prepared
    if any(source.split == "benchmark" for source in environment.definition.datasets):
        why = (
            f"'gym-runtime prepare {environment.name}' fetches the published ones, of which a score can be "
            "compared"
        )
    else:
        why = (
            "a score can be compared only of the published ones, which no command fetches: pass --input FILE"
        )
    terminal.note(f"{name}: its example rows; {why}")
    return environment.examples

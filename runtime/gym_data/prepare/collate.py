"""One split: the rows of all its environments, checked, blended and written."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from gym_runtime.environment.environment import Split
from gym_runtime.errors import UsageError
from gym_runtime.files.dataset import Dataset
from gym_runtime.files.lines import Source
from gym_runtime.files.lock import Lock
from gym_runtime.files.results import write_whole
from gym_runtime.files.row_reader import Row

from gym_data.prepare import blend, sources
from gym_data.prepare.dataset_metrics import DataMetrics, refuse_conflict, write_metrics
from gym_data.prepare.part import PreparedPart, finished, metrics_of, rows_of
from gym_data.prepare.prompts import PromptTemplate, checked_prompt
from gym_data.prepare.sources import Downloading, Origins, Wanted

MAX_LISTED = 1000


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a split. ``rows`` counts repeats too; ``environments`` are named as asked.

    ``sources`` are the files with all rows of each, by the same names.
    """

    split: Split
    output: Path
    rows: int
    environments: dict[str, int]
    metrics: Path
    sources: dict[str, Path]


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """How rows become files.

    Attributes:
        output: the folder.
        only_output: nothing is written anywhere else.
        weights: by name as asked; either none or one for each.
        repeats: how often each row of a name comes, right after each other; 1 unless said.
        size: rows in all, before repeats.
    """

    output: Path
    only_output: bool = False
    prompt: PromptTemplate | None = None
    weights: Mapping[str, float] = {}
    repeats: Mapping[str, int] = {}
    seed: int = 0
    size: int | None = None
    overwrite_conflicts: bool = False


class Collation:
    """Some splits on their way into files. Use it in a ``with``: `check` all of them, then `write` each."""

    def __init__(self, recipe: Recipe, downloading: Downloading) -> None:
        self._recipe = recipe
        self._downloading = downloading
        self._stack = ExitStack()
        self._splits: dict[Split, _Checked] = {}
        self._made: list[Path] = []

    def __enter__(self) -> Collation:
        output = self._recipe.output
        self._made = [folder for folder in (output, *output.parents) if not folder.exists()]
        try:
            output.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot create {output}: {error.strerror}") from None
        self._origins = Origins(output / "sources.json")
        self._folder = Path(self._stack.enter_context(TemporaryDirectory(prefix="gym-runtime-")))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        for folder in self._made:
            with suppress(OSError):
                folder.rmdir()  # succeeds where nothing was written

    def check(self, split: Split, wanted: Sequence[Wanted]) -> None:
        """Get the rows of a split and check every one.

        Raises:
            UsageError: rows are not to be had, or are wrong: one line each, ``file:line:column: what``; or a
                source is not what its stored metrics say.
        """
        recipe, output = self._recipe, self._recipe.output / f"{split}.jsonl"
        generated = [one.choose() == "generate" for one in wanted]
        paths: list[Path] = []
        entries: list[dict[str, Any]] = []
        for one, made_here in zip(wanted, generated, strict=True):
            made = self._folder / f"{split}.{one.environment.name}.{len(paths)}.jsonl"
            if made_here:
                paths.append(made)
                entries.append({})
            else:
                path, entry = sources.gather(one, self._origins, self._downloading, made)
                paths.append(path)
                entries.append(entry)
        beside = [self._beside(one, split) for one in wanted]
        _refuse_foreign(output, paths, beside)
        problems: list[str] = []
        datasets = {
            i: self._open(wanted[i], path, problems) for i, path in enumerate(paths) if not generated[i]
        }
        _raise(problems)
        counts = [None if made_here else _length(datasets[i]) for i, made_here in enumerate(generated)]
        weights = [recipe.weights[one.name] for one in wanted] if recipe.weights else None
        shares = blend.quotas(counts, weights, recipe.size)
        for i, one in enumerate(wanted):
            if generated[i] and shares[i]:
                entries[i] = sources.generate(one, shares[i], recipe.seed, paths[i])
                datasets[i] = self._open(one, paths[i], problems)
        _raise(problems)
        parts = [
            PreparedPart(
                wanted=one,
                dataset=datasets.get(i),
                share=shares[i],
                entry=entries[i],
                source=beside[i],
                stored=one.file.with_suffix("") if one.file and recipe.prompt is None else None,
            )
            for i, one in enumerate(wanted)
        ]
        for part in parts:
            repeats = recipe.repeats.get(part.wanted.name, 1)
            part.measure(repeats, overwrite_conflicts=recipe.overwrite_conflicts)
        self._splits[split] = _Checked(output=output, parts=parts)

    def write(self, split: Split) -> Prepared:
        """Write a split that was checked: its rows, its metrics, and where it came from.

        Raises:
            UsageError: the stored metrics say otherwise, or the disk is full; the old files stand.
        """
        checked, recipe = self._splits[split], self._recipe
        output, metrics = checked.output, DataMetrics()
        metrics_path = metrics_of(output.with_suffix(""))
        counts = {part.wanted.name: 0 for part in checked.parts}

        def lines() -> Iterator[bytes]:
            for part, line in _blended(checked.parts, recipe.seed):
                for _ in range(recipe.repeats.get(part.wanted.name, 1)):
                    counts[part.wanted.name] += 1
                    metrics.add(line)
                    yield line + b"\n"
            if not recipe.overwrite_conflicts:
                refuse_conflict(metrics_path, metrics.document())

        with Lock(output):
            for part in checked.parts:
                part.write()
            write_whole(output, lines())
            write_metrics(metrics_path, metrics.document())
            self._origins.record(split, [part.entry for part in checked.parts])
        return Prepared(
            split=split,
            output=output,
            rows=metrics.examples,
            environments=counts,
            metrics=metrics_path,
            sources={part.wanted.name: rows_of(part.source) for part in checked.parts if part.dataset},
        )

    def _beside(self, wanted: Wanted, split: Split) -> Path:
        """Where a source's own files go, without their endings: beside it if it is a file that was named, its
        rows stay as they are and no folder was named, else into the output.
        """
        file = None if self._recipe.only_output else wanted.file
        if file and file.is_file() and self._recipe.prompt is None and os.access(file.parent, os.W_OK):
            return file.with_suffix("")
        name = "_".join(filter(None, (wanted.environment.name, wanted.dataset, split)))
        return self._recipe.output / name

    def _open(self, wanted: Wanted, path: Path, problems: list[str]) -> Dataset | None:
        """A file's rows, checked; None if some are wrong, which are added to the problems."""
        prompt = _prompt(self._recipe.prompt, wanted)
        try:
            dataset = self._stack.enter_context(
                Dataset(
                    [Source(str(path), wanted.module)],
                    rewrite=prompt.fill if prompt else None,
                    max_listed=MAX_LISTED,
                )
            )
        except UsageError as error:
            problems.append(error.message)
            return None
        own = wanted.environment.name
        if set(dataset.environments) == {own}:
            return dataset
        for index, row in enumerate(dataset.read()):
            if (other := row.environment.name) != own and len(problems) < MAX_LISTED:
                problems.append(f"{dataset.locate(index)}: the row is of '{other}', not of '{own}'")
        return None


def _prompt(own: PromptTemplate | None, wanted: Wanted) -> PromptTemplate | None:
    """The prompt that was given, else a benchmark's, for rows that are made of published records."""
    benchmark = wanted.environment.definition.benchmark
    if benchmark is None or not benchmark.prompt or wanted.made is None:
        return own
    if own is not None:
        return own if own.image else msgspec.structs.replace(own, image=benchmark.image)
    where = f"the prompt of '{wanted.name}'"
    return checked_prompt(where, benchmark.prompt, benchmark.system or None, benchmark.image)


class _Checked(msgspec.Struct, frozen=True, kw_only=True):
    output: Path
    parts: list[PreparedPart]


def _blended(parts: Sequence[PreparedPart], seed: int) -> Iterator[tuple[PreparedPart, bytes]]:
    shares = [part.share for part in parts]
    streams = [_taken(part, seed) for part in parts]
    for index, row in blend.blend(streams, shares, seed):
        yield parts[index], finished(row)


def _taken(part: PreparedPart, seed: int) -> Iterator[Row]:
    if part.dataset is None:
        return
    own_seed = zlib.crc32(part.wanted.name.encode()) ^ seed
    yield from blend.take(_Again(part.dataset), part.dataset.rows, part.share, own_seed)


class _Again:
    """A dataset's rows, from the start each time."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def __iter__(self) -> Iterator[Row]:
        return self._dataset.read()


def _length(dataset: Dataset | None) -> int:
    return dataset.rows if dataset is not None else 0


def _raise(problems: list[str]) -> None:
    if problems:
        raise UsageError("\n".join(problems))


def _refuse_foreign(output: Path, paths: Sequence[Path], sources: Sequence[Path]) -> None:
    """Refuse to replace a file that is read, or that did not come from here."""
    read = {path.resolve() for path in paths}
    written = {output: metrics_of(output.with_suffix("")), **{rows_of(s): metrics_of(s) for s in sources}}
    for rows, metrics in written.items():
        if rows.resolve() in read:
            raise UsageError(f"{rows} would be read and written; choose another -o")
        if rows.exists() and not metrics.exists():
            raise UsageError(f"{rows} exists and was not prepared here; choose another -o, or move it")

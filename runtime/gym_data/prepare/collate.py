"""One split: the rows of all its environments, checked, blended and written.

A row is written unchanged, but with ``agent_ref`` and without the ``gold`` that only example rows have. A row
that names its environment keeps that name if it is one of the requested environment's; one that names no
environment there is gets the requested one's, unless such rows are skipped. All rows of each
source are in ``<stem>_prepare.jsonl``, even if a blend takes only a share of them, and
``<stem>_metrics.json`` has their metrics.

The seed decides which rows are taken and in which order the environments alternate. Both are drawn while the
rows stream: an urn decides which environment comes next, and each of its rows is taken or skipped. The rows
of one environment keep their order.
"""

from __future__ import annotations

import math
import os
import random
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import msgspec
from gym_runtime.environment import Split
from gym_runtime.errors import UsageError
from gym_runtime.files import Dataset, Lock, PromptTemplate, Row, Source, checked_prompt, write_whole
from gym_runtime.own_files import remove_drafts
from msgspec import Raw

from gym_data.prepare import sources
from gym_data.prepare.dataset_metrics import DataMetrics, refuse_conflict, write_metrics
from gym_data.prepare.sources import Downloading, Origins, Wanted

_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder().encode


class PreparedPart(msgspec.Struct, kw_only=True):
    """One environment's share of a split, and all rows of its source in separate files.

    Attributes:
        dataset: None if the share is empty.
        source: the path of those files, without ``_prepare.jsonl`` and ``_metrics.json``.
        stored: the path of the file that has the rows, without its ending; its metrics may be beside it.
    """

    wanted: Wanted
    dataset: Dataset | None
    share: int
    entry: dict[str, Any]
    source: Path
    stored: Path | None = None
    metrics: dict[str, Any] = {}

    def measure(self, repeats: int, *, overwrite_conflicts: bool) -> None:
        """Compute the metrics of the source.

        Raises:
            UsageError: they differ from its stored metrics; or a row has a number that no double holds.
        """
        if self.dataset is None:
            return
        counted = DataMetrics()
        for index, row in enumerate(self.dataset.read()):
            try:
                counted.add(finished(row))
            except msgspec.ValidationError as error:  # 1e999 in a field that the environment does not know
                what = f"{self.dataset.locate(index)}: {error}; write the number as a text, or leave it out"
                raise UsageError(what) from None
        self.metrics = {**self.wanted.describe(repeats), **counted.document()}
        if not overwrite_conflicts:
            own = metrics_of(self.source)
            refuse_conflict(own, self.metrics)
            if self.stored is not None:
                refuse_conflict(metrics_of(self.stored), self.metrics, own=own)

    def write(self) -> None:
        """Write the source's files: the metrics first, because rows without metrics are not replaced.

        Raises:
            UsageError: the disk is full or broken.
        """
        if self.dataset is not None:
            write_metrics(metrics_of(self.source), self.metrics)
            write_whole(rows_of(self.source), (finished(row) + b"\n" for row in self.dataset.read()))


def finished(row: Row) -> bytes:
    """A row as it is written: with ``agent_ref``, without ``gold``; all else is unchanged, byte by byte.

    An ``agent_ref`` that names no environment is replaced, so that `run` needs no name for the file.
    """
    fields = _decode_fields(row.line)
    if "gold" not in row.environment.resource.task_type.__struct_encode_fields__:
        fields.pop("gold", None)
    name = row.environment.name
    if row.agent_ref is not None and not row.adopted:
        name = msgspec.json.decode(row.agent_ref, type=dict[str, Any])["name"]
    fields["agent_ref"] = Raw(_encode({"type": "responses_api_agents", "name": name}))
    return _encode(fields)


def rows_of(source: Path) -> Path:
    """The file of a source's rows, by the path of its files."""
    return source.with_name(f"{source.name}_prepare.jsonl")


def metrics_of(stem: Path) -> Path:
    """The file with the metrics of ``<stem>.jsonl``, or of a source."""
    return stem.with_name(f"{stem.name}_metrics.json")


T = TypeVar("T")


def quotas(
    counts: Sequence[int | None], weights: Sequence[float] | None = None, size: int | None = None
) -> list[int]:
    """How many rows each source gives.

    Without a size: every row once; with weights, as many as there can be with no row twice, in these
    proportions. With a size: that many in all, rounded so that they add up; sources that are too small
    give rows more than once. Without weights every row counts the same.

    Args:
        counts: the rows of each source; None for one that makes as many as it is asked for.
        weights: one for each source, above 0; only their ratios matter.

    Raises:
        UsageError: a weight or the size is not valid, or only endless sources could decide the size.

    >>> quotas([10, 30])
    [10, 30]
    >>> quotas([10, 30], [1, 1])
    [10, 10]
    >>> quotas([10, 30], [1, 3], size=8)
    [2, 6]
    """
    if size is not None and size < 1:
        raise UsageError(f"the size is {size}; it must be at least 1")
    for weight in weights or ():
        if not (math.isfinite(weight) and weight > 0):
            raise UsageError(f"a weight is {weight:g}; it must be above 0")
    finite = [count for count in counts if count is not None]
    if size is None:
        if len(finite) < len(counts) and (weights is None or not finite):
            raise UsageError("rows that are generated have no end; say how many: --size N")
        if weights is None:
            return finite
        size = math.floor(
            sum(weights) * min(n / w for n, w in zip(counts, weights, strict=True) if n is not None) + 1e-9
        )
    if weights is None:
        even = sum(finite) / len(finite) if finite else 1.0
        weights = [even if count is None else float(count) for count in counts]
    return _apportion(size, weights)


def _apportion(size: int, weights: Sequence[float]) -> list[int]:
    """The size in these proportions, in whole numbers: largest remainders first."""
    total = math.fsum(weights)
    exact = [size * weight / total for weight in weights]
    shares = [math.floor(share) for share in exact]
    by_remainder = sorted(range(len(weights)), key=lambda i: (shares[i] - exact[i], i))
    for i in by_remainder[: size - sum(shares)]:
        shares[i] += 1
    return shares


def interleave(shares: Sequence[int], seed: int) -> Iterator[int]:
    """Which source comes next: each as often as its share, every order equally likely."""
    draw = random.Random(seed)
    left = list(shares)
    while total := sum(left):
        at = draw.randrange(total)
        for source, count in enumerate(left):
            if at < count:
                left[source] -= 1
                yield source
                break
            at -= count


def take(rows: Iterable[T], count: int, share: int, seed: int) -> Iterator[T]:
    """Exactly ``share`` of ``count`` rows, in their order: all of them as often as they fit, then a sample.

    ``rows`` is iterated once per pass. Source: Knuth, TAOCP 2, 3.4.2, algorithm S.

    >>> list(take("abc", 3, 7, seed=0))[:6]
    ['a', 'b', 'c', 'a', 'b', 'c']
    """
    passes, wanted = divmod(share, count)
    for _ in range(passes):
        yield from rows
    draw = random.Random(seed)
    for seen, row in enumerate(rows if wanted else ()):
        if draw.random() * (count - seen) < wanted:
            wanted -= 1
            yield row
        if not wanted:
            return


def blend(sources: Sequence[Iterator[T]], shares: Sequence[int], seed: int) -> Iterator[tuple[int, T]]:
    """The rows of all sources, each with its source's number; ``sources`` yield as many as their shares."""
    for source in interleave(shares, seed):
        yield source, next(sources[source])


MAX_LISTED = 1000


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """A split that was written. ``rows`` includes repeats; ``environments`` has the rows by requested name.

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
        repeats: how often each row of a name is written, one directly after the other; 1 by default.
        size: rows in all, before repeats.
        skip_unknown: leave out rows whose ``agent_ref`` names no environment that there is; by default they
            belong to the environment that the caller names.
    """

    output: Path
    only_output: bool = False
    prompt: PromptTemplate | None = None
    weights: Mapping[str, float] = {}
    repeats: Mapping[str, int] = {}
    seed: int = 0
    size: int | None = None
    overwrite_conflicts: bool = False
    skip_unknown: bool = False


class Collation:
    """Splits, checked and then written. Use it in a ``with``: `check` all of them, then `write` each.

    Args:
        note: called with the rows of each file, for a word on those that were left out.
    """

    def __init__(
        self, recipe: Recipe, downloading: Downloading, note: Callable[[Dataset], None] = lambda dataset: None
    ) -> None:
        self._recipe, self._note = recipe, note
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
            raise UsageError(f"cannot create {output}: {error.strerror}; choose another -o") from None
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
            UsageError: rows cannot be found, or are wrong: one line each, ``file:line:column: what``; or a
                source differs from its stored metrics.
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
        shares = quotas(counts, weights, recipe.size)
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
            UsageError: the metrics differ from the stored ones, or the disk is full; the old files stay.
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
            write_metrics(metrics_path, metrics.document())  # first: rows without metrics are not replaced

        with Lock(output):
            for rows in (output, *(rows_of(part.source) for part in checked.parts)):
                if rows.parent == output.parent:  # the lock is for this folder's files only
                    remove_drafts(rows)
            for part in checked.parts:
                part.write()
            write_whole(output, lines())
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
        """Where a source's own files go, without their endings: beside it if the user named the file, but no
        folder, and its rows stay unchanged; else into the output.
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
                    Source(str(path), wanted.module),
                    prompt=prompt,
                    max_listed=MAX_LISTED,
                    skip_unknown=self._recipe.skip_unknown,
                    adopt=not self._recipe.skip_unknown,
                )
            )
        except UsageError as error:
            problems.append(error.message)
            return None
        self._note(dataset)
        own = wanted.environment.name
        if set(dataset.environments) == {own}:
            return dataset
        for index, row in enumerate(dataset.read()):
            if (other := row.environment.name) != own and len(problems) < MAX_LISTED:
                problems.append(f"{dataset.locate(index)}: the row is of '{other}', not of '{own}'")
        return None


def _prompt(own: PromptTemplate | None, wanted: Wanted) -> PromptTemplate | None:
    """The given prompt, else the benchmark's for rows that are built from published records."""
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
    for index, row in blend(streams, shares, seed):
        yield parts[index], finished(row)


def _taken(part: PreparedPart, seed: int) -> Iterator[Row]:
    if part.dataset is None:
        return
    own_seed = zlib.crc32(part.wanted.name.encode()) ^ seed
    yield from take(_Again(part.dataset), part.dataset.rows, part.share, own_seed)


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
    """Refuse to replace a file that is read, or that this command has not written."""
    read = {path.resolve() for path in paths}
    written = {output: metrics_of(output.with_suffix("")), **{rows_of(s): metrics_of(s) for s in sources}}
    for rows, metrics in written.items():
        if rows.resolve() in read:
            raise UsageError(f"{rows} would be read and written; choose another -o")
        if rows.exists() and not metrics.exists():
            raise UsageError(f"{rows} exists and was not prepared here; choose another -o, or move it")

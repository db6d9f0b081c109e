"""One split: the rows of all its environments, checked, blended and written.

A row in the result is the row that went in, with ``agent_ref`` and without the ``gold`` that only example
rows have. A row that names its environment keeps that name, if it is one of the environment that was asked.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from msgspec import Raw

from gym_runtime.environment import Split
from gym_runtime.errors import UsageError
from gym_runtime.files.dataset import Dataset, Source
from gym_runtime.files.lock import Lock
from gym_runtime.files.reader import Row
from gym_runtime.files.results import write_whole
from gym_runtime.prepare import blend, sources
from gym_runtime.prepare.metrics import DataMetrics, refuse_conflict, write_metrics
from gym_runtime.prepare.prompts import Prompt
from gym_runtime.prepare.sources import Downloading, Origins, Wanted

MAX_LISTED = 1000

_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder().encode


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a split. ``rows`` counts repeats too; ``environments`` are named as asked."""

    split: Split
    output: Path
    rows: int
    environments: dict[str, int]
    metrics: Path


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """How rows become files.

    Attributes:
        output: the folder.
        weights: by name as asked; either none or one for each.
        repeats: how often each row of a name comes, right after each other; 1 unless said.
        size: rows in all, before repeats.
    """

    output: Path
    prompt: Prompt | None = None
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

    def __enter__(self) -> Collation:
        try:
            self._recipe.output.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot create {self._recipe.output}: {error.strerror}") from None
        self._origins = Origins(self._recipe.output / "sources.json")
        self._folder = Path(self._stack.enter_context(TemporaryDirectory(prefix="gym-runtime-")))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def check(self, split: Split, wanted: Sequence[Wanted]) -> None:
        """Get the rows of a split and check every one.

        Raises:
            UsageError: rows are not to be had, or are wrong: one line each, ``file:line:column: what``.
        """
        recipe, output = self._recipe, self._recipe.output / f"{split}.jsonl"
        generated = [one.choose() == "generate" for one in wanted]
        paths: list[Path] = []
        entries: list[dict[str, Any]] = []
        for one, made_here in zip(wanted, generated, strict=True):
            if made_here:
                paths.append(self._folder / f"{split}.{one.environment.name}.{len(paths)}.jsonl")
                entries.append({})
            else:
                path, entry = sources.gather(one, self._origins, self._downloading)
                paths.append(path)
                entries.append(entry)
        _refuse_foreign(output, paths)
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
            _Part(wanted=one, dataset=datasets.get(i), share=shares[i], entry=entries[i])
            for i, one in enumerate(wanted)
        ]
        self._splits[split] = _Checked(output=output, parts=parts)

    def write(self, split: Split) -> Prepared:
        """Write a split that was checked: its rows, its metrics, and where it came from.

        Raises:
            UsageError: the stored metrics say otherwise, or the disk is full; the old files stand.
        """
        checked, recipe = self._splits[split], self._recipe
        output, metrics = checked.output, DataMetrics()
        metrics_path = output.with_name(f"{split}_metrics.json")
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
            write_whole(output, lines())
            write_metrics(metrics_path, metrics.document())
            self._origins.record(split, [part.entry for part in checked.parts])
        return Prepared(
            split=split, output=output, rows=metrics.examples, environments=counts, metrics=metrics_path
        )

    def _open(self, wanted: Wanted, path: Path, problems: list[str]) -> Dataset | None:
        """A file's rows, checked; None if some are wrong, which are added to the problems."""
        prompt = self._recipe.prompt
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


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """One environment's share of a split; no dataset if the share is nothing."""

    wanted: Wanted
    dataset: Dataset | None
    share: int
    entry: dict[str, Any]


class _Checked(msgspec.Struct, frozen=True, kw_only=True):
    output: Path
    parts: list[_Part]


def _blended(parts: Sequence[_Part], seed: int) -> Iterator[tuple[_Part, bytes]]:
    shares = [part.share for part in parts]
    streams = [_taken(part, seed) for part in parts]
    for index, row in blend.blend(streams, shares, seed):
        yield parts[index], finished(row)


def _taken(part: _Part, seed: int) -> Iterator[Row]:
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


def finished(row: Row) -> bytes:
    """A row as it is written: with ``agent_ref``, without ``gold``; all else stays to the byte."""
    fields = _decode_fields(row.line)
    if "gold" not in row.environment.resource.task_type.__struct_encode_fields__:
        fields.pop("gold", None)
    name = row.environment.name
    if row.agent_ref is not None:
        name = msgspec.json.decode(row.agent_ref, type=dict[str, Any])["name"]
    fields["agent_ref"] = Raw(_encode({"type": "responses_api_agents", "name": name}))
    return _encode(fields)


def _length(dataset: Dataset | None) -> int:
    return dataset.rows if dataset is not None else 0


def _raise(problems: list[str]) -> None:
    if problems:
        raise UsageError("\n".join(problems))


def _refuse_foreign(output: Path, paths: Sequence[Path]) -> None:
    """Refuse to replace a file that is read, or that did not come from here."""
    if any(path.resolve() == output.resolve() for path in paths):
        raise UsageError(f"{output} would be read and written; choose another -o")
    if output.exists() and not output.with_name(f"{output.stem}_metrics.json").exists():
        raise UsageError(f"{output} exists and was not prepared here; choose another -o")

"""Fields that the index lacks, as columns: the parts of rewards, and any field of the rows.

``components.NAME`` is a part of the reward, ``field.NAME`` a field of the row; further names lead into
objects, as in ``field.verifier_metadata.level``. A value is a number, a text (also of true and false), or
None: for what is missing, is longer than `MAX_CHARACTERS`, or is a list or an object.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from gym_runtime.errors import UNREADABLE
from gym_runtime.files import MAX_LINE_BYTES
from gym_runtime.messages import as_list, as_object, as_text
from gym_runtime.statistics import Clusters
from msgspec import Raw

from gym_view.index_entry import IndexEntry
from gym_view.indexing import rows_in
from gym_view.row import OWN
from gym_view.run_figures import rows_of
from gym_view.run_files import Run

MAX_CHARACTERS = 200
MAX_FIELDS = 100
MAX_TEXTS = 30
COMPONENTS, FIELD = "components", "field"
Value = float | str | None
_ByTask = dict[tuple[str, int], list[float]]
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_decode = msgspec.json.Decoder().decode


class FieldFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One field of a run's rows.

    Attributes:
        count: rows that have a value.
        mean, error: of its numbers, and the standard error clustered by task; None without numbers, or with
            one task.
        texts: the most frequent texts with their counts; empty if there are more than `MAX_TEXTS`.
    """

    name: str
    count: int
    mean: float | None
    error: float | None
    texts: dict[str, int]


class VersionFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The rollouts whose last tokens were sampled by one version of the weights, as the runtime recorded it.

    ``mean`` is of their rewards, ``error`` its standard error, clustered by task.
    """

    version: str
    rollouts: int
    mean: float | None
    error: float | None


class RowsFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What the rows of a run say beyond the index; ``versions`` in the order in which they first occur.

    ``rollouts`` were read: a run that is going on has more since.
    """

    rollouts: int
    fields: list[FieldFigures]
    versions: list[VersionFigures]


def column(rows: Path, name: str, at: int = 0) -> Iterator[Value]:
    """The values of a field in a file of rows from byte ``at`` on, row by row."""
    kind, _, path = name.partition(".")
    first, *further = ["reward_components", *path.split(".")] if kind == COMPONENTS else path.split(".")
    for line, _, _ in rows_in(rows, at):
        value = _fields(line).get(first)
        found: Any = None if value is None else _read(value)
        for part in further:
            found = as_object(found).get(part)
        yield _plain(found)


def figures_in(run: Run) -> RowsFigures:
    """Of a run's rows: fields by name, parts of the reward first, and versions of the weights.

    As in `RunFigures`, a failed rollout that was run again and now has a verdict does not count.
    """
    counts: Counter[str] = Counter()
    texts: dict[str, Counter[str]] = {}
    numbers: dict[str, _ByTask] = {}
    versions: dict[str, tuple[list[int], _ByTask]] = {}
    rollouts = 0
    for line, entry in _rows(run):
        rollouts += 1
        fields, task = _fields(line), (entry.environment, entry.task)
        if version := _version(fields):
            counted, rewards = versions.setdefault(version, ([], {}))
            counted.append(1)
            if entry.reward == entry.reward:
                rewards.setdefault(task, []).append(entry.reward)
        for name, value in _values(fields):
            if name not in counts and len(counts) == MAX_FIELDS:
                continue
            counts[name] += 1
            if isinstance(value, str):
                seen = texts.setdefault(name, Counter())
                if value in seen or len(seen) <= MAX_TEXTS:
                    seen[value] += 1
            else:
                numbers.setdefault(name, {}).setdefault(task, []).append(value)
    found: list[FieldFigures] = []
    for name in sorted(counts):
        clusters = _clusters(numbers.get(name, {}))
        seen = texts.get(name, Counter())
        found.append(
            FieldFigures(
                name=name,
                count=counts[name],
                mean=clusters.mean,
                error=clusters.standard_error,
                texts=dict(seen.most_common()) if len(seen) <= MAX_TEXTS else {},
            )
        )
    return RowsFigures(
        rollouts=rollouts,
        fields=found,
        versions=[
            VersionFigures(
                version=version,
                rollouts=len(counted),
                mean=_clusters(rewards).mean,
                error=_clusters(rewards).standard_error,
            )
            for version, (counted, rewards) in versions.items()
        ],
    )


def _rows(run: Run) -> Iterator[tuple[bytes, IndexEntry]]:
    """The lines of a run's rows, of one that is too long the beginning; and their entries."""
    with ExitStack() as stack:
        files: dict[Path, BinaryIO] = {}
        for path, row in rows_of(run):
            file = files.get(path)
            if file is None:
                file = files[path] = stack.enter_context(path.open("rb"))
            file.seek(row.offset)
            yield file.read(min(row.size, MAX_LINE_BYTES)), row.entry


def _clusters(by_task: _ByTask) -> Clusters:
    clusters = Clusters()
    for values in by_task.values():
        clusters.add(values)
    return clusters


def _version(fields: Mapping[str, Raw]) -> str:
    """The last version of the weights in a row; empty if it names none."""
    raw = bytes(fields.get("_gym", b""))
    if b'"weight_versions"' not in raw:
        return ""
    named = as_list(as_object(_read(Raw(raw))).get("weight_versions"))
    return as_text(named[-1])[:MAX_CHARACTERS] if named else ""


def _values(fields: Mapping[str, Raw]) -> Iterator[tuple[str, float | str]]:
    parts = as_object(_read(fields.get("reward_components", Raw(b"null"))))
    given = [(f"{COMPONENTS}.{name}", value) for name, value in parts.items()]
    given += [(f"{FIELD}.{name}", _short(raw)) for name, raw in fields.items() if name not in OWN]
    for name, value in given:
        plain = _plain(value)
        if plain is not None and len(name) <= MAX_CHARACTERS:
            yield name, plain


def _fields(line: bytes) -> Mapping[str, Raw]:
    try:
        return _decode_fields(line)
    except UNREADABLE:
        return {}


def _short(raw: Raw) -> Any:
    """A value that may be a number or a short text; what is surely neither is not decoded."""
    text = bytes(raw)
    return None if text[:1] in b"{[" or len(text) > 6 * MAX_CHARACTERS + 2 else _read(raw)


def _read(raw: Raw) -> Any:
    try:
        return _decode(raw)
    except UNREADABLE:
        return None


def _plain(value: Any) -> Value:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        number = float(value) if abs(value) < 2**1023 else math.inf
        return number if math.isfinite(number) else None
    return value if isinstance(value, str) and len(value) <= MAX_CHARACTERS else None

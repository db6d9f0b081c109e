"""The origins of an environment's rows: a file, the hub, or the environment. Each ends as a file."""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, redirect_stdout
from pathlib import Path
from typing import Any, Literal

import msgspec
from gym_runtime import DatasetSource
from gym_runtime.assets import Asset, cached, digest_of, find, folder
from gym_runtime.environment import LoadedEnvironment, Split, catalogue, requirements
from gym_runtime.errors import UNREADABLE, AssetMissing, UsageError, described
from gym_runtime.files import write_whole
from gym_runtime.messages import plain

from gym_data.prepare import hub
from gym_data.prepare.asset_files import fetch
from gym_data.prepare.records import make_rows

_COMMIT = re.compile(r"[0-9a-f]{7,64}")
Origin = Literal["huggingface", "file", "generate"]
Downloading = Callable[[str], AbstractContextManager[hub.Report]]


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one environment for one split.

    Attributes:
        name: as the user wrote it: ``NAME``, or ``NAME:DATASET``.
        module: the environment's name, or the path of its module.
        dataset: the name of one of the environment's sources; empty for the source without a name.
        origin: None to take the first that exists: the file, the hub, the environment's generator.
        settings: for the generator.
    """

    name: str
    module: str
    environment: LoadedEnvironment
    dataset: str = ""
    split: Split = "train"
    origin: Origin | None = None
    file: Path | None = None
    settings: Mapping[str, Any] = {}

    def choose(self) -> Origin:
        """Where the rows come from.

        Raises:
            UsageError: the wanted origin does not exist, or there is none.
        """
        definition, published = self.environment.definition, self.published()
        known = ", ".join(repr(s.name) for s in definition.datasets if s.split == self.split and s.name)
        if self.dataset and published is None:
            hint = f"; it has {known}" if known else ""
            raise UsageError(f"'{self.environment.name}' has no {self.split} data '{self.dataset}'{hint}")
        if self.origin == "generate" and definition.generate is None:
            raise UsageError(f"environment '{self.name}' cannot generate rows")
        if self.origin == "huggingface" and published is None:
            hint = f"; name one of {known}, as in {self.name}:…" if known else ""
            raise UsageError(f"no public {self.split} data is known for '{self.name}'{hint}")
        if self.origin == "file" and self.path() is None:
            raise UsageError(f"say which file has the rows of '{self.name}': --input FILE")
        if self.origin is not None:
            return self.origin
        if self.path() is not None:
            return "file"
        if published is not None:
            return "huggingface"
        if definition.generate is not None:
            return "generate"
        hint = f", or {self.name}:… with one of {known}" if known else ""
        raise UsageError(f"no public {self.split} data is known for '{self.name}'; pass --input FILE{hint}")

    def path(self) -> Path | None:
        """The file that was named; for examples, those of the environment."""
        return self.file or (self.environment.examples if self.split == "example" else None)

    def published(self) -> DatasetSource | None:
        """Their source on the hub."""
        sources = self.environment.definition.datasets
        return next((s for s in sources if s.split == self.split and s.name == self.dataset), None)

    @property
    def made(self) -> DatasetSource | None:
        """The source on the hub whose records the rows are built from; such rows have no input yet."""
        source = self.published() if self.choose() == "huggingface" else None
        return source if source and source.rows else None

    def describe(self, repeats: int) -> dict[str, Any]:
        """How NeMo Gym's configurations describe such rows; the beginning of their metrics."""
        origin, source = self.choose(), self.published()
        published = source if origin == "huggingface" else None
        from_hub = None if published is None or published.installed else published
        return {
            "name": self.name,
            "type": self.split,
            "jsonl_fpath": str(self.path()) if origin == "file" else None,
            "num_repeats": repeats,
            "source": from_hub and _described(from_hub),
            "license": (published.license if published else self.environment.definition.data_license) or None,
        }


class Origins:
    """``sources.json``: the commits that a folder's files were built from; the next run uses them too.

    A commit holds while the same repository, file and revision are requested; remove the entry to use the
    revision's present commit.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._entries: dict[str, list[dict[str, Any]]] = {}
        if path.exists():
            try:
                self._entries = msgspec.json.decode(path.read_bytes(), type=dict[str, list[dict[str, Any]]])
            except (OSError, *UNREADABLE) as error:
                raise UsageError(f"cannot read {path}: {error}; remove it to start again") from None

    def commit(self, source: DatasetSource) -> str | None:
        """The commit that an earlier run used for a source.

        Raises:
            UsageError: the text is not a commit. (The library uses it as part of a path.)
        """
        wanted = _identity(source)
        recorded = self._entries.get(source.split, ())
        for entry in [*recorded, *(other for whole in recorded for other in whole.get("further", ()))]:
            if {name: entry.get(name) for name in wanted} == wanted:
                return self._checked(entry.get("commit"))
        return None

    def _checked(self, commit: object) -> str | None:
        if commit is None or (isinstance(commit, str) and _COMMIT.fullmatch(commit)):
            return commit
        raise UsageError(f"{self.path}: {str(commit)[:200]!r} is not a commit; remove it to start again")

    def record(self, split: Split, entries: list[dict[str, Any]]) -> None:
        """Record what a split's file was built from.

        Raises:
            UsageError: the disk is full or broken.
        """
        self._entries[split] = entries
        document = msgspec.json.format(msgspec.json.encode(self._entries), indent=2)
        write_whole(self.path, iter((document, b"\n")))


def _identity(source: DatasetSource) -> dict[str, str]:
    return {"repo_id": source.repo_id, "file": source.file, "revision": source.revision}


def _described(source: DatasetSource) -> dict[str, str]:
    if source.asset:
        return {"type": "url", "url": source.asset.urls.get(source.file, source.asset.page)}
    return {"type": "huggingface", "repo_id": source.repo_id, "artifact_fpath": source.file}


def gather(
    wanted: Wanted, origins: Origins, downloading: Downloading, made: Path
) -> tuple[Path, dict[str, Any]]:
    """A file with the rows that are wanted, from the hub or from this machine; and its entry in `Origins`.

    Args:
        made: the file for rows that are built from the records of published files.

    Raises:
        UsageError: they cannot be found or downloaded.
    """
    entry: dict[str, Any] = {"environment": wanted.environment.name}
    source = wanted.published()
    if wanted.choose() == "file" or source is None:
        path = wanted.path()
        assert path is not None
        return path, {**entry, "path": str(path)}
    names = (source.file, *source.further_files)
    if source.installed:
        files, known = _of_package(source, names)
    elif source.asset:
        files, known = _of_asset(wanted, source.asset, names, downloading)
    else:
        files, known = _of_hub(source, names, origins, downloading)
    entry |= {**known, "license": source.license}
    if source.rows is None:
        return files[0][1], entry
    for other in source.further_sources:
        further, about = _of_hub(other, (other.file, *other.further_files), origins, downloading)
        files += further
        entry.setdefault("further", []).append({**about, "license": other.license})
    make_rows(source.rows, files, made)
    return made, entry


Files = list[tuple[str, Path]]


def _of_hub(
    source: DatasetSource, names: Sequence[str], origins: Origins, downloading: Downloading
) -> tuple[Files, dict[str, str]]:
    """The files, of one commit, by their names; and what identifies them."""
    commit, files = origins.commit(source), Files()
    for name in names:
        with downloading(f"{name} of {source.repo_id}") as report:
            found = hub.fetch(msgspec.structs.replace(source, file=name), commit=commit, report=report)
        commit = found.commit
        files.append((name, found.path))
    return files, {**_identity(source), "commit": commit or ""}


def _of_package(source: DatasetSource, names: Sequence[str]) -> tuple[Files, dict[str, str]]:
    """The files of an installed package; and what identifies them."""
    found = [hub.find_installed(msgspec.structs.replace(source, file=name)) for name in names]
    known = {"package": source.repo_id, "file": source.file, "version": found[0].commit}
    return [(name, one.path) for name, one in zip(names, found, strict=True)], known


def _of_asset(
    wanted: Wanted, asset: Asset, names: Sequence[str], downloading: Downloading
) -> tuple[Files, dict[str, str]]:
    """The files of an asset, fetched unless its setting names a folder; and what identifies them."""
    if asset.urls and folder(asset) == cached(asset):
        with downloading(asset.description) as report:
            fetch(asset, report)
    try:
        paths = find(asset, wanted.environment.name, *names)
    except AssetMissing as error:
        raise UsageError(error.message) from error
    return list(zip(names, paths, strict=True)), {
        "asset": asset.name,
        "file": names[0],
        "sha256": digest_of(paths[0]),
    }


def generate(wanted: Wanted, count: int, seed: int, path: Path) -> dict[str, Any]:
    """Let an environment generate rows into a file; returns their entry in `Origins`.

    Raises:
        UsageError: it does not know a setting, or generated too few rows, or rows that are not JSON.
    """
    make = wanted.environment.definition.generate
    assert make is not None
    settings = dict(wanted.settings)
    known = list(inspect.signature(make).parameters.values())
    takes_any = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in known)
    names = [parameter.name for parameter in known][2:]
    for name in settings:
        if name not in names and not takes_any:
            raise UsageError(f"'{wanted.name}' has no setting '{name}'{catalogue.suggest(name, names)}")
    requirements.require(wanted.environment)
    made = 0

    def lines() -> Iterator[bytes]:
        nonlocal made
        for row in make(count, seed, **settings):
            yield json.dumps(row, default=plain).encode() + b"\n"
            made += 1

    try:
        with redirect_stdout(sys.stderr):  # libraries that make rows may talk
            write_whole(path, lines())
    except (UsageError, OSError):
        raise
    except (Exception, SystemExit) as error:
        what = f"'{wanted.name}' generated no row {made + 1} of {count}: {described(error)}"
        raise UsageError(what) from error
    if made != count:
        raise UsageError(f"'{wanted.name}' generated {made} rows instead of {count}")
    return {
        "environment": wanted.environment.name, "generated": count, "seed": seed, "settings": settings,
    }  # fmt: skip

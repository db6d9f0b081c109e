"""Datasets: JSONL files of rows, checked to the end before anything starts, then streamed.

A dataset keeps its files open between the two passes and notices when one of them changes. Of a row it
keeps eight bytes, to know which rows come again.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import sys
import tempfile
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import msgspec

from gym_runtime.environment import LoadedEnvironment
from gym_runtime.errors import UsageError
from gym_runtime.files.reader import BadRow, Row, RowReader
from gym_runtime.files.rows import Numbering, row_key, short_key
from gym_runtime.settings import require_known

MAX_LISTED = 20
MAX_LINE_BYTES = 256 * 2**20
_COPY_BYTES = 2**20
_BOM = b"\xef\xbb\xbf"
_MAGIC = {
    b"\x1f\x8b": "is compressed with gzip; unpack it first",
    b"\x28\xb5\x2f\xfd": "is compressed with zstd; unpack it first",
    b"PAR1": "is a Parquet file; convert it to JSONL first",
    b"PK\x03\x04": "is a zip archive; unpack it first",
    b"\xff\xfe": "is UTF-16; convert it to UTF-8 first",
    b"\xfe\xff": "is UTF-16; convert it to UTF-8 first",
}


class Source(msgspec.Struct, frozen=True):
    """A file of rows, and the environment of those rows that name none. ``-`` is standard input."""

    path: str
    environment: str | None = None

    def require(self) -> None:
        """Look whether the file is there, before anything costly is begun.

        Raises:
            UsageError: it is not.
        """
        if self.path != "-" and not Path(self.path).exists():
            raise UsageError(f"there is no file {self.path}")


class Dataset:
    """Checked rows from one or several files. Made by `open_dataset`; close it, or use it in a ``with``.

    Args:
        limit: take the first rows of each file only.
        settings: defaults of row fields; `gym_runtime.settings`.
        rewrite: what is done to each line before it is read as a row; it may raise `BadRow`.
        max_listed: bad rows that an error names one by one.

    Attributes:
        rows: how many rows there are.
        digest: SHA-256 over the rows and the environments they default to; the same rows under another
            file name have the same digest.
        environments: how many rows each environment has.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        limit: int | None = None,
        settings: Mapping[str, Any] | None = None,
        rewrite: Callable[[bytes], bytes] | None = None,
        max_listed: int = MAX_LISTED,
    ) -> None:
        if limit is not None and limit < 1:
            raise UsageError(f"the limit is {limit}; it must be at least 1")
        self.sources = tuple(sources)
        self.rows = 0
        self.digest = ""
        self.environments: Counter[str] = Counter()
        self._limit = limit
        self._rewrite = rewrite
        self._max_listed = max_listed
        self._files: list[IO[bytes]] = []
        self._states: list[tuple[int, int]] = []
        self._settings = settings or {}
        self._readers = [RowReader(source.environment, settings) for source in sources]
        self._own_index = -1
        self._repeated: set[int] = set()
        try:
            for source in sources:
                self._files.append(_open(source.path))
            self._check()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Dataset:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()

    def numbering(self) -> Numbering:
        """A numbering for one pass over the rows; own indices come first, the others count on from them."""
        return Numbering(self._own_index + 1, self._repeated)

    def read(self) -> Iterator[Row]:
        """All rows, in order, again from the start.

        Raises:
            UsageError: a file has changed since it was checked.
        """
        for index, (source, file) in enumerate(zip(self.sources, self._files, strict=True)):
            self._refuse_change(index)
            reader = self._readers[index]
            for number, line in _lines(file, source.path, self._limit):
                try:
                    yield reader.read(self._rewrite(line) if self._rewrite else line, check=False)
                except BadRow:
                    raise UsageError(f"{source.path}:{number} changed while it was being read") from None
            self._refuse_change(index)

    def locate(self, row: int) -> str:
        """Where a row (counted from 0 over all files) stands, as ``file:line``."""
        seen = 0
        for source, file in zip(self.sources, self._files, strict=True):
            for number, _ in _lines(file, source.path, self._limit):
                if seen == row:
                    return f"{source.path}:{number}"
                seen += 1
        return f"row {row + 1}"

    def _refuse_change(self, index: int) -> None:
        if _state(self._files[index]) != self._states[index]:
            raise UsageError(f"{self.sources[index].path} changed while it was being read; start again")

    def _check(self) -> None:
        """Read everything once.

        Raises:
            UsageError: lists the bad rows of the first file that has any.
        """
        digest = hashlib.sha256()
        keys = array("q")
        loaded: dict[str, LoadedEnvironment] = {}
        for source, file, reader in zip(self.sources, self._files, self._readers, strict=True):
            self._states.append(_state(file))
            before = self.rows
            problems: list[str] = []
            bad = 0
            digest.update(b"\x1e%b\n" % (source.environment or "").encode())
            for number, line in _lines(file, source.path, self._limit):
                digest.update(line)
                digest.update(b"\n")
                self.rows += 1
                try:
                    row = reader.read(self._rewrite(line) if self._rewrite else line)
                except BadRow as error:
                    bad += 1
                    if bad <= self._max_listed:
                        problems.append(f"{source.path}:{number}:{error.complaint.column}: {error.message}")
                    continue
                self.environments[row.environment.name] += 1
                loaded[row.environment.name] = row.environment
                keys.append(self._key(row))
            if bad > self._max_listed:
                problems.append(f"… and {bad - self._max_listed} more bad rows")
            if problems:
                raise UsageError("\n".join(problems))
            if self.rows == before:
                raise UsageError(f"{source.path} has no rows")
        require_known(self._settings, loaded.values())
        self._repeated = _repeated(keys)
        self.digest = digest.hexdigest()

    def _key(self, row: Row) -> int:
        if row.task_index is None:
            return short_key(row_key(row.line, row.environment.name))
        self._own_index = max(self._own_index, row.task_index)
        return row.task_index


def open_dataset(
    *sources: Source | str | Path,
    environment: str | None = None,
    limit: int | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Dataset:
    """Open files of rows and check every row; nothing is started on half a dataset.

    Args:
        sources: files; ``-`` is standard input, which is copied to a temporary file.
        environment: for sources that name none.
        limit: take the first rows of each file only; the others are not looked at.
        settings: defaults of row fields, for the environments that have them.

    Raises:
        UsageError: no environment has such a setting; a file can't be read, or has bad rows: one line each,
            ``file:line:column: what``, for the first 20, and the number of the others.
    """
    return Dataset(
        [given if isinstance(given, Source) else Source(str(given), environment) for given in sources],
        limit=limit,
        settings=settings,
    )


def _open(path: str) -> IO[bytes]:
    """The file, at its start and seekable; a pipe is copied."""
    if path == "-":
        return _spool(sys.stdin.buffer)
    try:
        file = open(path, "rb", buffering=_COPY_BYTES)  # noqa: SIM115 - closed by the dataset
    except IsADirectoryError:
        found = sorted(child.name for child in Path(path).glob("*.jsonl"))
        inside = f", such as {Path(path) / found[0]}" if found else ""
        raise UsageError(f"{path} is a directory; name a JSONL file{inside}") from None
    except FileNotFoundError:
        raise UsageError(f"there is no file {path}") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    with file:
        return _spool(file)


def _spool(stream: IO[bytes]) -> IO[bytes]:
    copy = tempfile.TemporaryFile(prefix="gym-runtime-")  # noqa: SIM115 - closed by the dataset
    try:
        while chunk := stream.read(_COPY_BYTES):
            copy.write(chunk)
        copy.flush()
    except OSError as error:
        copy.close()
        raise UsageError(f"cannot copy standard input to {tempfile.gettempdir()}: {error.strerror}") from None
    return copy


def _state(file: IO[bytes]) -> tuple[int, int]:
    state = os.fstat(file.fileno())
    return state.st_size, state.st_mtime_ns


def _lines(file: IO[bytes], path: str, limit: int | None) -> Iterator[tuple[int, bytes]]:
    """``(line number, line)`` of the lines that aren't blank, without their ends and without a BOM."""
    file.seek(0, io.SEEK_SET)
    taken = 0
    number = 0
    while line := _read_line(file, path, number + 1):
        number += 1
        if number == 1:
            for magic, what in _MAGIC.items():
                if line.startswith(magic):
                    raise UsageError(f"{path} {what}")
            line = line.removeprefix(_BOM)
        line = line.rstrip()
        if line:
            yield number, line
            taken += 1
            if taken == limit:
                return


def _read_line(file: IO[bytes], path: str, number: int) -> bytes:
    try:
        line = file.readline(MAX_LINE_BYTES)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    if len(line) == MAX_LINE_BYTES:
        raise UsageError(f"{path}:{number} is longer than {MAX_LINE_BYTES // 2**20} MiB; is this JSONL?")
    return line


def _repeated(keys: array[int]) -> set[int]:
    """The keys that are there more than once; sorted in parts, so that a large dataset needs little."""
    parts = len(keys) // 2**20 + 1
    found: set[int] = set()
    for part in range(parts):
        last: int | None = None
        for key in sorted(keys if parts == 1 else (key for key in keys if key % parts == part)):
            if key == last:
                found.add(key)
            last = key
    return found

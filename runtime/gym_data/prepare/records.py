"""Records of published files, and the rows that an environment makes of them.

By the ending of a file's name: ``.jsonl`` (a record per line), ``.json`` (the same, one list, or one object),
``.csv`` and ``.tsv`` (with a header), ``.parquet`` and ``.arrow``, ``.zip`` (the records of the files in it
that are of JSON, one with ``file`` and ``text`` for each of its Lean files; others are passed over), and
``.md`` or ``.txt`` (one record with its ``text``); ``.gz`` may follow. Nothing in a file is executed. Memory
does not grow with a file, except for texts and a whole ``.json``.
"""

from __future__ import annotations

import csv
import gzip
import itertools
import json
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, cast

import msgspec
from gym_runtime.environment import Records, RowMaker
from gym_runtime.errors import UsageError
from gym_runtime.files import write_whole

LONGEST_FIELD = 1 << 30
BATCH_ROWS = 64
MEMBER_BYTES_AT_MOST = 4 << 30

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_decode_list = msgspec.json.Decoder(list[dict[str, Any]]).decode


def make_rows(make: RowMaker, files: Sequence[tuple[str, Path]], path: Path) -> None:
    """Write the rows that an environment builds from the records of files, as JSON lines.

    Args:
        files: each file's name, which says its format, and where it is.

    Raises:
        UsageError: a file is not what its name says, or a record lacks what the rows need; with its number.
    """
    sources = [_Counted(name, place) for name, place in files]

    def lines() -> Iterator[bytes]:
        for row in make(*sources):
            yield json.dumps(row).encode() + b"\n"

    try:
        write_whole(path, lines())
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        where = ", ".join(f"record {source.number} of {source.name}" for source in sources)
        raise UsageError(f"{where}: no row can be made of it: {type(error).__name__}: {error}") from error


class _Counted:
    """The records of a file, once; ``number`` is the latest one's, from 1."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.number = 0
        self._records = read_records(name, path)

    def __iter__(self) -> Records:
        return self

    def __next__(self) -> dict[str, Any]:
        record = next(self._records)
        self.number += 1
        return record


def read_records(name: str, path: Path) -> Records:
    """The records of a file; ``name`` says its format.

    Raises:
        UsageError: the format is unknown, or the file is not of it.
    """
    kind = name.removesuffix(".gz").rpartition(".")[2]
    if kind in ("parquet", "arrow"):
        return _columnar(kind, name, path)
    if kind not in _READERS:
        known = ", ".join(f".{one}" for one in (*_READERS, "parquet"))
        raise UsageError(f"{name}: records are read from {known} and .arrow only")
    return _texts(kind, name, path)


def _texts(kind: str, name: str, path: Path) -> Records:
    try:
        opened = gzip.open if name.endswith(".gz") else open
        with cast("IO[bytes]", opened(path, "rb")) as file:
            yield from _READERS[kind](file)
    except (
        msgspec.DecodeError,
        RecursionError,
        UnicodeError,
        csv.Error,
        OSError,
        EOFError,
        zlib.error,
        zipfile.BadZipFile,
        NotImplementedError,  # a compression that Python lacks
    ) as error:
        raise UsageError(f"{name} is not what its name says: {' '.join(str(error).split())}") from error


def _json(file: IO[bytes]) -> Records:
    first = file.readline()
    if first.lstrip().startswith(b"["):
        yield from _decode_list(first + file.read())
        return
    if first.strip() == b"{":
        yield _decode(first + file.read())
        return
    for line in itertools.chain((first,), file):
        if line.strip():
            yield _decode(line)


def _csv(file: IO[bytes], dialect: str = "excel") -> Records:
    lines = (line.decode("utf-8-sig" if number == 0 else "utf-8") for number, line in enumerate(file))
    before = csv.field_size_limit(LONGEST_FIELD)  # of the whole process: so all is read before it goes on
    try:
        records = list(cast("Iterator[dict[str, Any]]", csv.DictReader(lines, dialect=dialect, strict=True)))
    finally:
        csv.field_size_limit(before)
    yield from records


def _tsv(file: IO[bytes]) -> Records:
    yield from _csv(file, "excel-tab")


def _zip(file: IO[bytes]) -> Records:
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            kind = member.filename.rpartition(".")[2]
            if kind not in ("json", "jsonl", "lean") or "__MACOSX" in member.filename:
                continue
            if member.file_size > MEMBER_BYTES_AT_MOST:
                raise zipfile.BadZipFile(f"{member.filename} has more than {MEMBER_BYTES_AT_MOST} bytes")
            with archive.open(member) as inner:
                if kind == "lean":
                    yield {"file": member.filename, **next(_text(inner))}
                else:
                    yield from _json(inner)


def _text(file: IO[bytes]) -> Records:
    yield {"text": file.read().decode("utf-8-sig")}


_READERS: dict[str, Callable[[IO[bytes]], Records]] = {
    "jsonl": _json,
    "json": _json,
    "csv": _csv,
    "tsv": _tsv,
    "zip": _zip,
    "md": _text,
    "txt": _text,
}


def _columnar(kind: str, name: str, path: Path) -> Records:
    try:
        import pyarrow
        from pyarrow import ipc, parquet
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{name} needs the package 'pyarrow', which is not installed: "
            'pip install "gym-runtime[parquet]"'
        ) from error
    broken: type[Exception] = cast("Any", pyarrow).ArrowException
    try:
        if kind == "arrow":  # the stream that the library `datasets` saves
            with path.open("rb") as stream:
                for batch in cast("Any", ipc).open_stream(stream):
                    yield from batch.to_pylist()
            return
        file = cast("Any", parquet).ParquetFile(path)
        for batch in file.iter_batches(batch_size=BATCH_ROWS):
            yield from batch.to_pylist()
    except (broken, OSError) as error:
        raise UsageError(f"{name} is not what its name says: {' '.join(str(error).split())}") from error

"""A JSONL file as its lines: open as long as it is needed, read from the start again and again."""

from __future__ import annotations

import io
import os
import stat
import sys
import tempfile
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec

from gym_runtime.errors import UsageError

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
    """A file of rows.

    Attributes:
        path: ``-`` is standard input.
        environment: that of the rows that name none.
        called: how errors name the file; its path by default.
    """

    path: str
    environment: str | None = None
    called: str = ""

    def __str__(self) -> str:
        return self.called or self.path

    def require(self) -> None:
        """Look whether the file is there, before anything costly is begun.

        Raises:
            UsageError: it is not.
        """
        if self.path != "-" and not Path(self.path).exists():
            raise UsageError(f"there is no file {self.path}")


class LineFile:
    """An open file. ``-`` is standard input, which is copied to a temporary file, as any pipe is.

    Args:
        called: how errors name it; its path by default.

    Raises:
        UsageError: it can't be opened, or the copy can't be written.
    """

    def __init__(self, path: str, called: str = "") -> None:
        self.path = called or path
        self._file = _open(path)
        self._marked = (0, 0)

    def close(self) -> None:
        self._file.close()

    def mark(self) -> None:
        """Remember the file as it is now."""
        self._marked = self._state()

    def refuse_change(self) -> None:
        """Raises UsageError if the file is another than when it was marked."""
        if self._state() != self._marked:
            raise UsageError(f"{self.path} changed while it was being read; start again")

    def _state(self) -> tuple[int, int]:
        state = os.fstat(self._file.fileno())
        return state.st_size, state.st_mtime_ns

    def at(self, start: int, end: int) -> bytes:
        """The line between two places that `lines` has noted.

        Raises:
            UsageError: the file can't be read.
        """
        try:
            # `pread` leaves the file's position to `lines`.
            data = os.pread(self._file.fileno(), end - start, start)
        except OSError as error:
            raise UsageError(f"cannot read {self.path}: {error.strerror}") from None
        return (data.removeprefix(_BOM) if not start else data).rstrip()

    def lines(
        self, limit: int | None = None, places: array[int] | None = None
    ) -> Iterator[tuple[int, bytes]]:
        """``(line number, line)`` of the lines that aren't blank, without their ends and without a BOM.

        From the start again, the first ``limit`` of them only. Where each begins is added to ``places``, and
        where the last one ends.

        Raises:
            UsageError: the file cannot be read, or is not a text file.
        """
        self._file.seek(0, io.SEEK_SET)
        taken = 0
        number = place = end = 0
        while line := self._read_line(number + 1):
            number += 1
            place, end = end, end + len(line)
            if number == 1:
                for magic, what in _MAGIC.items():
                    if line.startswith(magic):
                        raise UsageError(f"{self.path} {what}")
                line = line.removeprefix(_BOM)
                if line.lstrip().startswith(b"["):
                    raise UsageError(f"{self.path} is a JSON array; make it JSONL, one object on each line")
                if line.strip() == b"{":
                    raise UsageError(
                        f"{self.path} has a JSON object over several lines; make it JSONL, one object on each"
                    )
            line = line.rstrip()
            if line:
                if places is not None:
                    places.append(place)
                yield number, line
                taken += 1
                if taken == limit:
                    break
        if places is not None:
            places.append(end)

    def _read_line(self, number: int) -> bytes:
        try:
            # With a limit: a file without line breaks would be read into memory as a whole.
            line = self._file.readline(MAX_LINE_BYTES)
        except OSError as error:
            raise UsageError(f"cannot read {self.path}: {error.strerror}") from None
        if len(line) == MAX_LINE_BYTES:
            raise UsageError(
                f"{self.path}:{number} is longer than {MAX_LINE_BYTES // 2**20} MiB; is this JSONL?"
            )
        return line


def _open(path: str) -> IO[bytes]:
    """The file, at its start and seekable; a pipe is copied."""
    if path == "-":
        return _spool(sys.stdin.buffer)
    try:
        file = open(path, "rb", buffering=_COPY_BYTES)  # noqa: SIM115 - closed by its owner
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
    copy = tempfile.TemporaryFile(prefix="gym-runtime-")  # noqa: SIM115 - closed by its owner
    try:
        while chunk := stream.read(_COPY_BYTES):
            copy.write(chunk)
        copy.flush()
    except OSError as error:
        copy.close()
        raise UsageError(f"cannot copy standard input to {tempfile.gettempdir()}: {error.strerror}") from None
    return copy

"""Files that are appended to in whole lines, or replaced as a whole: a file on disk is always complete.

Lines are collected for at most `FLUSH_S` or `FLUSH_BYTES` and handed to the system in one write at the
file's end. A write that stops half-way (a full disk) is taken back to the end of its last whole line.
What a crash of the machine leaves behind, `repair_tail` removes before the file is continued.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import io
import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from gym_runtime.errors import UNREADABLE, UsageError
from gym_runtime.own_files import open_own, replacing
from gym_runtime.timing import FLUSH_S

SYNC_S = 5.0
"""How often a file of rows is flushed to the disk."""

FLUSH_BYTES = 2**20
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_BLOCK_BYTES = 2**16


class Appender:
    """Appends lines to a file, which it creates if need be.

    Result rows are as private as the dataset; who shares a machine sets the umask or the folder's mode.
    It writes only when it is called: a caller that has nothing to append calls `flush` when it is idle.

    Attributes:
        end_bytes: the offset of the next line in the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._error: UsageError | None = None
        try:
            self._fd = open_own(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}") from None
        self.end_bytes = os.fstat(self._fd).st_size
        self._synced_s = time.monotonic()
        # As if it were due, so that the first line is written at once.
        self._flushed_s = self._synced_s - FLUSH_S
        self._dirty = False

    def append(self, line: bytes) -> None:
        """Append one line; it is on its way to the disk after `FLUSH_S` at the latest, if calls go on.

        Raises:
            UsageError: the disk is full or broken, or the file was deleted. Every later call raises the same.
        """
        if self._error is not None:
            raise self._error
        # Within JSON's texts line breaks are escaped, so these are layout and may go.
        if b"\n" in line:
            line = msgspec.json.format(line, indent=-1)
        self._pending += (line, b"\n")
        self._pending_bytes += len(line) + 1
        self.end_bytes += len(line) + 1
        if self._pending_bytes >= FLUSH_BYTES or time.monotonic() - self._flushed_s >= FLUSH_S:
            self.flush()

    def flush(self) -> None:
        """Hand everything to the system now; every `SYNC_S` also wait until it is on the disk."""
        if self._error is not None:
            raise self._error
        now_s = self._flushed_s = time.monotonic()
        if self._pending:
            data = b"".join(self._pending)
            # Before the write: after an error nothing is written a second time.
            self._pending.clear()
            self._pending_bytes = 0
            self._write(data)
        if self._dirty and now_s - self._synced_s >= SYNC_S:
            self.sync()

    def sync(self) -> None:
        """Wait until the flushed data is on the disk, in a file that still has a name.

        Raises:
            UsageError: as `append`.
        """
        if self._error is not None:
            raise self._error
        try:
            os.fsync(self._fd)
        except OSError as error:
            # EINVAL: the file is one that cannot be synced, such as a device.
            if error.errno != errno.EINVAL:
                raise self._failed(error) from None
        if not os.fstat(self._fd).st_nlink:
            # The system goes on writing it, and there is no name to read it by.
            raise self._stopped(f"{self.path} was deleted while it was written; keep it where it is")
        self._synced_s = time.monotonic()
        self._dirty = False

    def close(self) -> None:
        """Flush, sync and close. After an error it only closes."""
        try:
            if self._error is None:
                self.flush()
                self.sync()
        finally:
            with contextlib.suppress(OSError):
                os.close(self._fd)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        written = 0
        try:
            while written < len(view):
                written += os.write(self._fd, view[written:])
        except OSError as error:
            # The text after the last line break that was written.
            torn_bytes = written - (data.rfind(b"\n", 0, written) + 1)
            if torn_bytes:
                with contextlib.suppress(OSError):
                    # If that fails as well, `repair_tail` cuts it off at the next start.
                    os.ftruncate(self._fd, os.fstat(self._fd).st_size - torn_bytes)
            raise self._failed(error) from None
        self._dirty = True

    def _failed(self, error: OSError) -> UsageError:
        if error.errno in _FULL:
            return self._stopped(f"disk full at {self.path}; what is written is complete; free space")
        why = f"cannot write {self.path}: {error.strerror}; what is written is complete"
        return self._stopped(f"{why}; see to the disk")

    def _stopped(self, what: str) -> UsageError:
        self._error = UsageError(f"{what}, then give the same command again ('run' with --resume)")
        return self._error


def repair_tail(path: Path) -> int:
    """Cut off what a crash left at the end of a file of JSON lines; returns how many bytes that was.

    That is a last line which is no JSON object. A last line which is one, and lacks only its newline, gets
    it. Lines before the last are not touched.

    Raises:
        UsageError: the file is not of JSON lines, so nothing is cut off; or `open_own` refuses it.
    """
    with os.fdopen(open_own(path, os.O_RDWR), "r+b") as file:
        end = file.seek(0, io.SEEK_END)
        if end == 0:
            return 0
        start = _last_line(file, end)
        file.seek(start)
        line = file.read(end - start)
        try:
            msgspec.json.decode(line.removeprefix(codecs.BOM_UTF8), type=dict[str, msgspec.Raw])
            # msgspec does not check the encoding of fields that stay raw.
            line.decode()
        except UNREADABLE:
            _require_json_lines(path, file, start)
            file.truncate(start)
            dropped = end - start
        else:
            if line.endswith(b"\n"):
                return 0
            file.write(b"\n")
            dropped = 0
        file.flush()
        os.fsync(file.fileno())
        return dropped


def _require_json_lines(path: Path, file: io.BufferedRandom, last: int) -> None:
    """Refuse a file whose first line is not a JSON object; a single line need only begin like one."""
    file.seek(0)
    first = file.readline().removeprefix(codecs.BOM_UTF8)
    try:
        if last == 0:
            # After a crash of the machine a file may consist of zeros.
            first = b"{}" if first.lstrip(b"\0")[:1] in (b"", b"{") else first
        msgspec.json.decode(first, type=dict[str, msgspec.Raw])
    except UNREADABLE:
        raise UsageError(f"{path} is not a file of JSON lines and is left as it is; choose another") from None


def _last_line(file: io.BufferedRandom, end: int) -> int:
    """Where the last line starts; a newline at the very end belongs to it."""
    position = end - 1
    while position > 0:
        block = max(0, position - _BLOCK_BYTES)
        file.seek(block)
        found = file.read(position - block).rfind(b"\n")
        if found >= 0:
            return block + found + 1
        position = block
    return 0


def write_whole(path: Path, chunks: Iterator[bytes]) -> None:
    """Write a file atomically: after a crash it has its old content or all of the new.

    Raises:
        UsageError: the disk is full or broken, or the name is a link; the old content stands.
    """
    try:
        with replacing(path) as file:
            for chunk in chunks:
                file.write(chunk)
    except OSError as error:
        remedy = "; make room, then try again" if error.errno in _FULL else ""
        raise UsageError(f"cannot write {path}: {error.strerror}{remedy}") from None

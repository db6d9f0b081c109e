"""The index of a file of result rows: one record of `RECORD_BYTES` for each row, in a file beside it.

`OUT.jsonl.idx` makes large files open at once: a reader takes the records as they are, without parsing,
and reads a row by its offset. It only ever grows, by whole records; it is written after the rows it
describes, so it may lag behind them and never runs ahead but after a crash of the machine. It can be
deleted at any time.

    header     8 bytes magic, version and record size (u32 each), checksum of the file's beginning (u32),
               how many bytes it covers (u32), zeros up to `HEADER_BYTES`
    row        offset, reward: f64; size in bytes, task, input tokens, output tokens: u32; duration in
               seconds: f32; created: u32; rollout, turns, tool calls, fault: u16; environment, outcome,
               attempt, kind (`ROW`): u8; prompt's key: u32
    name       number: u16; table, length of this piece: u8; 46 bytes of UTF-8; kind (`NAME`): u8; piece: u32

All is little-endian. A name's pieces stand together, before the first row that has its number. Number 0
of the table of faults is no fault; `OTHER_ENVIRONMENT` and `OTHER_FAULT` stand for what has no number any
more.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from gym_runtime.files.index_entry import IndexEntry, read_entry
from gym_runtime.files.index_names import (
    ENVIRONMENTS,
    FAULTS,
    NAME,
    OTHER_ENVIRONMENT,
    OTHER_FAULT,
    RECORD_BYTES,
    IndexNames,
    name_records,
    names_in,
)

MAGIC = b"GYMINDEX"
VERSION = 1
HEADER_BYTES = 56
ROW = 0
_START_BYTES = 4096
_HEADER = struct.Struct("<8sIIII32x")
_ROW = struct.Struct("<ddIIIIfIHHHHBBBBI")
assert _ROW.size == RECORD_BYTES
assert _HEADER.size == HEADER_BYTES


class IndexedRow(NamedTuple):
    """A row's place in its file, in bytes, and its entry."""

    offset: int
    size: int
    entry: IndexEntry


def index_path(rows: Path) -> Path:
    """Where the index of a file of rows stands."""
    return rows.with_name(rows.name + ".idx")


class Packer:
    """Makes the records of an index, one row after another."""

    def __init__(self) -> None:
        self.rows = 0
        self._environments = IndexNames(OTHER_ENVIRONMENT)
        self._faults = IndexNames(OTHER_FAULT, "")

    def row(self, line: bytes, offset: int, size: int) -> bytes:
        """The records that a row adds: its own, after those of names that it brings."""
        entry = read_entry(line, self.rows)
        self.rows += 1
        environment, new_environment = self._environments.number(entry.environment)
        fault, new_fault = self._faults.number(entry.fault)
        record = _ROW.pack(
            offset,
            entry.reward,
            min(size, 2**32 - 1),
            entry.task,
            entry.input_tokens,
            entry.output_tokens,
            entry.duration_s,
            entry.created_s,
            entry.rollout,
            entry.turns,
            entry.tool_calls,
            fault,
            environment,
            entry.outcome,
            entry.attempt,
            ROW,
            entry.key,
        )
        if new_environment:
            record = name_records(ENVIRONMENTS, environment, entry.environment) + record
        if new_fault:
            record = name_records(FAULTS, fault, entry.fault) + record
        return record

    def take(self, records: bytes) -> None:
        """Go on after the records of an index that is there."""
        for table, name in names_in(records):
            (self._faults if table == FAULTS else self._environments).add(name)
        # Byte 51 is the kind, in both layouts.
        self.rows = len(records) // RECORD_BYTES - records[51::RECORD_BYTES].count(NAME)


def read_index(records: bytes) -> Iterator[IndexedRow]:
    """The rows of an index without its header. The key of each entry is there, its prompt is not."""
    environments, faults = IndexNames(OTHER_ENVIRONMENT), IndexNames(OTHER_FAULT, "")
    for table, name in names_in(records):
        (faults if table == FAULTS else environments).add(name)
    # The last record may be half written: the file is read while a run appends to it.
    whole = len(records) // RECORD_BYTES * RECORD_BYTES
    for found in _ROW.iter_unpack(memoryview(records)[:whole]):
        if found[15] == ROW:
            yield IndexedRow(
                int(found[0]),
                found[2],
                IndexEntry(
                    task=found[3],
                    rollout=found[8],
                    environment=environments.name(found[12]),
                    outcome=found[13],
                    reward=found[1],
                    fault=faults.name(found[11]),
                    attempt=found[14],
                    turns=found[9],
                    tool_calls=found[10],
                    input_tokens=found[4],
                    output_tokens=found[5],
                    duration_s=found[6],
                    created_s=found[7],
                    key=found[16],
                ),
            )


class IndexFile:
    """The index of a file of rows, opened to be continued. Only one process has it open at a time.

    Attributes:
        end_bytes: the index covers the file up to here.
    """

    def __init__(self, rows: Path, fd: int) -> None:
        self._rows = rows
        self._fd = fd
        self._packer = Packer()
        self._pending: list[bytes] = []
        self._started = False
        self.end_bytes = 0

    @classmethod
    def open(cls, rows: Path, path: Path | None = None) -> IndexFile | None:
        """Open or create the index of ``rows``, beside it or at ``path``.

        What it does not describe truly is dropped: records past the file's end, or all of them when the file
        is another than the one that was indexed. None when it cannot be had: another process writes it, or
        the folder or its file system does not allow it. The rows do not depend on it.
        """
        path = path or index_path(rows)
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o664)
        except OSError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            index = cls(rows, fd)
            index._continue()
        except OSError:
            os.close(fd)
            return None
        return index

    def _continue(self) -> None:
        keep = matching_bytes(self._fd, self._rows)
        if keep < os.fstat(self._fd).st_size:
            os.ftruncate(self._fd, keep)
        if keep > HEADER_BYTES:
            records = os.pread(self._fd, keep - HEADER_BYTES, HEADER_BYTES)
            self._started = True
            self._packer.take(records)
            self.end_bytes = end_of(records[-RECORD_BYTES:])
        os.lseek(self._fd, 0, os.SEEK_END)

    def append(self, line: bytes, offset: int, size: int) -> None:
        """Add a row; `flush` writes it. ``size`` includes the newline."""
        if not self._started:
            # Whether the line stands in the file as it is: `Appender` may have laid it out in another way.
            plain = offset == 0 and size == len(line) + 1
            self._pending.append(_header(line + b"\n" if plain else _beginning(self._rows)))
            self._started = True
        self._pending.append(self._packer.row(line, offset, size))
        self.end_bytes = offset + size

    def flush(self) -> None:
        """Write what was added. The rows must be in their file before. Raises OSError."""
        data = memoryview(b"".join(self._pending))
        self._pending.clear()
        while data:
            data = data[os.write(self._fd, data) :]

    def close(self) -> None:
        """Release it; what was not flushed is not written."""
        with contextlib.suppress(OSError):
            os.close(self._fd)


def matching_bytes(index_fd: int, rows: Path) -> int:
    """How much of an index, header included, describes the rows that are there now; 0 if nothing does.

    The file's beginning must be the one that was indexed (a response's id stands there), and the last record
    must end where a row ends.
    """
    size = os.fstat(index_fd).st_size
    header = os.pread(index_fd, HEADER_BYTES, 0)
    if size < HEADER_BYTES + RECORD_BYTES or len(header) < HEADER_BYTES:
        return 0
    magic, version, record_bytes, checksum, covered = _HEADER.unpack(header)
    if (magic, version, record_bytes) != (MAGIC, VERSION, RECORD_BYTES) or covered > _START_BYTES:
        return 0
    keep = HEADER_BYTES + (size - HEADER_BYTES) // RECORD_BYTES * RECORD_BYTES
    try:
        with rows.open("rb") as file:
            if zlib.crc32(file.read(covered)) != checksum:
                return 0
            rows_bytes = file.seek(0, os.SEEK_END)
            while keep > HEADER_BYTES:
                end = end_of(os.pread(index_fd, RECORD_BYTES, keep - RECORD_BYTES))
                if 0 < end <= rows_bytes:
                    file.seek(end - 1)
                    ending = file.read(2)
                    return keep if end == rows_bytes or b"\n" in ending else 0
                # After a crash of the machine the index may know rows that the file has lost.
                keep -= RECORD_BYTES
    except OSError:
        pass
    return 0


def end_of(record: bytes) -> int:
    """Where the row of a record ends in its file; 0 for a name."""
    if len(record) < RECORD_BYTES or record[51] != ROW:
        return 0
    found = _ROW.unpack(record)
    return int(found[0]) + found[2]


def _header(beginning: bytes) -> bytes:
    """The header. The first row may not be on the disk yet, so it is given."""
    start = beginning[:_START_BYTES]
    return _HEADER.pack(MAGIC, VERSION, RECORD_BYTES, zlib.crc32(start), len(start))


def _beginning(rows: Path) -> bytes:
    with rows.open("rb") as file:
        return file.read(_START_BYTES)

"""The index of a file of result rows: one record of `RECORD_BYTES` for each row, in the user's cache.

It makes large files open at once on the page of ``gym-runtime view``: a reader takes the records as they are,
without parsing, and reads a row by its offset. It is a cache of this machine, in a folder that only its user
can write; what stands beside the rows is never believed. It is of one file in one state: device, inode, size
and time of change are in its header. Of a file that has grown since it is continued, by whole records, after
a look at the file's beginning and at the end of the last indexed row; for any other it is built again and
replaces the old one. It is written after the rows it describes, so it never runs ahead.

    header     8 bytes magic, version and record size (u16 each), checksum of the file's first `START_BYTES`
               (u32), a number that is another for each index (u64), and of the rows: device, inode, size in
               bytes, time of change in ns (u64 each)
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
import hashlib
import math
import os
import secrets
import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from gym_runtime.assets import cache_folder
from gym_runtime.errors import UsageError
from gym_runtime.own_files import open_own, private_folder

from gym_view.index_entry import OUTCOMES, IndexEntry, read_entry

RECORD_BYTES = 56
NAME = 1
"""The kind of a record that holds a name, or a piece of one."""
ENVIRONMENTS, FAULTS = 0, 1
OTHER_ENVIRONMENT = 255
OTHER_FAULT = 4095
_PIECE_BYTES = 46
_NAME = struct.Struct("<HBB46sxBI")
assert _NAME.size == RECORD_BYTES


class IndexNames:
    """The numbers of names in one table, given in the order in which the names come."""

    def __init__(self, most: int, *known: str) -> None:
        self.names = list(known)
        self._numbers = {name: number for number, name in enumerate(known)}
        self._most = most

    def number(self, name: str) -> tuple[int, bool]:
        """A name's number, and whether it is a new one."""
        known = self._numbers.get(name)
        if known is not None:
            return known, False
        if len(self.names) >= self._most:
            return self._most, False
        self._numbers[name] = len(self.names)
        self.names.append(name)
        return len(self.names) - 1, True

    def add(self, name: str) -> None:
        """Take in a name from a file."""
        self._numbers[name] = len(self.names)
        self.names.append(name)

    def name(self, number: int) -> str:
        """The name of a number."""
        return self.names[number] if number < len(self.names) else "(others)"


def name_records(table: int, number: int, name: str) -> bytes:
    """The records of a name."""
    # A name from a foreign row may hold lone surrogates.
    text = name.encode(errors="replace")
    pieces = [text[at : at + _PIECE_BYTES] for at in range(0, len(text), _PIECE_BYTES)] or [b""]
    return b"".join(
        _NAME.pack(number, table, len(piece), piece, NAME, position) for position, piece in enumerate(pieces)
    )


def names_in(records: bytes) -> Iterator[tuple[int, str]]:
    """``(table, name)`` of the names in some records, in the order of their numbers."""
    kinds = records[51::RECORD_BYTES]
    text, table, at = b"", -1, kinds.find(NAME)
    while at >= 0:
        _, next_table, length, piece, _, position = _NAME.unpack_from(records, at * RECORD_BYTES)
        if position == 0 and table >= 0:
            yield table, text.decode(errors="replace")
        text = piece[:length] if position == 0 else text + piece[:length]
        table, at = next_table, kinds.find(NAME, at + 1)
    if table >= 0:
        yield table, text.decode(errors="replace")


INDEX_KEPT_S = 30 * 24 * 3600.0
"""How long an index of the viewer is kept after it was last written; it can be built again at any time."""


MAGIC = b"GYMINDEX"
VERSION = 2
HEADER_BYTES = 56
ROW = 0
START_BYTES = 4096
_HEADER = struct.Struct("<8sHHIQQQQQ")
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
    return indices() / f"{hashlib.sha256(os.fsencode(rows.resolve())).hexdigest()[:32]}.idx"


def indices() -> Path:
    """The folder of the indices."""
    return cache_folder() / "indices"


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
        """Go on after the records of an existing index."""
        for table, name in names_in(records):
            (self._faults if table == FAULTS else self._environments).add(name)
        # Byte 51 is the kind, in both layouts.
        self.rows = len(records) // RECORD_BYTES - records[51::RECORD_BYTES].count(NAME)


def read_index(records: bytes) -> Iterator[IndexedRow]:
    """The rows of an index without its header. Each entry has its key, but not its prompt."""
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

    def __init__(self, fd: int, keep: int, end_bytes: int, packer: Packer) -> None:
        self._fd = fd
        self._at = keep
        self._packer = packer
        self._pending: list[bytes] = []
        self.end_bytes = end_bytes

    @classmethod
    def open(cls, rows: Path) -> IndexFile | None:
        """Open the index of ``rows`` as it is in this moment, or begin a new one in the old one's place.

        None when another process writes it.

        Raises:
            UsageError: the cache cannot be used.
            OSError: the rows cannot be read, or the disk is full.
        """
        path = index_path(rows)
        private_folder(path.parent)
        state = state_of(rows)
        with contextlib.suppress(FileNotFoundError, UsageError):  # what is no index of ours is replaced, too
            fd = open_own(path, os.O_RDWR)
            if not _locked(fd):
                os.close(fd)
                return None
            packer = Packer()
            keep, end_bytes = _taken(fd, rows, packer)
            if keep:
                # From here on it is an index of the file's present state.
                generation = os.pread(fd, HEADER_BYTES, 0)[16:24]
                os.pwrite(fd, _header(state, rows, int.from_bytes(generation, "little")), 0)
                return cls(fd, keep, end_bytes, packer)
            os.close(fd)
        _remove_old(path.parent)
        draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
        fd = open_own(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            _locked(fd)  # no other process knows the file yet
            os.pwrite(fd, _header(state, rows, secrets.randbits(63)), 0)
            # Who reads the old index has it open, and goes on reading it.
            draft.replace(path)
        except BaseException:
            os.close(fd)
            draft.unlink(missing_ok=True)
            raise
        return cls(fd, HEADER_BYTES, 0, Packer())

    def append(self, line: bytes, offset: int, size: int) -> None:
        """Add a row; `flush` writes it. ``size`` includes the newline."""
        self._pending.append(self._packer.row(line, offset, size))
        self.end_bytes = offset + size

    def flush(self) -> None:
        """Write the added rows. Raises OSError."""
        data = memoryview(b"".join(self._pending))
        self._pending.clear()
        while data:
            written = os.pwrite(self._fd, data, self._at)
            self._at += written
            data = data[written:]

    def close(self) -> None:
        """Release it; rows that were not flushed are lost."""
        with contextlib.suppress(OSError):
            os.close(self._fd)


class RowsState(NamedTuple):
    """Which file, and in which state: two that are equal in all of these are taken to have the same rows."""

    device: int
    inode: int
    size_bytes: int
    changed_ns: int


def state_of(rows: Path) -> RowsState:
    """The state of a file of rows now. Raises OSError."""
    status = rows.stat()
    return RowsState(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def matching_bytes(index_fd: int, rows: Path) -> int:
    """How much of an index, header included, describes the present rows; 0 if nothing does.

    The file must be the one that was indexed, unchanged or longer than then; the last record must end where a
    row ends. Raises OSError.
    """
    header = os.pread(index_fd, HEADER_BYTES, 0)
    if len(header) < HEADER_BYTES:
        return 0
    magic, version, record_bytes, checksum, _, *known = _HEADER.unpack(header)
    was, now = RowsState(*known), state_of(rows)
    if (magic, version, record_bytes) != (MAGIC, VERSION, RECORD_BYTES):
        return 0
    if was != now and (was[:2] != now[:2] or now.size_bytes <= was.size_bytes):
        return 0
    keep = HEADER_BYTES + (os.fstat(index_fd).st_size - HEADER_BYTES) // RECORD_BYTES * RECORD_BYTES
    with rows.open("rb") as file:
        if zlib.crc32(file.read(min(START_BYTES, was.size_bytes))) != checksum:
            return 0
        while keep > HEADER_BYTES:
            end = end_of(os.pread(index_fd, RECORD_BYTES, keep - RECORD_BYTES))
            if end:
                file.seek(end - 1)
                # The newline may have come later than the row.
                return keep if end == now.size_bytes or b"\n" in file.read(2) else 0
            # Names whose row is not written yet.
            keep -= RECORD_BYTES
    return 0


def sound(records: bytes, rows_bytes: int, start: int = 0) -> bool:
    """Whether all values of some records are possible: rows one after another within the file, known kinds.

    Args:
        rows_bytes: the size of the file of rows.
        start: where the first of these rows can begin, in bytes.
    """
    for found in _ROW.iter_unpack(records):
        if found[15] == NAME:
            continue
        offset, reward, size = found[:3]
        # A comparison with NaN is false. NaN means no reward.
        possible = start <= offset <= rows_bytes - size and offset == int(offset) and not math.isinf(reward)
        if not possible or found[15] != ROW or found[13] >= len(OUTCOMES) or not 0 <= found[6] < math.inf:
            return False
        start = offset + size
    return True


def end_of(record: bytes) -> int:
    """Where the row of a record ends in its file; 0 for a name, or an offset that is none."""
    if len(record) < RECORD_BYTES or record[51] != ROW:
        return 0
    found = _ROW.unpack(record)
    return int(found[0]) + found[2] if math.isfinite(found[0]) else 0


def _taken(fd: int, rows: Path, packer: Packer) -> tuple[int, int]:
    """How much of an index is kept, and up to where that covers the rows; (0, 0) for none of it."""
    keep = matching_bytes(fd, rows)
    records = os.pread(fd, keep - HEADER_BYTES, HEADER_BYTES) if keep else b""
    if not records or not sound(records, rows.stat().st_size):
        return 0, 0
    packer.take(records)
    return keep, end_of(records[-RECORD_BYTES:])


def _locked(fd: int) -> bool:
    """Take the lock of an index; False when another process has it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # this file system has no locks: two writers write the same records at the same places
        pass
    return True


def _header(state: RowsState, rows: Path, generation: int) -> bytes:
    with rows.open("rb") as file:
        checksum = zlib.crc32(file.read(min(START_BYTES, state.size_bytes)))
    return _HEADER.pack(MAGIC, VERSION, RECORD_BYTES, checksum, generation, *state)


def _remove_old(folder: Path) -> None:
    """Remove indices, and drafts of killed processes, that nothing was written to for `INDEX_KEPT_S`."""
    oldest_s = time.time() - INDEX_KEPT_S
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            if path.lstat().st_mtime < oldest_s:
                path.unlink()

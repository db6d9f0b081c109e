"""Reads files of rows, and makes and completes their indices.

``python -m gym_view.indexing`` is the process that does so for the server: paths come in on
standard input as JSON lines, and go out on standard output once they are done. It works on several files in
turn, a slice each, so a small file does not wait for a large one.
"""

from __future__ import annotations

import codecs
import os
import queue
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec
from gym_runtime.errors import UsageError
from gym_runtime.files import MAX_LINE_BYTES

from gym_view.index import IndexedRow, IndexFile, Packer
from gym_view.index_entry import OUTCOMES, read_entry

SLICE_BYTES = 8 * 2**20
FIRST_SLICE_BYTES = 2**19  # the first rows are to be there at once
_UNREADABLE = OUTCOMES.index("unreadable")


def complete_index(rows: Path) -> Iterator[int]:
    """Index the rest of the file, slice by slice; yields the position reached, in bytes.

    Where another process writes this index, it yields nothing.
    """
    index = IndexFile.open(rows)
    if index is None:
        return
    try:
        at = index.end_bytes
        flushed, slice_bytes = at, FIRST_SLICE_BYTES if at == 0 else SLICE_BYTES
        for line, start, size in rows_in(rows, at):
            index.append(line, start, size)
            at = start + size
            if at - flushed >= slice_bytes:
                index.flush()
                flushed, slice_bytes = at, SLICE_BYTES
                yield at
        index.flush()
        yield at
    finally:
        index.close()


def index_of(rows: Path) -> bytes:
    """The records of an index of a file, made now."""
    packer = Packer()
    return b"".join(packer.row(line, start, size) for line, start, size in rows_in(rows))


def indexed(rows: Path) -> Iterator[IndexedRow]:
    """The rows of a file as they are now. A stored index is not asked: people quote what comes of these."""
    for number, (line, start, size) in enumerate(rows_in(rows)):
        yield IndexedRow(start, size, read_entry(line, number))


def rows_in(rows: Path, at: int = 0) -> Iterator[tuple[bytes, int, int]]:
    """Each row from byte ``at`` on: its line, where it starts and its size, with the newline, in bytes.

    Ends at the file's last whole row: the rest is a row that is being written, or what a crash left. Of a row
    that is too long the line is only the beginning.
    """
    with rows.open("rb", buffering=2**20) as file:
        if at == 0 and file.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8:  # of an editor
            at = len(codecs.BOM_UTF8)
        file.seek(at)
        while row := _read_row(file):
            line, size = row
            if line.strip():
                if not line.endswith(b"\n") and size == len(line) and _torn(line):
                    return
                yield line.rstrip(b"\r\n"), at, size
            at += size


def _read_row(file: BinaryIO) -> tuple[bytes, int] | None:
    """The next line and its size; of a line that is too long only the beginning."""
    line = file.readline(MAX_LINE_BYTES)
    size = len(line)
    if size == MAX_LINE_BYTES and not line.endswith(b"\n"):
        line = line[:4096]
        while rest := file.readline(2**20):
            size += len(rest)
            if rest.endswith(b"\n"):
                break
    return (line, size) if size else None


def _torn(line: bytes) -> bool:
    """Whether the file's last line, which has no newline, is only the beginning of a row."""
    return read_entry(line, 0).outcome == _UNREADABLE


def main() -> None:
    """Serve one parent until it closes our standard input, or has ended."""
    try:
        _serve()
    except BrokenPipeError:
        # An ordinary end says that what is buffered has no reader, and aborts where `listen` still reads.
        os._exit(0)


def _serve() -> None:
    asked: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def listen() -> None:
        for line in sys.stdin.buffer:
            asked.put(msgspec.json.decode(line, type=str))
        asked.put(None)

    threading.Thread(target=listen, daemon=True).start()
    active: dict[str, Iterator[int]] = {}
    while True:
        while not active or not asked.empty():
            path = asked.get()
            if path is None:
                return
            active.setdefault(path, complete_index(Path(path)))
        for path, slices in list(active.items()):
            if _next(slices) is None:
                del active[path]
                sys.stdout.buffer.write(msgspec.json.encode(path) + b"\n")
                sys.stdout.buffer.flush()


def _next(slices: Iterator[int]) -> int | None:
    try:
        return next(slices, None)
    except (OSError, UsageError):  # the file is gone, or the disk is full: the server shows what is indexed
        return None


if __name__ == "__main__":
    main()

"""Rows with a text in them: a scan of the file's bytes, which needs no index and no decoding."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

BLOCK_BYTES = 4 * 2**20


def offsets_of(rows: Path, text: str) -> Iterator[list[int]]:
    """Where rows with a text stand, in bytes, one list for each block of the file. The case counts.

    The text is sought as it is in JSON: with its escapes, and characters as themselves.
    """
    needle = msgspec.json.encode(text)[1:-1]
    with rows.open("rb", buffering=0) as file:
        at = line_start = 0
        last = -1
        tail = b""
        while chunk := file.read(BLOCK_BYTES):
            data = tail + chunk
            found: list[int] = []
            position = data.find(needle)
            while position >= 0:
                newline = data.rfind(b"\n", 0, position)
                start = line_start if newline < 0 else at + newline + 1
                if start != last:
                    found.append(start)
                    last = start
                newline = data.find(b"\n", position)
                position = -1 if newline < 0 else data.find(needle, newline)
            yield found
            newline = data.rfind(b"\n")
            if newline >= 0:
                line_start = at + newline + 1
            done = max(0, len(data) - len(needle) + 1)  # the text may go on in the next block
            at += done
            tail = data[done:]

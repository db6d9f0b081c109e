"""The names in an index: environments and faults, which its rows refer to by number."""

from __future__ import annotations

import struct
from collections.abc import Iterator

RECORD_BYTES = 56
NAME = 1
"""The kind of a record that holds a name, or a piece of one; `gym_runtime.files.index` has the layout."""
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

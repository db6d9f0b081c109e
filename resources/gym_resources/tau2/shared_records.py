"""A database of records by table and key, which many conversations share and each changes for itself.

The published databases have several megabytes, so nothing is copied but the records that are changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

Record = dict[str, Any]
Tables = Mapping[str, Mapping[str, Record]]


class Records:
    """The tables as they were given, and what one conversation changed in them."""

    def __init__(self, given: Tables) -> None:
        self._given = given
        self._own: dict[str, dict[str, Record]] = {}

    def find(self, table: str, key: str) -> Record | None:
        """A record to read: it must not be changed."""
        own = self._own.get(table, {})
        return own[key] if key in own else self._given.get(table, {}).get(key)

    def change(self, table: str, key: str) -> Record:
        """A record to change.

        Raises:
            KeyError: no such record exists.
        """
        own = self._own.setdefault(table, {})
        if key not in own:
            own[key] = deepcopy(self._given[table][key])
        return own[key]

    def add(self, table: str, key: str, record: Record) -> None:
        self._own.setdefault(table, {})[key] = record

    def all(self, table: str) -> Iterator[Record]:
        """The records of a table to read, in the order in which they were given; new ones last."""
        given, own = self._given.get(table, {}), self._own.get(table, {})
        yield from (own.get(key, record) for key, record in given.items())
        yield from (record for key, record in own.items() if key not in given)

    def changed(self) -> dict[tuple[str, str], Record]:
        """The records that are new or not as they were given, by table and key."""
        return {
            (table, key): record
            for table, records in self._own.items()
            for key, record in records.items()
            if self._given.get(table, {}).get(key) != record
        }

"""The office's tables: plain rows of strings, read once per process and shared by all its sessions.

A row never changes once it is made, and a `Table` copies its dictionary of rows before its first write.
So a session costs five small objects until it writes, and two states that share most of their rows are
compared by identity first.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

DATA = Path(__file__).parent / "data"
CASE_MATTERS = frozenset({"status", "list_name", "board"})
NO_ID = "00000000"

Fields = dict[str, str]


@dataclass(frozen=True, slots=True)
class Row:
    """One row. ``folded`` is what counts when states are compared: lower case, save `CASE_MATTERS`."""

    fields: Fields = field(compare=False)
    folded: Fields

    @classmethod
    def of(cls, fields: Fields) -> Row:
        return cls(fields, {name: v if name in CASE_MATTERS else v.lower() for name, v in fields.items()})

    def mentions(self, part: str, *names: str) -> bool:
        """Whether one of these fields contains ``part``, which is in lower case."""
        return any(part in self.folded[name].lower() for name in names)


class Table:
    """Rows by their ids, in the order of their making. New ids follow the highest one there is."""

    __slots__ = ("_key", "_owned", "_rows")

    def __init__(self, key: str, rows: dict[str, Row] | None = None) -> None:
        self._key = key
        self._rows = rows if rows is not None else {}
        self._owned = rows is None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and self._rows == other._rows

    __hash__ = None  # type: ignore[assignment]

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows.values())

    def get(self, key: str) -> Fields | None:
        """The fields of a row; they must not be changed."""
        row = self._rows.get(key)
        return row.fields if row else None

    def add(self, fields: Mapping[str, str]) -> str:
        """Append a row and return its id."""
        key = f"{int(max(self._rows, default=NO_ID)) + 1:08}"
        self._write()[key] = Row.of({self._key: key, **fields})
        return key

    def update(self, key: str, name: str, value: str) -> None:
        """Set one field of a row that is there."""
        rows = self._write()
        rows[key] = Row.of({**rows[key].fields, name: value})

    def delete(self, key: str) -> bool:
        """Drop a row; False if there is none."""
        return key in self._rows and bool(self._write().pop(key))

    def _write(self) -> dict[str, Row]:
        if not self._owned:
            self._rows, self._owned = dict(self._rows), True
        return self._rows


class Tables:
    """What a session may change: five tables, fresh from the data."""

    __slots__ = ("calendar", "customers", "email", "plots", "tasks")

    def __init__(self) -> None:
        self.email = Table("email_id", _rows("emails", "email_id"))
        self.calendar = Table("event_id", _rows("calendar_events", "event_id"))
        self.plots = Table("plot_id")
        self.tasks = Table("task_id", _rows("project_tasks", "task_id"))
        self.customers = Table("customer_id", _rows("customers", "customer_id"))

    def differing(self, other: Tables) -> list[str]:
        """The names of the tables in which two states differ."""
        pairs = {
            "email": (self.email, other.email),
            "calendar": (self.calendar, other.calendar),
            "analytics": (self.plots, other.plots),
            "project_management": (self.tasks, other.tasks),
            "customer_relationship_manager": (self.customers, other.customers),
        }
        return [name for name, (mine, theirs) in pairs.items() if mine != theirs]


@cache
def records(name: str) -> list[Fields]:
    """The rows of ``data/<name>.csv``; they must not be changed."""
    with (DATA / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@cache
def addresses() -> list[str]:
    """Everybody's e-mail address, from the company directory."""
    return [record["email_address"] for record in records("company_directory")]


@cache
def _rows(name: str, key: str) -> dict[str, Row]:
    return {record[key]: Row.of(record) for record in records(name)}

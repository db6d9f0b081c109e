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
    """One row.

    Attributes:
        folded: what counts when states are compared: lower case, save `CASE_MATTERS`.
        text: the searched fields in lower case, one a line.
    """

    fields: Fields = field(compare=False)
    folded: Fields
    text: str = field(compare=False)

    @classmethod
    def of(cls, fields: Fields, searched: tuple[str, ...] = ()) -> Row:
        folded = {name: v if name in CASE_MATTERS else v.lower() for name, v in fields.items()}
        return cls(fields, folded, "\n".join(folded[name] for name in searched))


class Table:
    """Rows by their ids, in the order of their making. New ids follow the highest one there is.

    ``name`` is the file that the rows come from; without one the table starts empty. Where the rows are not
    ``known``, their ids are, and each field holds what no other one does.
    """

    __slots__ = ("_key", "_owned", "_rows", "_searched")

    def __init__(
        self, key: str, name: str = "", searched: tuple[str, ...] = (), *, known: bool = True
    ) -> None:
        self._key = key
        self._searched = searched
        self._rows = _rows(name, key, searched, known) if name else {}
        self._owned = not name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and self._rows == other._rows

    __hash__ = None  # type: ignore[assignment]

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows.values())

    def get(self, key: str) -> Fields | None:
        """The fields of a row; they must not be changed."""
        row = self._rows.get(key)
        return row.fields if row else None

    def search(self, query: str) -> list[Row]:
        """The rows whose searched fields contain every word, in any case."""
        rows = list(self)
        for word in query.lower().split():
            rows = [row for row in rows if word in row.text]
        return rows

    def matching(self, parts: Mapping[str, str | None]) -> list[Fields]:
        """The rows whose fields contain the given parts, in any case; None and "" are in every field."""
        rows = list(self)
        for name, part in parts.items():
            if part:
                wanted = part.lower()
                rows = [row for row in rows if wanted in row.folded[name].lower()]
        return [row.fields for row in rows]

    def add(self, fields: Mapping[str, str]) -> str:
        """Append a row and return its id."""
        key = f"{int(max(self._rows, default=NO_ID)) + 1:08}"
        self._write()[key] = Row.of({self._key: key, **fields}, self._searched)
        return key

    def update(self, key: str, name: str, value: str) -> None:
        """Set one field of a row that is there."""
        rows = self._write()
        rows[key] = Row.of({**rows[key].fields, name: value}, self._searched)

    def delete(self, key: str) -> bool:
        """Drop a row; False if there is none."""
        return key in self._rows and bool(self._write().pop(key))

    def _write(self) -> dict[str, Row]:
        if not self._owned:
            self._rows, self._owned = dict(self._rows), True
        return self._rows


class Tables:
    """What a session may change: five tables, fresh from the data.

    Those of another office, whose data are not at hand, are not ``known``: they have the same ids, as the
    offices are of one size, but what stands in them is told by no one.
    """

    __slots__ = ("calendar", "customers", "email", "known", "plots", "tasks")

    def __init__(self, *, known: bool = True) -> None:
        self.known = known
        self.email = Table("email_id", "emails", ("subject", "body", "sender/recipient"), known=known)
        self.calendar = Table("event_id", "calendar_events", ("event_name", "participant_email"), known=known)
        self.plots = Table("plot_id")
        self.tasks = Table("task_id", "project_tasks", known=known)
        self.customers = Table("customer_id", "customers", known=known)

    def works_here(self, address: str) -> bool:
        """Whether somebody of the office has this address; of an unknown office, anybody may."""
        return not self.known or address in addresses()

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
def _rows(name: str, key: str, searched: tuple[str, ...], known: bool) -> dict[str, Row]:
    return {
        record[key]: Row.of(record if known else _unknown(record, key), searched) for record in records(name)
    }


def _unknown(record: Fields, key: str) -> Fields:
    return {name: record[key] if name == key else f"{name} of {record[key]}" for name in record}

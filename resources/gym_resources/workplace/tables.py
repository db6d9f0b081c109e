"""The tables of an office, as a session sees and changes them.

Tables are compared like NeMo Gym's data frames, with the number of each row: a row keeps its number
when others are deleted; creating one renumbers all rows of its table, except in the calendar, where a new
event gets the number 0. So deleting and then adding is not always the same as adding and then deleting.

A row never changes once it is made, and a `Table` copies its list of rows before its first write. So a
session costs five small objects until it writes, and two states that share most of their rows are compared by
identity.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

from gym_resources.workplace.office import Fields, Office

CASE_MATTERS = frozenset({"status", "list_name", "board"})
ID_DIGITS = 8
CHARACTERS_AT_MOST = 10_000_000
WORDS_AT_MOST = 100


class Row:
    """One row; two are equal if they are but for upper and lower case, save in `CASE_MATTERS`."""

    def __init__(self, fields: Fields, searched: tuple[str, ...] = ()) -> None:
        self.fields = fields
        self._searched = searched

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Row) and (self is other or self.folded == other.folded)

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def folded(self) -> Fields:
        """What counts when states are compared."""
        return {
            name: value if value is None or name in CASE_MATTERS else value.lower()
            for name, value in self.fields.items()
        }

    @cached_property
    def text(self) -> str:
        """The searched fields in lower case, one a line."""
        return "\n".join((self.fields[name] or "").lower() for name in self._searched)


class Table:
    """Rows with their numbers, in the order of their creation.

    A new id is the highest text among the ids, plus 1, in eight digits unless ``padded`` is off.
    """

    __slots__ = ("_characters", "_key", "_numbers", "_owned", "_padded", "_renumbers", "_rows", "_searched")

    def __init__(
        self,
        key: str,
        rows: list[Row],
        searched: tuple[str, ...] = (),
        *,
        padded: bool = True,
        renumbers: bool = True,
    ) -> None:
        self._key = key
        self._searched = searched
        self._padded = padded
        self._renumbers = renumbers
        self._rows = rows
        self._numbers: list[int] = []
        self._owned = False
        self._characters = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and self._rows == other._rows and self.numbers == other.numbers

    __hash__ = None  # type: ignore[assignment]

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    @property
    def numbers(self) -> list[int]:
        """The number of each row."""
        return self._numbers if self._owned else list(range(len(self._rows)))

    @property
    def columns(self) -> set[str]:
        """The names of the fields."""
        return set(self._rows[0].fields) if self._rows else set()

    def values(self, name: str) -> set[str | None]:
        """A field's values in all rows, in the form in which they are compared."""
        return {row.folded[name] for row in self._rows}

    def get(self, key: str) -> Fields | None:
        """The fields of the first row with an id; they must not be changed."""
        return next((row.fields for row in self._rows if row.fields[self._key] == key), None)

    def search(self, query: str) -> list[Row]:
        """The rows whose searched fields contain every word, in any case.

        Raises:
            ValueError: there are too many words.
        """
        words = set(query.lower().split())
        if len(words) > WORDS_AT_MOST:
            raise ValueError(f"a query has at most {WORDS_AT_MOST} words")
        return [row for row in self._rows if all(word in row.text for word in words)]

    def matching(self, parts: Mapping[str, str | None]) -> list[Fields]:
        """The rows whose fields contain the given parts, in any case; None and "" are in every field."""
        wanted = {name: part.lower() for name, part in parts.items() if part}
        return [
            row.fields
            for row in self._rows
            if all(part in (row.fields[name] or "").lower() for name, part in wanted.items())
        ]

    def add(self, fields: Fields) -> str:
        """Append a row and return its id.

        Raises:
            ValueError: the highest id is not a number, or the table is full.
        """
        highest = max((row.fields[self._key] or "" for row in self._rows), default="0")
        key = str(int(highest) + 1)
        key = key.zfill(ID_DIGITS) if self._padded else key
        self._count(fields)
        rows = self._write()
        rows.append(Row({self._key: key, **fields}, self._searched))
        self._numbers = list(range(len(rows))) if self._renumbers else [*self._numbers, 0]
        return key

    def update(self, key: str, name: str, value: str) -> bool:
        """Set one field of the rows with an id; False if no row has it.

        Raises:
            ValueError: the table is full.
        """
        found = [place for place, row in enumerate(self._rows) if row.fields[self._key] == key]
        if found:
            self._count({name: value})
            rows = self._write()
            for place in found:
                rows[place] = Row({**rows[place].fields, name: value}, self._searched)
        return bool(found)

    def delete(self, key: str) -> bool:
        """Drop the rows with an id; False if no row has it."""
        kept = [place for place, row in enumerate(self._rows) if row.fields[self._key] != key]
        if len(kept) == len(self._rows):
            return False
        numbers = self.numbers
        self._rows, self._numbers = [self._rows[place] for place in kept], [numbers[place] for place in kept]
        self._owned = True
        return True

    def _write(self) -> list[Row]:
        if not self._owned:
            self._rows, self._numbers, self._owned = list(self._rows), self.numbers, True
        return self._rows

    def _count(self, fields: Fields) -> None:
        """A model could forward a large mail repeatedly."""
        self._characters += sum(len(value) for value in fields.values() if value)
        if self._characters > CHARACTERS_AT_MOST:
            raise ValueError(f"a table holds at most {CHARACTERS_AT_MOST} characters")


class Tables:
    """The state of a session: five tables, copied from an office's data."""

    __slots__ = ("calendar", "customers", "email", "office", "plots", "tasks")

    def __init__(self, office: Office) -> None:
        self.office = office
        searched = ("subject", "body", "sender/recipient")
        self.email = _table(office, "emails", "email_id", searched, padded=False)
        self.calendar = _table(
            office, "events", "event_id", ("event_name", "participant_email"), renumbers=False
        )
        self.plots = Table("plot_id", [])
        self.tasks = _table(office, "tasks", "task_id")
        self.customers = _table(office, "customers", "customer_id")

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


def _table(
    office: Office,
    name: str,
    key: str,
    searched: tuple[str, ...] = (),
    *,
    padded: bool = True,
    renumbers: bool = True,
) -> Table:
    rows = office.made.get(name)
    if rows is None:
        rows = office.made[name] = [Row(record, searched) for record in office.records[name]]
    return Table(key, rows, searched, padded=padded, renumbers=renumbers)

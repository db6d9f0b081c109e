"""The bank's books: its tables, the fixed day, and the ids that follow from what a record is about.

The ids are those of the authors' program, because published tasks name records that their own calls make.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime
from hashlib import sha256

from gym_runtime import Text

from gym_resources.tau2.refusal import error
from gym_resources.tau2.shared_records import Record, Records

TODAY = "11/14/2025"
NOW = "2025-11-14 03:40:00 EST"
_DATE = "%m/%d/%Y"


class Ledger:
    """The tables of one conversation."""

    def __init__(self, records: Records) -> None:
        self.records = records

    def known(self, table: str, key: str, what: str) -> Record:
        """A record to read.

        Raises:
            ToolError: the database has no such record.
        """
        found = self.records.find(table, key)
        if found is None:
            raise error(f"{what} {key[:100]!r} not found")
        return found

    def change(self, table: str, key: str) -> Record:
        """A record to change, which exists."""
        return self.records.change(table, key)

    def where(self, table: str, field: str, value: object) -> list[Record]:
        """The records of a table whose field has a value, in their order."""
        return [record for record in self.records.all(table) if record.get(field) == value]

    def add(self, table: str, key: str, record: Record) -> bool:
        """Whether a new record was added; one of the same id stays as it is."""
        if self.records.find(table, key) is not None:
            return False
        self.records.add(table, key, record)
        return True

    def file(self, table: str, key: str, record: Record, what: str) -> Record:
        """Add a new record.

        Raises:
            ToolError: there is one of the same id.
        """
        if not self.add(table, key, record):
            raise error(f"{what} {key} exists already")
        return record

    def owned(self, table: str, key: str, user_id: str, what: str) -> Record:
        """A user's record to read.

        Raises:
            ToolError: the database has no such record, or it belongs to another customer.
        """
        found = self.known(table, key, what)
        if found.get("user_id") != user_id:
            raise error(f"{what} {key!r} does not belong to the user {user_id[:100]!r}")
        return found


def digest(seed: str, length: int = 16) -> str:
    """The first hexadecimal digits of a text's SHA-256.

    >>> digest("dispute:u1:t1", 12)
    '77b024d66e22'
    """
    return sha256(seed.encode()).hexdigest()[:length]


def dispute_id(user_id: str, transaction_id: str) -> str:
    return f"dsp_{digest(f'dispute:{user_id}:{transaction_id}', 12)}"


def money(text: object) -> float:
    """A sum of money that a record has, as a number or as '$2,850.00'; 0 where the record has no amount.

    Raises:
        ToolError: it is another text.
    """
    if isinstance(text, int | float):
        return float(text)
    if not isinstance(text, str):
        return 0.0
    try:
        return float(text.replace("$", "").replace(",", ""))
    except ValueError as wrong:
        raise error(f"the record has no readable amount, but {text[:50]!r}") from wrong


def holdings(account: Record) -> float:
    """An account's balance."""
    return money(account.get("current_holdings", account.get("balance", 0)))


def positive(number: float, what: str) -> float:
    """The number.

    Raises:
        ToolError: it is not above zero, or has no end.
    """
    if not (number > 0 and math.isfinite(number)):
        raise error(f"{what} must be above 0")
    return number


def age_days(account: Record) -> int | None:
    """For how many days an account has been open; None without a date."""
    try:
        opened = datetime.strptime(account.get("date_opened") or "", _DATE)
    except ValueError:
        return None
    return (datetime.strptime(NOW[:10], "%Y-%m-%d") - opened).days


def newest_first(records: Iterator[Record] | list[Record], field: str) -> list[Record]:
    """Records by a date, the newest first; those of one day stay in their order."""

    def day(record: Record) -> datetime:
        try:
            return datetime.strptime(str(record.get(field)), _DATE)
        except ValueError:
            return datetime.min

    return sorted(records, key=day, reverse=True)


def listed(records: list[Record], what: str) -> list[Record] | Text:
    """Records as a tool shows them."""
    return records or Text(f"No {what} found.")

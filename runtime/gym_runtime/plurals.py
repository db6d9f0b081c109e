"""Numbers of things in messages."""

from __future__ import annotations


def counted(number: int, noun: str, several: str = "") -> str:
    """How many of a thing; ``several`` is the form for any number but 1, by default with an ``s``.

    >>> counted(1, "turn"), counted(0, "file"), counted(1234, "row")
    ('1 turn', '0 files', '1,234 rows')
    >>> counted(1, "task waits", "tasks wait"), counted(2, "task waits", "tasks wait")
    ('1 task waits', '2 tasks wait')
    """
    return f"{number:,} {noun if number == 1 else several or f'{noun}s'}"

"""Times of the day."""

from __future__ import annotations

import re

DAY_MIN = 24 * 60
_CLOCK = re.compile(r"(\d{1,2})(?::(\d{2}))?\s*(am|pm)?", re.ASCII)


def minutes(text: str) -> int | None:
    """A time such as ``14:30``, ``2:30pm`` or ``2pm`` in minutes of the day; None for any other text.

    >>> minutes(" 2:30 pm ")
    870
    """
    match = _CLOCK.fullmatch(text.strip())
    if match is None:
        return None
    hour, minute, half = int(match[1]), int(match[2] or 0), match[3]
    if minute > 59 or (half and not 1 <= hour <= 12):
        return None
    time_min = (hour % 12 + 12 * (half == "pm") if half else hour) * 60 + minute
    return time_min if time_min <= DAY_MIN else None


def required_minutes(text: str) -> int:
    """As `minutes`, with am and pm also in capitals.

    Raises:
        ValueError: the text is not a time of the day.
    """
    time_min = minutes(text.lower())
    if time_min is None:
        raise ValueError(f"'{text}' is not a time of the day")
    return time_min

"""Figures and foreign texts as a terminal shows them: short, on one line, without control characters."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path


def span(seconds: float) -> str:
    """A duration.

    >>> span(0.25), span(8.4), span(125), span(3780)
    ('0.2 s', '8 s', '2 min 05 s', '1 h 03 min')
    """
    if seconds < 3:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60:02} min"


def pace(per_s: float) -> str:
    """A rate, in the unit in which it is above one.

    >>> pace(812.3), pace(2.5), pace(0.5), pace(0.001)
    ('812/s', '2.5/s', '30/min', '4/h')
    """
    if per_s >= 1:
        return f"{per_s:,.0f}/s" if per_s >= 10 else f"{per_s:.1f}/s"
    return f"{per_s * 60:.0f}/min" if per_s * 60 >= 1 else f"{per_s * 3600:.0f}/h"


def reward(value: float | None, error: float | None = None) -> str:
    """A mean reward, with its standard error if that is known; ``-`` if it is unknown.

    >>> reward(0.43333), reward(0.43333, 0.0213), reward(None)
    ('0.4333', '0.4333 ± 0.021', '-')
    """
    if value is None:
        return "-"
    return f"{value:.4g}" if error is None else f"{value:.4g} ± {error:.2g}"


def share(value: float, error: float | None = None) -> str:
    """A share in percent, with its standard error if that is known.

    >>> share(0.5), share(0.5, 0.0213)
    ('50.0%', '50.0% ± 2.1%')
    """
    return f"{value:.1%}" if error is None else f"{value:.1%} ± {error:.1%}"


def path(named: Path | str) -> str:
    """A file's name as JSON can hold it: bytes that are not UTF-8 become U+FFFD."""
    return os.fsencode(named).decode(errors="replace")


def cancelled(by: str, at_s: float) -> str:
    """Who cancelled something and when, as others have stored it.

    >>> cancelled("ann@node7", float("inf")), cancelled("", 0.0)
    ('cancelled by ann@node7', 'cancelled; by whom is not known')
    """
    if not by:
        return "cancelled; by whom is not known"
    try:
        when = time.strftime(" at %Y-%m-%d %H:%M:%S", time.localtime(at_s))
    except (ValueError, OverflowError, OSError):
        when = ""
    return f"cancelled by {shorten(by, 100)}{when}"


def breakdown(counts: Mapping[str, int]) -> str:
    """Counts by kind, most frequent first.

    >>> breakdown({"deadline": 1, "model": 2})
    '2 model, 1 deadline'
    """
    ordered = sorted(counts.items(), key=lambda kind: -kind[1])
    return ", ".join(f"{count:,} {name}" for name, count in ordered if count)


def listed(names: Sequence[str], most: int = 6) -> str:
    """Names, and how many more there are.

    >>> listed(["a", "b"]), listed(["a", "b", "c", "d"], 2)
    ('a, b', 'a, b and 2 more')
    """
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"


def shorten(text: str, length: int) -> str:
    """A foreign text on one line of at most ``length`` characters, with nothing a terminal would obey.

    >>> shorten("500 from the\\nengine\\x1b[2J", 18)
    '500 from the en...'
    """
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= length else line[: max(0, length - 3)] + "..."

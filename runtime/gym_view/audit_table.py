"""What an audit found, as the page of its replies shows it: rows of text, computed here.

`gym-runtime audit` writes ``NAME.audit.json`` beside ``NAME.audit.replies.jsonl``. The document may be of
anyone: all of it is text for the page, and what is no document of an audit shows nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from gym_runtime.errors import UNREADABLE

if TYPE_CHECKING:
    from gym_testing.audit.artifact import Artifact, Rate

SUFFIX = ".audit.json"
REPLIES = ".audit.replies.jsonl"
MOST_BYTES = 16 * 2**20
SHOWN_CHARS, SHOWN_RATES = 400, 50
COLUMNS = ("what", "rows", "share", "95 % interval", "replies tried", "suspect")


def replies_of(document: Path) -> Path:
    """The replies beside an audit's document.

    >>> str(replies_of(Path("mcqa.audit.json")))
    'mcqa.audit.replies.jsonl'
    """
    return document.with_name(document.name.removesuffix(SUFFIX) + REPLIES)


def audit_table(replies: Path) -> dict[str, Any] | None:
    """The table of the audit whose replies these are: a title, columns, rows and notes, all of them texts.

    None if they are no audit's, or there is no document beside them that can be read.
    """
    if not replies.name.endswith(REPLIES):
        return None
    document = replies.with_name(replies.name.removesuffix(REPLIES) + SUFFIX)
    from gym_testing.audit.artifact import Artifact  # here: most files are no audit's
    from gym_testing.audit.notes import notes

    try:
        if document.stat().st_size > MOST_BYTES:
            return None
        found = msgspec.json.decode(document.read_bytes(), type=Artifact)
    except (OSError, *UNREADABLE):  # it is being written, or is another program's
        return None
    rates = list(found.rates.items())[:SHOWN_RATES]
    rows = [_row(name.replace("_", " "), one) for name, one in rates]
    return {
        "title": _text(f"Audit of {found.environment}"),
        "columns": list(COLUMNS),
        "rows": [[_text(cell) for cell in row] for row in rows],
        "notes": [_text(note) for note in (*_head(found), *notes(found))],
    }


def _row(name: str, one: Rate) -> list[str]:
    if one.found is None or not one.rows:
        return [name, "unobserved", "", "", f"{one.tried:,}", f"{one.suspect:,}"]
    share, interval = f"{one.found / one.rows:.1%}", _interval(one.low, one.high)
    return [name, f"{one.found:,} of {one.rows:,}", share, interval, f"{one.tried:,}", f"{one.suspect:,}"]


def _head(found: Artifact) -> Iterator[str]:
    rows = found.input
    yield f"{rows.sampled:,} of {rows.rows:,} rows of {rows.name}; replies of version {found.audit}"
    yield f"made {found.made}"
    if found.judged:
        yield f"{found.judged:,} replies were decided by a model in a role: nothing is said of them"


def _interval(low: float | None, high: float | None) -> str:
    return "-" if low is None or high is None else f"{low:.1%} to {high:.1%}"


def _text(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"

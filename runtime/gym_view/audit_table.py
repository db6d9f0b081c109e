"""What an audit found, as the page of its replies shows it: rows of text, computed here.

`gym-runtime audit` writes ``NAME.audit.json`` beside ``NAME.audit.replies.jsonl``. The document may be of
anyone: all of it is text for the page, and what is no document of an audit shows nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from gym_runtime.errors import UNREADABLE

SUFFIX = ".audit.json"
REPLIES = ".audit.replies.jsonl"
MOST_BYTES = 16 * 2**20
SHOWN_CHARS, SHOWN_RATES = 200, 50
COLUMNS = ("what", "rows", "share", "95 % interval", "replies tried", "suspect")


class _Rate(msgspec.Struct):
    rows: int
    found: int | None = None
    low: float | None = None
    high: float | None = None
    tried: int = 0
    suspect: int = 0


class _Difficulty(msgspec.Struct):
    model: str
    tries: int
    failed: int
    signal: int
    signal_rows: int
    tenths: list[int]
    pass_rate: float | None = None
    low: float | None = None
    high: float | None = None
    signal_low: float | None = None
    signal_high: float | None = None
    length_p50: float | None = None
    length_p95: float | None = None


class _Overlap(msgspec.Struct):
    contains: int
    touches: int


class _Duplicates(msgspec.Struct):
    prompts: int
    within: int
    against: dict[str, _Overlap] = {}
    not_compared: dict[str, str] = {}


class _Input(msgspec.Struct):
    name: str
    rows: int
    sampled: int


class _Audit(msgspec.Struct):
    environment: str
    audit: str
    made: str
    input: _Input
    rates: dict[str, _Rate]
    judged: int = 0
    unobserved: list[str] = []
    difficulty: _Difficulty | None = None
    duplicates: _Duplicates | None = None


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
    try:
        if document.stat().st_size > MOST_BYTES:
            return None
        found = msgspec.json.decode(document.read_bytes(), type=_Audit)
    except (OSError, *UNREADABLE):  # it is being written, or is another program's
        return None
    rates = list(found.rates.items())[:SHOWN_RATES]
    rows = [_row(name.replace("_", " "), one) for name, one in rates]
    return {
        "title": _text(f"Audit of {found.environment}"),
        "columns": list(COLUMNS),
        "rows": [[_text(cell) for cell in row] for row in rows],
        "notes": [_text(note) for note in _notes(found)],
    }


def _row(name: str, one: _Rate) -> list[str]:
    if one.found is None or not one.rows:
        return [name, "unobserved", "", "", f"{one.tried:,}", f"{one.suspect:,}"]
    share, interval = f"{one.found / one.rows:.1%}", _interval(one.low, one.high)
    return [name, f"{one.found:,} of {one.rows:,}", share, interval, f"{one.tried:,}", f"{one.suspect:,}"]


def _notes(found: _Audit) -> Iterator[str]:
    rows = found.input
    yield f"{rows.sampled:,} of {rows.rows:,} rows of {rows.name}; replies of version {found.audit}"
    yield f"made {found.made}"
    if found.judged:
        yield f"{found.judged:,} replies were decided by a model in a role: nothing is said of them"
    if found.unobserved:
        yield f"unobserved: {', '.join(found.unobserved[:SHOWN_RATES])}"
    if found.duplicates is not None:
        yield from _overlaps(found.duplicates)
    hard = found.difficulty
    if hard is None:
        return
    if hard.pass_rate is not None:
        passed = f"{hard.model} passes {hard.pass_rate:.1%} ({_interval(hard.low, hard.high)}) of the rows"
        yield f"{passed}, {hard.tries} tries each; {hard.failed:,} rollouts failed"
    share = _interval(hard.signal_low, hard.signal_high)
    yield f"rewards differ in {hard.signal:,} of {hard.signal_rows:,} rows ({share})"
    tenths = (f"{place * 10} %: {count:,}" for place, count in enumerate(hard.tenths[:10]) if count)
    yield f"rows by pass rate, from: {', '.join(tenths)}"
    if hard.length_p50 is not None and hard.length_p95 is not None:
        yield f"half write at most {hard.length_p50:,.0f} tokens, 95 % at most {hard.length_p95:,.0f}"


def _overlaps(found: _Duplicates) -> Iterator[str]:
    if found.within:
        yield f"{found.within:,} of {found.prompts:,} prompts have a near-duplicate"
    for name, one in list(found.against.items())[:SHOWN_RATES]:
        yield f"{name} has {one.contains:,} of {found.prompts:,} prompts, and parts of {one.touches:,}"
    if found.not_compared:
        yield f"not compared with {len(found.not_compared)} published benchmarks, whose rows were not here"


def _interval(low: float | None, high: float | None) -> str:
    return "-" if low is None or high is None else f"{low:.1%} to {high:.1%}"


def _text(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"

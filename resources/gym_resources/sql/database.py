"""Where a named SQLite database is, and a connection to it that only reads."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

from gym_runtime import Asset, TaskError, assets

SHIPPED = Path(__file__).parent / "data"
MAX_HEAP_BYTES = 256 << 20
MAX_VALUE_BYTES = 1_000_000
LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: MAX_VALUE_BYTES,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 100_000,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 200,  # matching takes pattern times text steps
    sqlite3.SQLITE_LIMIT_VDBE_OP: 1_000_000,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
_NAME = re.compile(r"\w[\w .-]{0,127}")
_READS = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE}
_PRAGMAS = {"table_info", "table_xinfo", "table_list", "index_list", "index_info", "foreign_key_list"}
_FUNCTIONS_DENIED = {"load_extension", "readfile", "writefile", "edit", "fts3_tokenizer"}


def is_name(name: str) -> bool:
    """Whether a text is a valid name of a database: a name, never a path."""
    return _NAME.fullmatch(name) is not None


def find(name: str, asset: Asset, environment: str) -> Path:
    """The file of a database: ``NAME.sqlite`` of the asset (or ``NAME/NAME.sqlite``), or one of the small
    ones that are shipped as SQL text.

    Raises:
        TaskError: the name is invalid.
        AssetMissing: the database is missing.
    """
    if not is_name(name):
        raise TaskError(f"{name[:200]!r} is not the name of a database")
    shipped = SHIPPED / f"{name}.sql"
    place = assets.folder(asset)
    nested = f"{name}/{name}.sqlite"
    if shipped.is_file() and not (place / f"{name}.sqlite").is_file():
        return shipped
    file = nested if (place / nested).is_file() else f"{name}.sqlite"
    return assets.find(asset, environment, file)[0]


@contextmanager
def reading(source: Path | str) -> Generator[sqlite3.Connection]:
    """A connection that can only read a database: a file, or SQL text, which is loaded into memory first.

    A file is opened in place and as immutable: a copy in memory would cost more and protect no better.
    """
    if isinstance(source, Path) and source.suffix == ".sql":
        source = source.read_text("utf-8")
    text = isinstance(source, str)
    where = ":memory:" if text else f"{source.absolute().as_uri()}?mode=ro&immutable=1"
    with closing(sqlite3.connect(where, uri=True)) as connection:
        if text:
            connection.executescript(source)
        connection.execute(f"PRAGMA hard_heap_limit = {MAX_HEAP_BYTES}")
        for limit, value in LIMITS.items():
            connection.setlimit(limit, value)
        connection.text_factory = _text
        connection.set_authorizer(_authorize)
        yield connection


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    """The authorizer that SQLite calls for every action of a statement while it compiles it."""
    allowed = (
        action in _READS
        or (action == sqlite3.SQLITE_FUNCTION and (second or "").lower() not in _FUNCTIONS_DENIED)
        or (action == sqlite3.SQLITE_PRAGMA and (first or "").lower() in _PRAGMAS)
    )
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY

"""Where a named SQLite database is, and a connection to it that only reads."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

from gym_runtime.errors import ResourceError, TaskError

SHIPPED = Path(__file__).parent / "data"
MAX_HEAP_BYTES = 2 << 30
MAX_VALUE_BYTES = 1_000_000
_NAME = re.compile(r"\w[\w .-]{0,127}")
_READS = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE}
_PRAGMAS = {"table_info", "table_xinfo", "table_list", "index_list", "index_info", "foreign_key_list"}
_FUNCTIONS_DENIED = {"load_extension", "readfile", "writefile", "edit", "fts3_tokenizer"}


def find(name: str, variable: str) -> Path:
    """The file of a database: ``NAME.sqlite`` in the directory that an environment variable names (or
    ``NAME/NAME.sqlite`` there), or one of the small ones that are shipped as SQL text.

    Raises:
        TaskError: the name is none.
        ResourceError: there is no such database.
    """
    if not _NAME.fullmatch(name):
        raise TaskError(f"{name[:200]!r} is not the name of a database")
    directory = os.environ.get(variable)
    candidates = [SHIPPED / f"{name}.sql"]
    if directory:
        folders = Path(directory), Path(directory, name)
        candidates = [folder / f"{name}.{end}" for folder in folders for end in ("sqlite", "db")] + candidates
    for path in candidates:
        if path.is_file():
            return path
    where = f"is not in {directory}" if directory else "is not shipped"
    raise ResourceError(
        f"the database '{name}' {where}: download it and let {variable} name the directory of {name}.sqlite"
    )


@contextmanager
def reading(path: Path) -> Generator[sqlite3.Connection]:
    """A connection that can do nothing but read this database; SQL text is loaded into memory first.

    A file is opened where it is, as one that never changes: a copy in memory would cost more and protect
    no better.
    """
    text = path.suffix == ".sql"
    where = ":memory:" if text else f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    with closing(sqlite3.connect(where, uri=True)) as connection:
        if text:
            connection.executescript(path.read_text("utf-8"))
        connection.execute(f"PRAGMA hard_heap_limit = {MAX_HEAP_BYTES}")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1000)
        connection.text_factory = _text
        connection.set_authorizer(_authorize)
        yield connection


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    """Ask for every step of a statement while it is compiled."""
    allowed = (
        action in _READS
        or (action == sqlite3.SQLITE_FUNCTION and (second or "").lower() not in _FUNCTIONS_DENIED)
        or (action == sqlite3.SQLITE_PRAGMA and (first or "").lower() in _PRAGMAS)
    )
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY

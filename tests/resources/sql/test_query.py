from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from gym_resources.sql import database
from gym_resources.sql.query import MAX_BYTES, QueryFailed, execute
from gym_runtime.errors import ResourceError, TaskError

VARIABLE = "GYM_TEST_DATABASES"
QUAY = database.find("quay", VARIABLE)


def test_a_query_gives_columns() -> None:
    assert execute(QUAY, "SELECT ship_id, name FROM ship WHERE owner_id = 2; -- done", 5).columns == [
        [3, 7],
        ["Patience", "Old Kate"],
    ]
    assert execute(QUAY, "SELECT * FROM ship WHERE 0", 5).columns == [[], [], [], [], []]
    assert execute(QUAY, "SELECT CAST(x'61ff' AS TEXT)", 5).columns == [["a\ufffd"]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("", "it gives no result"),
        ("-- nothing", "it gives no result"),
        ("SELEC 1", "syntax error"),
        ("SELECT 1; SELECT 2", "one statement at a time"),
        ("SELECT name FROM nowhere", "no such table"),
        ("SELECT ?", "bindings"),
        ("SELECT '\ud800'", "UnicodeEncodeError"),
        ("DELETE FROM ship", "not authorized"),
        ("INSERT INTO owner VALUES (9, 'x', 'y')", "not authorized"),
        ("CREATE TEMP TABLE mine AS SELECT 1", "not authorized"),
        ("ATTACH '/etc/passwd' AS other", "not authorized"),
        ("VACUUM INTO '/tmp/copy'", "authorization denied"),
        ("PRAGMA query_only = 0", "not authorized"),
        ("SELECT load_extension('x')", "not authorized"),
        ("SELECT length(zeroblob(100000000))", "too big"),
        (
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
            "longer than 0.2 s",
        ),
        ("SELECT 1 FROM cargo a, cargo b, cargo c, cargo d, cargo e, cargo f", "more than 1000000 values"),
        ("SELECT hex(zeroblob(400000)) FROM cargo a, cargo b", f"{MAX_BYTES} bytes"),
    ],
)
def test_what_cannot_be_executed_fails_with_the_reason(sql: str, message: str) -> None:
    limit_s = 0.2 if "0.2 s" in message else 20
    with pytest.raises(QueryFailed, match=message):
        execute(QUAY, sql, limit_s)


def test_a_query_may_ask_for_the_tables() -> None:
    assert execute(QUAY, "PRAGMA table_info(owner)", 5).columns[1] == ["owner_id", "name", "town"]
    assert execute(QUAY, "SELECT count(*) FROM sqlite_master WHERE type = 'table'", 5).columns == [[4]]


def test_databases_are_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ResourceError, match=f"'Mine' is not shipped: .* {VARIABLE} .* Mine.sqlite"):
        database.find("Mine", VARIABLE)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(ResourceError, match="'Mine' is not in "):
        database.find("Mine", VARIABLE)
    file = tmp_path / "Mine.sqlite"
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript("CREATE TABLE t (a); INSERT INTO t VALUES (1);")
    before = file.read_bytes()
    assert database.find("Mine", VARIABLE) == file
    assert execute(file, "SELECT a FROM t", 5).columns == [[1]]
    with pytest.raises(QueryFailed, match="not authorized"):
        execute(file, "UPDATE t SET a = 2", 5)
    assert file.read_bytes() == before
    assert database.find("quay", VARIABLE) == QUAY
    names = ("../Mine", "/etc/passwd", "", ".", "..", "~/Mine", "Mine\0", "file:Mine", "Mine\n", "x" * 129)
    for name in names:
        with pytest.raises(TaskError, match="is not the name of a database"):
            database.find(name, VARIABLE)

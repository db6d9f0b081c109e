from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from gym_resources.sql import database
from gym_resources.sql.query import MAX_BYTES, QueryFailed, execute
from gym_runtime.assets import Asset
from gym_runtime.errors import AssetMissing, TaskError
from tables import table

VARIABLE = "GYM_TEST_DATABASES"
ASSET = Asset(
    name="test-databases", description="databases", licence="MIT", setting=VARIABLE, page="over there"
)
QUAY = database.SHIPPED / "quay.sql"


def test_a_query_gives_columns() -> None:
    assert execute(QUAY, "SELECT ship_id, name FROM ship WHERE owner_id = 2; -- done", 5).columns == [
        [3, 7],
        ["Patience", "Old Kate"],
    ]
    assert execute(QUAY, "SELECT * FROM ship WHERE 0", 5).columns == [[], [], [], [], []]
    assert execute(QUAY, "SELECT CAST(x'61ff' AS TEXT)", 5).columns == [["a\ufffd"]]


@pytest.mark.slow
@table(
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


def doubled(levels: int) -> str:
    """A query that names 2^levels tables, without any being long."""
    tables = "".join(f", t{n} AS (SELECT 1 AS x FROM t{n - 1} a, t{n - 1} b)" for n in range(1, levels))
    return f"WITH t0 AS (SELECT 1 AS x){tables} SELECT count(*) FROM t{levels - 1}"


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
LONG = "replace(hex(zeroblob(490000)), '0', 'a')"
HOSTILE = {
    "tables that double": doubled(40),
    "64 joins": f"SELECT 1 FROM {', '.join(f'ship s{n}' for n in range(64))}",
    "like": f"SELECT {LONG} LIKE '{'%a' * 99}%b'",
    "glob": f"SELECT {LONG} GLOB '{'*a' * 99}*b'",
    "a long pattern": f"SELECT {LONG} LIKE '{'%a' * 400}'",
    "brackets": f"SELECT {'(' * 40_000}",
    "a megabyte": f"SELECT '{'x' * 1_000_000}'",
    "many values": f"SELECT 1 FROM ship WHERE ship_id IN ({','.join('1' * 45_000)})",
    "text without end": f"{ENDLESS} SELECT group_concat(i) FROM n",
    "a sort without end": f"{ENDLESS} SELECT i FROM n ORDER BY hex(i)",
    "a blob": "SELECT zeroblob(2000000000)",
    "a large array": f"SELECT json_group_array({LONG}) FROM cargo a, cargo b",
    "an attached file": "ATTACH DATABASE ':memory:' AS other",
    "a setting": "PRAGMA hard_heap_limit = 0",
    "a file that is read": "SELECT readfile('/etc/passwd')",
}


EACH_IN_A_FORK = """
import json, os, sys, time
from pathlib import Path
from gym_resources.sql.query import QueryFailed, execute

for name, sql in json.load(sys.stdin).items():
    if os.fork() == 0:
        try:
            execute(Path(sys.argv[1]), sql, 0.5)
        except QueryFailed:
            pass
        peak = Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]
        print(json.dumps([name, time.process_time(), int(peak)]), flush=True)
        os._exit(0)
    assert os.wait()[1] == 0, name
"""


@pytest.mark.slow
def test_hostile_queries_end_soon_and_take_little() -> None:
    """Each in its own process: what SQLite took stands in that one's size.

    `ru_maxrss` would not do: a process inherits it from the one that started it.
    """
    command = [sys.executable, "-c", EACH_IN_A_FORK, str(QUAY)]
    run = subprocess.run(command, input=json.dumps(HOSTILE), capture_output=True, text=True, check=True)
    told = [json.loads(line) for line in run.stdout.splitlines()]
    assert [name for name, _, _ in told] == list(HOSTILE)
    assert {name: seconds for name, seconds, _ in told if seconds >= 8} == {}
    assert {name: kilobytes for name, _, kilobytes in told if kilobytes >= 500_000} == {}


def test_databases_are_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GYM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(VARIABLE, raising=False)
    said = rf"Mine\.sqlite .* download it from over there and set {VARIABLE} to a folder"
    with pytest.raises(AssetMissing, match=said):
        database.find("Mine", ASSET, "env")
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(AssetMissing, match=rf"Mine\.sqlite .* is not in {tmp_path}"):
        database.find("Mine", ASSET, "env")
    file = tmp_path / "Mine.sqlite"
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript("CREATE TABLE t (a); INSERT INTO t VALUES (1);")
    before = file.read_bytes()
    assert database.find("Mine", ASSET, "env") == file
    assert execute(file, "SELECT a FROM t", 5).columns == [[1]]
    with pytest.raises(QueryFailed, match="not authorized"):
        execute(file, "UPDATE t SET a = 2", 5)
    assert file.read_bytes() == before
    assert database.find("quay", ASSET, "env") == QUAY
    (tmp_path / "Yours").mkdir()
    (tmp_path / "Yours/Yours.sqlite").touch()
    assert database.find("Yours", ASSET, "env") == tmp_path / "Yours/Yours.sqlite"
    names = ("../Mine", "/etc/passwd", "", ".", "..", "~/Mine", "Mine\0", "file:Mine", "Mine\n", "x" * 129)
    for name in names:
        with pytest.raises(TaskError, match="is not the name of a database"):
            database.find(name, ASSET, "env")

"""Appended files hold whole lines, whatever the disk does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from gym_runtime.errors import UsageError
from gym_runtime.files import appender as module
from gym_runtime.files.appender import Appender, repair_tail, write_whole
from hypothesis import given
from hypothesis import strategies as st

ROWS = [b'{"a": 1}', '{"b": "é ü \\" }{"}'.encode(), b'{"c": {"d": [1, 2]}}']


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o027)
    yield
    os.umask(before)


def test_lines_are_appended_in_order(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(ROWS[0] + b"\n")
    appender = Appender(path)
    appender.append(ROWS[1])
    appender.append(ROWS[2])
    appender.close()
    assert path.read_bytes().splitlines() == ROWS


@pytest.mark.usefixtures("umask")
def test_the_mode_is_what_the_umask_says(tmp_path: Path) -> None:
    Appender(tmp_path / "out.jsonl").close()
    assert (tmp_path / "out.jsonl").stat().st_mode & 0o777 == 0o640


def test_not_everybody_may_write_it_whatever_the_umask_says(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        Appender(tmp_path / "out.jsonl").close()
        write_whole(tmp_path / "out_run.json", iter([b"{}"]))
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"out.jsonl": 0o664, "out_run.json": 0o664}


def test_lines_wait_a_moment_and_then_go_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now_s)
    path = tmp_path / "out.jsonl"
    appender = Appender(path)
    appender.append(ROWS[0])
    assert path.read_bytes().splitlines() == ROWS[:1]
    appender.append(ROWS[1])
    assert path.read_bytes().splitlines() == ROWS[:1]
    now_s += module.FLUSH_S
    appender.append(ROWS[2])
    assert path.read_bytes().splitlines() == ROWS
    appender.append(b" " * module.FLUSH_BYTES)
    assert path.stat().st_size > module.FLUSH_BYTES
    appender.append(ROWS[0])
    appender.flush()
    assert path.read_bytes().endswith(ROWS[0] + b"\n")
    appender.close()


def test_it_is_synced_every_few_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    synced: list[float] = []
    monkeypatch.setattr(module.time, "monotonic", lambda: now_s)
    monkeypatch.setattr(module.os, "fsync", lambda _: synced.append(now_s))
    appender = Appender(tmp_path / "out.jsonl")
    for _ in range(120):
        appender.append(ROWS[0])
        now_s += 0.1
    assert len(synced) == 2
    appender.close()
    assert len(synced) == 3


def test_a_row_of_several_lines_becomes_one(tmp_path: Path) -> None:
    appender = Appender(tmp_path / "out.jsonl")
    appender.append(b'{\n  "a": "x y",\n  "b": 2\n}')
    appender.close()
    assert (tmp_path / "out.jsonl").read_bytes() == b'{"a":"x y","b":2}\n'


def test_a_full_device_is_one_line_and_stays_one() -> None:
    appender = Appender(Path("/dev/full"))
    with pytest.raises(UsageError, match=r"disk full at /dev/full; .*--resume"):
        appender.append(ROWS[0])
    with pytest.raises(UsageError, match="disk full"):
        appender.append(ROWS[0])
    with pytest.raises(UsageError, match="disk full"):
        appender.flush()
    appender.close()


def test_a_file_that_was_deleted_is_not_written_on(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    appender = Appender(path)
    appender.append(ROWS[0])
    path.unlink()
    appender.append(ROWS[1])
    for refused in (appender.sync, appender.flush):
        with pytest.raises(UsageError, match=r"out\.jsonl was deleted while it was written"):
            refused()
    appender.close()


FILL = """
import resource, sys
from pathlib import Path
from gym_runtime.errors import UsageError
from gym_runtime.files.appender import Appender
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
appender = Appender(Path(sys.argv[1]))
try:
    for number in range(100):
        appender.append(b'{"number": %d}' % number)
        if number % 7 == 0:
            appender.flush()
except UsageError as error:
    print(error)
appender.close()
"""


def test_a_line_that_does_not_fit_is_taken_back(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    ran = subprocess.run([sys.executable, "-c", FILL, str(path)], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith(f"disk full at {path}; what is written is complete")
    rows = path.read_bytes()
    assert rows.endswith(b"}\n")
    assert rows.splitlines() == [b'{"number": %d}' % number for number in range(len(rows.splitlines()))]
    assert 1000 - len(rows) < 20


def test_what_cannot_be_opened_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write"):
        Appender(tmp_path / "none" / "out.jsonl")


def test_a_tail_torn_at_any_byte_loses_no_earlier_row(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    whole = b"".join(row + b"\n" for row in ROWS)
    ends = [sum(len(row) + 1 for row in ROWS[:count]) for count in range(len(ROWS) + 1)]
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        dropped = repair_tail(path)
        complete = sum(length >= end - 1 for end in ends[1:])
        assert path.read_bytes() == whole[: ends[complete]]
        assert dropped == max(0, length - ends[complete])
        assert repair_tail(path) == 0


@given(st.binary(min_size=1, max_size=40))
def test_whatever_a_crash_leaves_behind_is_cut_off(
    tmp_path_factory: pytest.TempPathFactory, torn: bytes
) -> None:
    path = tmp_path_factory.mktemp("tail") / "out.jsonl"
    whole = b"".join(row + b"\n" for row in ROWS)
    path.write_bytes(whole + torn.replace(b"\n", b"x"))
    repair_tail(path)
    assert path.read_bytes().startswith(whole)
    assert path.read_bytes().endswith(b"}\n")


def test_long_lines_are_cut_off_whole(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(ROWS[0] + b"\n" + b'{"x": "' + b"y" * 300_000)
    assert repair_tail(path) == 300_007
    assert path.read_bytes() == ROWS[0] + b"\n"
    path.write_bytes(b"\0" * 200_000)
    assert repair_tail(path) == 200_000
    path.write_bytes(b"")
    assert repair_tail(path) == 0

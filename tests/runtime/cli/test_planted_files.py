"""Commands in a folder where somebody has put links, pipes and indices at the names that they use."""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gym_runtime.cli.main import run
from gym_runtime.files.results import Manifest
from gym_view.indexing import index_of

pytestmark = pytest.mark.slow

PRECIOUS = b"not the runtime's\n"
BROKER = ("--nats", "nats://127.0.0.1:1")  # never reached


def write_rows(path: Path, reward: float) -> None:
    rows: list[dict[str, Any]] = [
        {
            "responses_create_params": {"input": f"task {task}"},
            "response": {"id": f"r{task}", "output": []},
            "reward": reward,
            "_ng_task_index": task,
            "_ng_rollout_index": 0,
            "agent_ref": {"name": "mcqa"},
        }
        for task in range(4)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def index_beside(rows: Path, records: bytes) -> None:
    """An index as earlier versions wrote it beside the rows, and believed."""
    start = rows.read_bytes()[:4096]
    header = struct.pack("<8sIIII32x", b"GYMINDEX", 1, 56, zlib.crc32(start), len(start))
    rows.with_name(rows.name + ".idx").write_bytes(header + records)


def snapshot(folder: Path) -> dict[str, object]:
    """What is in a folder; a pipe has no content to read."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() else None
        found[str(path)] = (status.st_mode, status.st_nlink, content, path.is_symlink() and os.readlink(path))
    return found


def symbolic(path: Path, victim: Path) -> None:
    path.symlink_to(victim)


def hard(path: Path, victim: Path) -> None:
    path.hardlink_to(victim)


def pipe(path: Path, victim: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize("trap", [symbolic, hard, pipe])
@pytest.mark.parametrize("name", ["out.jsonl", "out_failures.jsonl", "out_run.json", ".out.lock"])
@pytest.mark.parametrize("flag", [[], ["--resume"], ["--overwrite"]], ids=["new", "resume", "overwrite"])
def test_run_refuses_links_at_its_own_names_and_changes_nothing(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    trap: Callable[[Path, Path], None],
    flag: list[str],
) -> None:
    (tmp_path / "elsewhere").mkdir()
    victim = tmp_path / "elsewhere" / "victim"
    victim.write_bytes(PRECIOUS)
    if name != "out.jsonl":
        write_rows(tmp_path / "out.jsonl", 1.0)
    if name != "out_run.json":
        Manifest(run="r", digest="d", rows=4, rollouts=4, settings={}).save(tmp_path / "out_run.json")
    trap(tmp_path / name, victim)
    before = snapshot(tmp_path)
    assert run(["run", "mcqa", "-o", str(tmp_path / "out.jsonl"), *flag]) == 2
    assert snapshot(tmp_path) == before
    (said,) = capsys.readouterr().err.splitlines()
    assert name in said
    assert "remove" in said or "choose another" in said or "name a" in said or "not a regular file" in said


@pytest.mark.parametrize("trap", [symbolic, hard, pipe])
def test_gateway_refuses_a_link_for_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], trap: Callable[[Path, Path], None]
) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b'{"torn')
    trap(tmp_path / "calls.jsonl", victim)
    before = snapshot(tmp_path)
    assert run(["gateway", "-o", str(tmp_path / "calls.jsonl"), *BROKER]) == 2
    assert snapshot(tmp_path) == before
    (said,) = capsys.readouterr().err.splitlines()
    assert "calls.jsonl is" in said
    assert "remove" in said


def test_gateway_cuts_nothing_off_a_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("first\nsecond")
    assert run(["gateway", "-o", str(tmp_path / "notes.txt"), *BROKER]) == 2
    assert (tmp_path / "notes.txt").read_text() == "first\nsecond"
    assert "notes.txt is not a file of JSON lines" in capsys.readouterr().err


def commands(folder: Path) -> list[list[str]]:
    rows = str(folder / "a.jsonl")
    return [
        ["compare", rows, rows, "--json"],
        ["view", rows, "--export", str(folder / "page.html")],
        ["show", f"{rows}:2.0"],
    ]


def test_reading_commands_do_not_touch_a_link_beside_the_rows(tmp_path: Path) -> None:
    write_rows(tmp_path / "a.jsonl", 0.0)
    (tmp_path / "victim").write_bytes(PRECIOUS)
    (tmp_path / "a.jsonl.idx").symlink_to("victim")
    for command in commands(tmp_path):
        assert run(command) == 0
    assert (tmp_path / "victim").read_bytes() == PRECIOUS


def test_figures_are_of_the_rows_and_not_of_an_index_beside_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "a.jsonl"
    write_rows(rows, 1.0)
    lie = index_of(rows)
    write_rows(rows, 0.0)
    index_beside(rows, lie)
    assert run(["compare", str(rows), str(rows), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["a"]["figures"]["mean_reward"] == 0


def test_an_index_of_nan_ends_no_command(tmp_path: Path) -> None:
    rows = tmp_path / "a.jsonl"
    write_rows(rows, 0.0)
    true = index_of(rows)
    nan = struct.pack("<d", float("nan"))
    # The name of the environment, then the rows: the offset of the second is none.
    index_beside(rows, true[:112] + nan + true[120:])
    for command in commands(tmp_path):
        assert run(command) == 0


def test_rows_are_read_through_a_link(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "real").mkdir()
    write_rows(tmp_path / "real" / "rows.jsonl", 1.0)
    (tmp_path / "a.jsonl").symlink_to("real/rows.jsonl")
    for command in commands(tmp_path):
        assert run(command) == 0
    assert [path.name for path in (tmp_path / "real").iterdir()] == ["rows.jsonl"]


def test_an_exported_page_replaces_a_page_and_follows_no_link(tmp_path: Path) -> None:
    write_rows(tmp_path / "a.jsonl", 1.0)
    (tmp_path / "victim").write_bytes(PRECIOUS)
    (tmp_path / "page.html").symlink_to("victim")
    assert run(commands(tmp_path)[1]) == 2
    assert (tmp_path / "victim").read_bytes() == PRECIOUS

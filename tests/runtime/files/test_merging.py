"""Files of several runs become those of one."""

from __future__ import annotations

import codecs
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gym_runtime.cli import main
from gym_runtime.files.appender import write_whole
from gym_runtime.files.results import OutputFiles, ResultWriter
from gym_runtime.files.run_metrics import Metrics
from gym_runtime.messages.outcomes import RolloutRecord

Record = Callable[..., RolloutRecord]


def write(path: Path, *records: RolloutRecord) -> Path:
    files = OutputFiles.beside(path)
    with ResultWriter(files) as writer:
        for record in records:
            writer.write(record)
    asked: dict[str, Any] = {"a": 1, "responses_create_params": {}}
    lines = [
        json.dumps(
            {**asked, "_ng_task_index": one.task_index, "_ng_rollout_index": one.rollout_index}
        ).encode()
        for one in records
    ]
    write_whole(files.materialized_inputs, iter(line + b"\n" for line in dict.fromkeys(lines)))
    return path


def merge(*arguments: Any) -> int:
    return main.run(["merge", *map(str, arguments)])


def test_one_row_per_rollout_and_metrics_of_all(
    tmp_path: Path, record: Record, failure: Record, capsys: pytest.CaptureFixture[str]
) -> None:
    a = write(tmp_path / "a.jsonl", record(0), record(1, reward=0.0), failure(2), failure(3))
    b = write(tmp_path / "b.jsonl", record(1, reward=0.0), record(2), failure(3), failure(3, kind="task"))
    assert merge(a, b, "-o", tmp_path / "c.jsonl", "--json") == 0
    out, err = capsys.readouterr()
    assert merge(a, b, "-o", tmp_path / "c.jsonl", "--overwrite", "--fail-on-failures") == 1
    capsys.readouterr()
    summary = json.loads(out)["summary"]
    assert summary["outcomes"] == {"completed": 3, "truncated": 0, "failed": 1, "cancelled": 0}
    assert summary["failures"] == {"task": 1}
    assert summary["mean_reward"] == pytest.approx(2 / 3)
    assert "1 row was in more than one file; 1 failed rollout has a row in another file\n" in err
    merged = OutputFiles.beside(tmp_path / "c.jsonl")
    rows = [record(0), record(1, reward=0.0), record(2)]
    assert merged.rollouts.read_bytes() == b"".join(bytes(row.row) + b"\n" for row in rows)
    assert len(merged.failures.read_bytes().splitlines()) == 2
    assert len(merged.materialized_inputs.read_bytes().splitlines()) == 4
    whole = Metrics()
    for one in (*rows, failure(3, kind="task")):
        whole.add(one)
    assert merged.aggregate_metrics.read_bytes() == b"".join(whole.aggregate())
    assert not merged.manifest.exists()


def test_a_byte_order_mark_before_a_file_is_no_part_of_its_first_row(tmp_path: Path, record: Record) -> None:
    a, b = write(tmp_path / "a.jsonl", record(0)), write(tmp_path / "b.jsonl", record(1))
    for path in (a, OutputFiles.beside(b).materialized_inputs):
        path.write_bytes(codecs.BOM_UTF8 + path.read_bytes())
    assert merge(a, b, "-o", tmp_path / "c.jsonl") == 0
    merged = OutputFiles.beside(tmp_path / "c.jsonl")
    assert merged.rollouts.read_bytes() == b"".join(bytes(record(one).row) + b"\n" for one in (0, 1))
    assert [json.loads(line)["a"] for line in merged.materialized_inputs.read_bytes().splitlines()] == [1, 1]


def test_two_different_rows_of_one_rollout_are_refused(
    tmp_path: Path, record: Record, capsys: pytest.CaptureFixture[str]
) -> None:
    a = write(tmp_path / "a.jsonl", record(0), record(1))
    b = write(tmp_path / "b.jsonl", record(2), record(1, text="other"))
    assert merge(a, b, "-o", tmp_path / "c.jsonl") == 2
    assert f"{a}:2 and {b}:2 are different rows with the same numbers" in capsys.readouterr().err
    assert not (tmp_path / "c.jsonl").exists()


def test_what_cannot_be_merged_is_one_line(
    tmp_path: Path, record: Record, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = (write(tmp_path / f"{name}.jsonl", record(number)) for number, name in enumerate("ab"))
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_text('{"x": 1}\n')
    for arguments, message in (
        ((a,), "merge needs two or more files: gym-runtime merge A.jsonl B.jsonl"),
        ((a, tmp_path / "none.jsonl"), "none.jsonl"),
        ((a, a), "is named twice"),
        ((a, wrong), "wrong.jsonl:1 is no row ("),
    ):
        assert merge(*arguments, "-o", tmp_path / "c.jsonl") == 2
        assert message in capsys.readouterr().err
    assert merge(a, b, "-o", a) == 2
    assert "would be read and written" in capsys.readouterr().err
    assert merge(a, b, "-o", tmp_path / "c.jsonl") == 0
    assert merge(a, b, "-o", tmp_path / "c.jsonl") == 2
    assert "has content already" in capsys.readouterr().err
    assert merge(a, b, "-o", tmp_path / "c.jsonl", "--overwrite") == 0


@pytest.mark.parametrize("end", [b"", b"\n", b"\n\n"])
def test_a_torn_last_line_is_left_out_and_told(
    end: bytes, tmp_path: Path, record: Record, failure: Record, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = write(tmp_path / "a.jsonl", record(0), failure(5)), write(tmp_path / "b.jsonl", record(1))
    torn = (a, OutputFiles.beside(a).failures, OutputFiles.beside(b).materialized_inputs)
    for path in torn:
        path.write_bytes(path.read_bytes() + bytes(record(2).row)[:40] + end)
    assert merge(a, b, "-o", tmp_path / "c.jsonl") == 0
    told = capsys.readouterr().err
    for path in torn:
        assert told.count(f"{path}: the last line is torn, or still being written; it does not count\n") == 1
    merged = OutputFiles.beside(tmp_path / "c.jsonl")
    assert merged.rollouts.read_bytes() == b"".join(bytes(record(one).row) + b"\n" for one in (0, 1))
    for path, rows in ((merged.failures, 1), (merged.materialized_inputs, 3)):
        assert len(path.read_bytes().splitlines()) == rows
    a.write_bytes(b"\n".join((b'{"torn": ', bytes(record(0).row), b"")))
    assert merge(a, b, "-o", tmp_path / "d.jsonl") == 2
    assert f"{a}:1 is no row (" in capsys.readouterr().err
    a.write_bytes(bytes(record(0).row) + b'\n{"_ng_task_index": {}}\n')
    assert merge(a, b, "-o", tmp_path / "d.jsonl") == 2
    assert f"{a}:2 is no row (" in capsys.readouterr().err
    a.write_bytes(b"no rows\n")
    assert merge(a, b, "-o", tmp_path / "d.jsonl") == 2
    assert f"{a}:1 is no row (" in capsys.readouterr().err


_WITHOUT_ROOM = """
import resource, sys
from gym_runtime.cli import main

resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
sys.exit(main.run(sys.argv[2:]))
"""


@pytest.mark.slow
def test_what_is_replaced_stays_until_all_of_the_new_is_written(
    tmp_path: Path, record: Record, failure: Record
) -> None:
    a, b = write(tmp_path / "a.jsonl", record(0), failure(5)), write(tmp_path / "b.jsonl", record(1))
    c = write(tmp_path / "c.jsonl", record(7), failure(8))
    manifest = OutputFiles.beside(c).manifest
    manifest.write_text("{}")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    rows = len(record(0).row) + len(record(1).row) + 2
    # In the second case the rollouts fit, and the metrics, which come last, do not. Without -B Python would
    # leave cut files of its own.
    for room in (10, rows):
        command = [sys.executable, "-Bc", _WITHOUT_ROOM, str(room), "merge", str(a), str(b), "--overwrite"]
        done = subprocess.run([*command, "-o", str(c)], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert "File too large" in done.stderr
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert merge(a, b, "-o", c, "--overwrite") == 0
    assert not manifest.exists()
    assert sorted(path.name for path in tmp_path.glob("*c*")) == [
        "c.jsonl",
        "c_aggregate_metrics.json",
        "c_failures.jsonl",
        "c_materialized_inputs.jsonl",
    ]

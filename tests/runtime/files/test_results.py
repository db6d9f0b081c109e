"""The run's files: their names, which record goes where, and what a failure row says."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gym_runtime.errors import Fault, UsageError
from gym_runtime.files.appender import write_whole
from gym_runtime.files.results import InputWriter, OutputFiles, ResultWriter, count_lines, failure_class
from gym_runtime.files.rows import expand, materialize
from gym_runtime.messages.outcomes import Cancelled, Completed, LeftOut, RolloutRecord, Truncated
from gym_runtime.messages.rollout_spec import LONG_ROW_BYTES
from gym_testing.small_system import rollout_spec
from msgspec import Raw

Record = Callable[..., RolloutRecord]


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("name", ["out.jsonl", "out", "out.json"])
def test_the_names_are_nemo_gyms(name: str, tmp_path: Path) -> None:
    files = OutputFiles.beside(tmp_path / "new" / "folder" / name)
    assert [path.name for path in files.all()] == [
        name,
        "out_failures.jsonl",
        "out_materialized_inputs.jsonl",
        "out_aggregate_metrics.json",
        "out_reward_profiling.jsonl",
        "out_alarms.jsonl",
        "out_run.json",
    ]
    assert files.rollouts.parent.is_dir()
    assert OutputFiles.beside(tmp_path / "run.v2.jsonl").failures.name == "run.v2_failures.jsonl"


def test_outputs_that_cannot_be_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a directory"):
        OutputFiles.beside(tmp_path)
    with pytest.raises(UsageError, match="not a regular file"):
        OutputFiles.beside("/dev/null")
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot create"):
        OutputFiles.beside(tmp_path / "file" / "out.jsonl")
    files = OutputFiles.beside(tmp_path / "out.jsonl")
    files.refuse_inputs(tmp_path / "in.jsonl")
    for same in (tmp_path / "x" / ".." / "out.jsonl", files.failures):
        with pytest.raises(UsageError, match="would be read and written"):
            files.refuse_inputs(same)


def test_verdicts_and_failures_go_to_their_files(tmp_path: Path, record: Record, failure: Record) -> None:
    files = OutputFiles.beside(tmp_path / "out.jsonl")
    cut = record(1, outcome=Truncated(reason="max_turns"), reward=0.0)
    with ResultWriter(files) as writer:
        writer.write(record(0))
        assert not files.failures.exists()
        for other in (cut, failure(2, attempt=3), record(3, outcome=Cancelled(), reward=None)):
            writer.write(other)
        writer.flush()
        assert count_lines(files.rollouts) == 2
    assert files.rollouts.read_bytes() == bytes(record(0).row) + b"\n" + bytes(cut.row) + b"\n"
    lost, stopped = rows(files.failures)
    assert (lost["_ng_task_index"], lost["_ng_failure_class"], lost["_ng_attempt_index"]) == (2, "model", 2)
    assert lost["_ng_failure"]["message"] == "gone"
    assert "reward" not in lost
    assert (stopped["_ng_failure_class"], stopped["_ng_failure_terminal"]) == ("cancelled", False)


@pytest.mark.parametrize(
    ("kind", "stage", "name", "terminal"),
    [
        ("deadline", "agent", "timeout_exceeded", False),
        ("model", "verify", "judge_failed", False),
        ("model", "model", "model", False),
        ("task", "open", "task", True),
        ("transport", "", "transport", False),
        ("resource", "verify", "resource", False),
    ],
)
def test_failure_classes(
    kind: str, stage: str, name: str, terminal: bool, tmp_path: Path, failure: Record
) -> None:
    assert failure_class(Fault(kind=kind, stage=stage)) == name
    files = OutputFiles.beside(tmp_path / "out.jsonl")
    with ResultWriter(files) as writer:
        writer.write(failure(0, kind=kind, stage=stage))
    (row,) = rows(files.failures)
    assert (row["_ng_failure_class"], row["_ng_failure_terminal"]) == (name, terminal)
    assert ("_ng_failure_judge_error" in row) == (name == "judge_failed")


def test_a_failure_of_an_earlier_run_as_input_is_not_written_twice(tmp_path: Path, failure: Record) -> None:
    files = OutputFiles.beside(tmp_path / "out.jsonl")
    with ResultWriter(files) as writer:
        writer.write(failure(0, _ng_attempt_index=7))
    assert files.failures.read_bytes().count(b"_ng_attempt_index") == 1
    assert rows(files.failures)[0]["_ng_attempt_index"] == 0


def test_materialized_inputs_go_on_where_they_stopped(tmp_path: Path, line: Callable[..., bytes]) -> None:
    path = tmp_path / "in.jsonl"
    tasks = list(expand([line(count) for count in range(6)], run="r", environment="counting"))
    whole = b"".join(materialize(task) + b"\n" for task in tasks)
    for length in (0, 10, len(whole) // 2, len(whole) - 1, len(whole)):
        path.write_bytes(whole[:length])
        with InputWriter(path, resume=True) as writer:
            for task in tasks:
                writer.add(task)
        assert path.read_bytes() == whole
    with InputWriter(path) as writer:
        writer.add(tasks[0])
    assert count_lines(path) == 1


@pytest.mark.parametrize(("start", "size"), [(-1, 1), (5, -3), (0, 2**70), (2**70, 1), (30_000, 20_000)])
def test_a_place_outside_of_the_row_is_not_read(tmp_path: Path, start: int, size: int) -> None:
    line = msgspec.json.encode({"responses_create_params": {"input": "a" * 40_000}})
    made = RolloutRecord(
        run="run",
        task_index=0,
        rollout_index=0,
        environment="sample",
        outcome=Completed(),
        row=Raw(b'{"responses_create_params":{"input":"gym-input"}}'),
        left_out=LeftOut(start=start, size=size, crc32=0),
    )
    with InputWriter(tmp_path / "in.jsonl") as writer:
        assert writer.add(rollout_spec(line)).has_row
        writer.add(rollout_spec(line, task=1))
        with pytest.raises(msgspec.DecodeError, match="lacks its row's input"):
            writer.restored(made)


def test_a_long_row_is_in_the_file_before_its_task_is_published(tmp_path: Path) -> None:
    long, short = (msgspec.json.encode({"x": "a" * size}) for size in (LONG_ROW_BYTES, 10))
    written = b""
    with InputWriter(path := tmp_path / "in.jsonl") as writer:
        for task, line in enumerate([long, long, short, long]):
            spec = rollout_spec(line, task=task)
            assert writer.add(spec).has_row is (line is long)
            written += materialize(spec) + b"\n"
            assert line is short or path.read_bytes() == written


def test_a_row_that_is_not_in_the_file_as_it_is_travels_whole(tmp_path: Path) -> None:
    text = msgspec.json.encode({"x": "a" * LONG_ROW_BYTES})
    with InputWriter(tmp_path / "in.jsonl") as writer:
        for line in (b" " + text, text.replace(b":", b":\n")):
            assert not writer.add(rollout_spec(line)).has_row


def test_a_whole_file_is_written_or_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    write_whole(path, iter([b"old"]))

    def breaks() -> Iterator[bytes]:
        yield b"new"
        raise OSError(28, "No space left on device")

    with pytest.raises(UsageError, match="No space left"):
        write_whole(path, breaks())
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]

"""Going on with a run: the rest is exactly what is missing, and nothing is ever lost."""

from __future__ import annotations

import codecs
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gym_runtime.errors import Fault, UsageError
from gym_runtime.files.results import (
    Manifest,
    OutputFiles,
    ResultWriter,
    failure_row,
    load_manifest,
)
from gym_runtime.files.resume import MAX_FAILURES, Progress, start_run
from gym_runtime.files.rows import expand
from gym_runtime.files.run_metrics import Metrics
from gym_runtime.messages.outcomes import Cancelled, Failed, RolloutRecord
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_view.find import find_rollout
from gym_view.indexing import indexed
from hypothesis import given
from hypothesis import strategies as st

Record = Callable[..., RolloutRecord]
MakeRun = Callable[..., Manifest]


def make_tasks(rows: int, repeats: int = 1) -> list[RolloutSpec]:
    lines = [b'{"responses_create_params":{},"expected_count":%d}' % count for count in range(rows)]
    return list(expand(lines, run="r", environment="counting", repeats=repeats))


def keys(tasks: Any) -> list[tuple[int, int]]:
    return [(task.task_index, task.rollout_index) for task in tasks]


@pytest.fixture
def files(tmp_path: Path) -> OutputFiles:
    return OutputFiles.beside(tmp_path / "out.jsonl")


def write(files: OutputFiles, *records: RolloutRecord) -> None:
    with ResultWriter(files) as writer:
        for record in records:
            writer.write(record)


def go_on(files: OutputFiles, manifest: Manifest, metrics: Metrics | None = None) -> Progress:
    return start_run(files, manifest, resume=True, metrics=metrics or Metrics())


def test_a_new_run_starts_with_or_without_resume(files: OutputFiles, make_run: MakeRun) -> None:
    for resume in (False, True):
        progress = start_run(files, make_run(), resume=resume, metrics=Metrics())
        # There may be results and journals of a run that died before its first row.
        assert (len(progress), progress.previous) == (0, make_run() if resume else None)
        assert keys(progress.remaining(make_tasks(2))) == [(0, 0), (1, 0)]
    assert load_manifest(files.manifest) == make_run()


def test_rows_are_never_overwritten(
    files: OutputFiles, make_run: MakeRun, record: Record, failure: Record
) -> None:
    for written in (record(0), failure(0)):
        start_run(files, make_run(), resume=False, metrics=Metrics())
        write(files, written)
        before = {path: path.read_bytes() for path in files.all() if path.exists()}
        with pytest.raises(UsageError, match=r"has rows already; continue that run \(--resume\), or"):
            start_run(files, make_run(), resume=False, metrics=Metrics())
        assert {path: path.read_bytes() for path in files.all() if path.exists()} == before
        for path in files.all():
            path.unlink(missing_ok=True)


def test_rows_without_a_manifest_are_nobodys(files: OutputFiles, make_run: MakeRun, record: Record) -> None:
    write(files, record(0))
    with pytest.raises(UsageError, match=r"out_run\.json is missing"):
        go_on(files, make_run())


@pytest.mark.slow
@given(data=st.data())
def test_the_rest_is_exactly_what_is_missing(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, record: Record, make_run: MakeRun
) -> None:
    files = OutputFiles.beside(tmp_path_factory.mktemp("run") / "out.jsonl")
    tasks = make_tasks(data.draw(st.integers(1, 6)), data.draw(st.integers(1, 4)))
    done = data.draw(st.lists(st.sampled_from(keys(tasks)), unique=True))
    start_run(files, make_run(), resume=False, metrics=Metrics())
    write(files, *(record(*key) for key in done))
    metrics = Metrics()
    progress = go_on(files, make_run(), metrics)
    assert keys(progress.remaining(tasks)) == [key for key in keys(tasks) if key not in done]
    assert len(progress) == metrics.rollouts == len(done)


@pytest.mark.parametrize("torn", [b'{"_ng_task_index": 2, "_ng_ro', b"\0\0\0\0", b'{"a": 1}x\n', b"[]\n"])
def test_a_torn_row_is_made_again(torn: bytes, files: OutputFiles, make_run: MakeRun, record: Record) -> None:
    start_run(files, make_run(), resume=False, metrics=Metrics())
    write(files, record(0), record(1))
    with files.rollouts.open("ab") as file:
        file.write(torn)
    progress = go_on(files, make_run())
    assert keys(progress.remaining(make_tasks(3))) == [(2, 0)]
    assert progress.notices == [f"{files.rollouts}: dropped a torn last line of {len(torn)} bytes"]
    assert files.rollouts.read_bytes() == b"".join(bytes(record(index).row) + b"\n" for index in (0, 1))


@pytest.mark.slow
def test_a_run_torn_at_any_byte_is_completed_row_by_row(files: OutputFiles, record: Record) -> None:
    tasks = make_tasks(2, 2)
    whole = b"".join(bytes(record(*key, text="é\u2028").row) + b"\n" for key in keys(tasks))
    ends = [index for index, byte in enumerate(whole) if byte == 10]
    for length in range(len(whole) + 1):
        files.rollouts.write_bytes(whole[:length])
        progress = Progress()
        progress.read(files, Metrics())
        complete = sum(length >= end for end in ends)
        assert keys(progress.remaining(tasks)) == keys(tasks)[complete:]


@pytest.mark.parametrize("torn", [b"", b'{"_ng_task_index": 2, "_ng_ro'])
@pytest.mark.parametrize("count", [1, 2])
def test_an_editors_byte_order_mark_loses_no_row(
    count: int, torn: bytes, files: OutputFiles, make_run: MakeRun, record: Record
) -> None:
    start_run(files, make_run(), resume=False, metrics=Metrics())
    write(files, *(record(index) for index in range(count)))
    rows = files.rollouts.read_bytes()
    files.rollouts.write_bytes(codecs.BOM_UTF8 + rows + torn)
    progress = go_on(files, make_run())
    assert keys(progress.remaining(make_tasks(3))) == [(index, 0) for index in range(count, 3)]
    assert files.rollouts.read_bytes() == codecs.BOM_UTF8 + rows
    found = list(indexed(files.rollouts))
    assert [(row.entry.task, row.entry.rollout) for row in found] == [(index, 0) for index in range(count)]
    assert (found[0].offset, sum(row.size for row in found)) == (3, len(rows))
    assert find_rollout(f"{files.rollouts}:1", Path())[1] == rows[: rows.index(b"\n") + 1]


def test_a_broken_row_in_the_middle_stops_it(files: OutputFiles, make_run: MakeRun, record: Record) -> None:
    make_run().save(files.manifest)
    good = bytes(record(0).row) + b"\n"
    for bad in (b"nonsense\n", b"{}\n"):
        files.rollouts.write_bytes(good + bad + good)
        with pytest.raises(UsageError, match=r"out\.jsonl:2 is no rollout row"):
            go_on(files, make_run())
        assert files.rollouts.read_bytes() == good + bad + good
        files.rollouts.write_bytes(good)
        files.failures.write_bytes(bad + good)
        with pytest.raises(UsageError, match=r"out_failures\.jsonl:1 is no rollout row"):
            go_on(files, make_run())
        files.failures.unlink()


def test_failures_are_made_again_until_their_limit(
    files: OutputFiles, make_run: MakeRun, failure: Record, record: Record
) -> None:
    start_run(files, make_run(), resume=False, metrics=Metrics())
    stopped = record(4, reward=None, outcome=Cancelled())
    write(
        files,
        *[failure(0, attempt=3 * time) for time in range(1, MAX_FAILURES + 1)],
        failure(1, attempt=3),
        failure(2, kind="task"),
        failure(3),
        record(3, attempt=2),
        *[stopped] * (MAX_FAILURES + 1),
        *[failure(5)] * 300,
    )
    metrics = Metrics()
    progress = go_on(files, make_run(), metrics)
    again = list(progress.remaining(make_tasks(7)))
    assert [(task.task_index, task.attempt_base) for task in again] == [(1, 3), (4, 1), (6, 0)]
    assert [index for index in range(7) if progress.settled(index, 0)] == [0, 2, 3, 5]
    assert metrics.summary().outcomes == {"completed": 1, "truncated": 0, "failed": 3, "cancelled": 0}
    assert metrics.failures == {"model": 2, "task": 1}


@pytest.mark.parametrize("kind", ["transport", "model", "deadline"])
def test_outages_give_no_rollout_up(files: OutputFiles, make_run: MakeRun, record: Record, kind: str) -> None:
    fault = Fault(kind=kind, retryable=kind != "deadline")
    out = record(0, reward=None, outcome=Failed(fault=fault))
    start_run(files, make_run(), resume=False, metrics=Metrics())
    write(files, *[out] * (MAX_FAILURES + 2))
    metrics = Metrics()
    progress = go_on(files, make_run(), metrics)
    assert keys(progress.remaining(make_tasks(1))) == [(0, 0)]
    assert metrics.summary().outcomes["failed"] == 0


def test_all_failed_ones_are_made_again_on_request(
    files: OutputFiles, make_run: MakeRun, record: Record, failure: Record
) -> None:
    start_run(files, make_run(), resume=False, metrics=Metrics())
    write(files, record(0), failure(1, kind="task"), *[failure(2)] * MAX_FAILURES)
    run, metrics = make_run(), Metrics()
    progress = start_run(files, run, resume=True, retry_failed=True, metrics=metrics)
    assert keys(progress.remaining(make_tasks(3))) == [(1, 0), (2, 0)]
    assert metrics.summary().outcomes["failed"] == 0


def test_rows_that_stand_twice_count_once(files: OutputFiles, make_run: MakeRun, record: Record) -> None:
    start_run(files, make_run(), resume=False, metrics=Metrics())
    write(files, record(0), record(0, reward=0.0))
    metrics = Metrics()
    progress = go_on(files, make_run(), metrics)
    assert metrics.mean_reward == 1.0
    assert "1 row is in it more than once" in progress.notices[0]


def test_a_resumed_run_reports_what_an_uninterrupted_one_would(
    files: OutputFiles, make_run: MakeRun, record: Record, failure: Record
) -> None:
    records = [record(0), record(1, reward=0.25, extra=1.0), failure(2, kind="task"), record(3), failure(4)]
    whole, resumed = Metrics(), Metrics()
    for each in records:
        whole.add(each)
    start_run(files, make_run(), resume=False, metrics=Metrics())
    write(files, *records[:3])
    go_on(files, make_run(), resumed)
    for each in records[3:]:
        resumed.add(each)
    assert resumed.summary() == whole.summary()
    assert b"".join(resumed.aggregate()) == b"".join(whole.aggregate())


def test_every_changed_setting_is_named(files: OutputFiles, make_run: MakeRun, record: Record) -> None:
    before = make_run(settings={"repeats": 4, "temperature": 0.7, "model": "a", "environments": ("x",)})
    after = make_run(
        settings={"repeats": 8, "model": "a", "seed": 1, "environments": ("x",)}, notes={"url": "u"}
    )
    start_run(files, before, resume=False, metrics=Metrics())
    write(files, record(0))
    with pytest.raises(UsageError) as caught:
        go_on(files, after)
    assert (
        "repeats was 4, is 8; temperature was 0.7, is not set; seed was not set, is 1" in caught.value.message
    )
    assert load_manifest(files.manifest) is not None
    assert go_on(files, make_run(run="next", settings=before.settings, notes={"url": "v"}))
    stored = load_manifest(files.manifest)
    assert stored is not None
    assert (stored.run, stored.notes) == ("next", {"url": "v"})


def test_changed_rows_are_refused(files: OutputFiles, make_run: MakeRun, record: Record) -> None:
    start_run(files, make_run(digest="a", rows=4), resume=False, metrics=Metrics())
    write(files, record(0))
    go_on(files, make_run(digest="a", rows=4))
    for rows, told in ((4, r"input rows changed\. Go on"), (5, r"input rows changed \(4 rows, now 5\)\. ")):
        with pytest.raises(UsageError, match=told):
            go_on(files, make_run(digest="b", rows=rows))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", r"not the manifest of a run \(.*\): put a copy of it back, or choose another -o"),
        (b"{}", r"not the manifest of a run \(Object missing"),
        (
            b'{"run":"r","digest":"","rows":1,"rollouts":1,"settings":{},"format":9,"version":"2.0"}',
            "by gym-runtime 2.0",
        ),
    ],
)
def test_manifests_that_cannot_be_read(
    content: bytes, message: str, files: OutputFiles, make_run: MakeRun
) -> None:
    files.manifest.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        go_on(files, make_run())


def test_failure_rows_of_nemo_gym_are_honoured(
    files: OutputFiles, make_run: MakeRun, failure: Record
) -> None:
    make_run().save(files.manifest)
    timeout = failure_row(failure(0)).replace(b'"_ng_failure_terminal":false', b'"_ng_failure_terminal":true')
    files.failures.write_bytes(timeout + b"\n" + b'{"_ng_task_index":1,"_ng_rollout_index":0}\n')
    progress = go_on(files, make_run())
    assert keys(progress.remaining(make_tasks(2))) == [(1, 0)]


KILLED = """
import os, sys
from gym_runtime.files.results import OutputFiles, ResultWriter
from gym_runtime.messages.outcomes import Completed, RolloutRecord
from msgspec import Raw
writer = ResultWriter(OutputFiles.beside(sys.argv[1]))
for index in range(10**9):
    row = b'{"reward":1.0,"_ng_task_index":%d,"_ng_rollout_index":0,"x":"%b"}' % (index, b"y" * 5000)
    writer.write(RolloutRecord(run="r", task_index=index, rollout_index=0, environment="e",
                               outcome=Completed(), row=Raw(row), reward=1.0))
    if index == 1000:
        print("going", flush=True)
"""


@pytest.mark.slow
def test_a_killed_writer_leaves_whole_rows(files: OutputFiles, make_run: MakeRun) -> None:
    make_run().save(files.manifest)
    command = [sys.executable, "-c", KILLED, str(files.rollouts)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"going\n"
        writer.kill()
    progress = go_on(files, make_run())
    done = len(progress.done)
    assert done >= 700
    assert keys(progress.remaining(make_tasks(done + 1))) == [(done, 0)]

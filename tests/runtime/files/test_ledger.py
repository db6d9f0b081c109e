"""The ledger against a model: what is committed once is on the disk once, whatever is interrupted when.

The ledger is the stream that takes a rollout's first result and refuses every other, the writer that puts
what comes out of it into files, and the resume that reads these. The machine publishes, commits, commits
again, delivers, flushes, dies in the middle of a write, and goes on, in any order.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from gym_runtime.errors import Fault
from gym_runtime.files.results import (
    InputWriter,
    Manifest,
    OutputFiles,
    ResultWriter,
    failure_row,
    load_manifest,
)
from gym_runtime.files.resume import MAX_FAILURES, Progress, start_run
from gym_runtime.files.rows import materialize
from gym_runtime.files.run_metrics import Metrics
from gym_runtime.messages.outcomes import (
    Cancelled,
    Completed,
    Failed,
    Outcome,
    RolloutRecord,
    decode_record,
    encode_record,
)
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_testing.memory.store import Stream
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec import Raw

MEMORY = "/dev/shm"
"""Files there cost no disk: the machine makes thousands, and each is waited for until it is on the disk."""
OUTCOMES: dict[str, Outcome] = {
    "completed": Completed(),
    "failed": Failed(fault=Fault(kind="model", name="ModelUnavailable", message="gone", stage="model")),
    "terminal": Failed(fault=Fault(kind="task", name="TaskError", message="no", stage="agent")),
    "cancelled": Cancelled(),
}
Key = tuple[int, int]
LOST_BYTES = st.sampled_from((0, 1, 2)) | st.integers(0, 1500)
"""A lost newline alone is its own case."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def make_record(task: RolloutSpec, kind: str, attempt: int) -> RolloutRecord:
    outcome = OUTCOMES[kind]
    reward = 1.0 if kind == "completed" else None
    row = {
        "agent_ref": {"name": "counting"},
        "_ng_task_index": task.task_index,
        "_ng_rollout_index": task.rollout_index,
        "_gym": {"outcome": outcome, "turns": 1},
        "text": "é\u2028" * 20,
        **({} if reward is None else {"reward": reward}),
    }
    return RolloutRecord(
        run=task.run,
        task_index=task.task_index,
        rollout_index=task.rollout_index,
        environment="counting",
        outcome=outcome,
        row=Raw(msgspec.json.encode(row)),
        attempt=attempt,
        reward=reward,
        numbers={} if reward is None else {"reward": reward},
    )


class Part:
    """One part of the run, from its start to its end or its death."""

    def __init__(self, number: int, files: OutputFiles, progress: Progress, metrics: Metrics) -> None:
        self.run = f"run-{number}"
        self.progress = progress
        self.metrics = metrics
        self.inputs = InputWriter(files.materialized_inputs, resume=progress.previous is not None)
        self.writer = ResultWriter(files)
        self.published = 0
        self.in_flight: list[RolloutSpec] = []
        self.read = 0
        self.delivered = 0
        self.safe: dict[Path, int] = {}


class Ledger(RuleBasedStateMachine):
    """The rules; ``rows`` and ``failures`` are what the files must hold, in order."""

    @initialize(tasks=st.integers(1, 3), repeats=st.integers(1, 2))
    def begin(self, tasks: int, repeats: int) -> None:
        self.folder = tempfile.TemporaryDirectory(dir=MEMORY if Path(MEMORY).is_dir() else None)
        self.files = OutputFiles.beside(Path(self.folder.name) / "out.jsonl")
        self.paths = (self.files.rollouts, self.files.failures, self.files.materialized_inputs)
        self.keys = [(task, rollout) for task in range(tasks) for rollout in range(repeats)]
        self.stream = Stream("rollout")
        self.committed: dict[str, RolloutRecord] = {}
        self.rows: list[RolloutRecord] = []
        self.failures: list[RolloutRecord] = []
        self.parts = 0
        self.start(resume=False)

    # -- what the model says --------------------------------------------------------------------------

    def attempts(self, key: Key) -> int:
        """How many attempts the failures on the disk speak of."""
        return max((failure.attempt for failure in self.failures if key_of(failure) == key), default=0)

    def settled(self, key: Key) -> bool:
        if key in map(key_of, self.rows):
            return True
        failed = [f for f in self.failures if key_of(f) == key and isinstance(f.outcome, Failed)]
        return len(failed) >= MAX_FAILURES or OUTCOMES["terminal"] in [f.outcome for f in failed]

    def tasks(self, run: str) -> list[RolloutSpec]:
        row = Raw(b'{"responses_create_params":{}}')
        return [
            RolloutSpec(run=run, task_index=t, rollout_index=r, environment="counting", agent="a", row=row)
            for t, r in self.keys
        ]

    # -- the life of a run ----------------------------------------------------------------------------

    def start(self, *, resume: bool) -> None:
        self.parts += 1
        run = f"run-{self.parts}"
        manifest = Manifest(run=run, digest="d", rows=1, rollouts=len(self.keys), settings={"n": 1})
        metrics = Metrics()
        progress = start_run(self.files, manifest, resume=resume, metrics=metrics)
        assert load_manifest(self.files.manifest) == manifest
        wanted = [task for task in self.tasks(run) if not self.settled((task.task_index, task.rollout_index))]
        left = list(progress.remaining(self.tasks(run)))
        assert list(map(key_of, left)) == list(map(key_of, wanted))
        assert [task.attempt_base for task in left] == [self.attempts(key_of(task)) for task in left]
        assert len(progress) == len(self.keys) - len(left) == metrics.rollouts
        self.part = Part(self.parts, self.files, progress, metrics)
        self.part.safe = self.sizes()

    def sizes(self) -> dict[Path, int]:
        return {path: path.stat().st_size if path.exists() else 0 for path in self.paths}

    @rule(count=st.integers(1, 6))
    def publish(self, count: int) -> None:
        """The next rollouts are written to the inputs, and put on the queue unless they are settled."""
        part = self.part
        for task in self.tasks(part.run)[part.published : part.published + count]:
            part.published += 1
            part.inputs.add(task)
            part.in_flight += part.progress.remaining([task])

    @precondition(lambda self: self.part.in_flight)
    @rule(data=st.data(), kind=st.sampled_from(sorted(OUTCOMES)))
    def commit(self, data: st.DataObject, kind: str) -> None:
        """An attempt ends; also one that was overtaken, or of a task that was delivered twice."""
        task = data.draw(st.sampled_from(self.part.in_flight))
        self.settle(task, make_record(task, kind, task.attempt_base + data.draw(st.integers(1, 3))))

    def settle(self, task: RolloutSpec, record: RolloutRecord) -> None:
        """Commit once: the stream takes a subject's first record only."""
        subject = f"rollout.{task.rollout_id}"
        stored = self.stream.store(subject, encode_record(record), expect=0)
        assert (stored is None) == (subject in self.committed)
        self.committed.setdefault(subject, record)

    @rule()
    def deliver(self) -> None:
        """The client takes what was committed since it last looked."""
        found, self.part.read = self.stream.read(f"rollout.{self.part.run}.>", self.part.read)
        for stored in found:
            record = decode_record(stored.payload)
            self.part.writer.write(record)
            self.part.metrics.add(record)
            self.part.delivered += 1
            (self.rows if record.reward is not None else self.failures).append(record)

    @rule()
    def flush(self) -> None:
        self.part.inputs.flush()
        self.part.writer.flush()
        self.part.safe = self.sizes()
        assert self.files.rollouts.read_bytes() == content(self.rows)

    @rule(lost_bytes=st.tuples(LOST_BYTES, LOST_BYTES, LOST_BYTES))
    def die_and_resume(self, lost_bytes: tuple[int, int, int]) -> None:
        """The process or the machine ends: of what was not flushed explicitly, an arbitrary part is there."""
        self.part.writer.close()
        self.part.inputs.close()
        for path, lost in zip(self.paths, lost_bytes, strict=True):
            if path.exists():
                with path.open("r+b") as file:
                    file.truncate(max(self.part.safe[path], path.stat().st_size - lost))
        self.rows = survivors(self.rows, self.files.rollouts)
        self.failures = survivors(self.failures, self.files.failures)
        self.start(resume=True)

    @rule()
    def fail_and_resume(self) -> None:
        """A part in which all that is left fails: three of these give a rollout up."""
        self.publish(len(self.keys))
        for task in self.part.in_flight:
            self.settle(task, make_record(task, "failed", task.attempt_base + 1))
        self.deliver()
        self.die_and_resume((0, 0, 0))

    # -- what always holds ----------------------------------------------------------------------------

    @invariant()
    def no_rollout_has_two_rows(self) -> None:
        if hasattr(self, "part"):
            assert all(count == 1 for count in Counter(map(key_of, self.rows)).values())

    def teardown(self) -> None:
        """However it went: the last part completes the run, and the files are as without faults."""
        if not hasattr(self, "part"):
            return
        self.publish(len(self.keys))
        for task in self.part.in_flight:
            self.settle(task, make_record(task, "completed", task.attempt_base + 1))
        self.deliver()
        self.part.writer.close()
        self.part.inputs.close()
        assert self.files.rollouts.read_bytes() == content(self.rows)
        assert content(self.failures) == (
            self.files.failures.read_bytes() if self.files.failures.exists() else b""
        )
        assert {key_of(record) for record in [*self.rows, *self.failures]} == set(self.keys)
        inputs = b"".join(materialize(task) + b"\n" for task in self.tasks(self.part.run))
        assert self.files.materialized_inputs.read_bytes() == inputs
        assert self.part.metrics.rollouts == len(self.part.progress) + self.part.delivered
        self.folder.cleanup()


def key_of(made: RolloutRecord | RolloutSpec) -> Key:
    return made.task_index, made.rollout_index


def content(records: list[RolloutRecord]) -> bytes:
    return b"".join(line(record) + b"\n" for record in records)


def line(record: RolloutRecord) -> bytes:
    return bytes(record.row) if record.reward is not None else failure_row(record)


def survivors(records: list[RolloutRecord], path: Path) -> list[RolloutRecord]:
    """Those whose whole line is in the file; what is there of them is what was written."""
    there = path.read_bytes() if path.exists() else b""
    assert content(records).startswith(there)
    ends = [len(content(records[: number + 1])) - 1 for number in range(len(records))]
    return [record for record, end in zip(records, ends, strict=True) if end <= len(there)]


TestLedger = Ledger.TestCase
TestLedger.settings = settings(
    max_examples=50, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)

"""The files of a run, beside each other, with NeMo Gym's names; and the writer of result rows.

OUT.jsonl                        rollouts with a verdict, in the order of completion
OUT_failures.jsonl               rollouts without one, and why; later attempts add lines
OUT_materialized_inputs.jsonl    the requested rollouts: each one's row, settings and numbers
OUT_aggregate_metrics.json       per agent: statistics over rollouts and over groups
OUT_reward_profiling.jsonl       per task: statistics of its rollouts, once a guest has written them
OUT_alarms.jsonl                 alarms about the rewards, if there were any
OUT_run.json                     the manifest, which ``--resume`` compares
OUT_images/                      images of the rows, where they are stored as files (`stored_images`)
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from gym_runtime.environment.roles import RESERVED
from gym_runtime.errors import UNREADABLE, Fault, UsageError
from gym_runtime.files.appender import Appender, repair_tail, write_whole
from gym_runtime.files.rows import materialize
from gym_runtime.files.sample import CANCELLED
from gym_runtime.files.stored_images import Images, ImageStore
from gym_runtime.logs import logger
from gym_runtime.messages.outcomes import Cancelled, Failed, RolloutRecord, with_input
from gym_runtime.messages.rollout_spec import LONG_ROW_BYTES, RolloutSpec
from gym_runtime.own_files import open_own, refuse_special

TIMEOUT = "timeout_exceeded"
JUDGE_FAILED = "judge_failed"


class _Key(msgspec.Struct, frozen=True):
    task_index: int = msgspec.field(name="_ng_task_index")
    rollout_index: int = msgspec.field(name="_ng_rollout_index")


_decode_key = msgspec.json.Decoder(_Key).decode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder().encode


class OutputFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run's files stand. Made by `OutputFiles.beside`."""

    rollouts: Path
    failures: Path
    materialized_inputs: Path
    aggregate_metrics: Path
    reward_profiling: Path
    alarms: Path
    manifest: Path

    @classmethod
    def beside(cls, output: str | Path) -> OutputFiles:
        """The files that belong to ``-o OUTPUT``. Creates the folder if it is missing.

        Raises:
            UsageError: the output can't be a file there.
        """
        path = Path(output)
        if path.is_dir():
            raise UsageError(f"{path} is a directory; name a file, such as {path / 'rollouts.jsonl'}")
        if path.exists() and not path.is_file():
            raise UsageError(f"{path} is not a regular file; a run needs one, and others beside it")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot create {path.parent}: {error.strerror}") from None

        def named(part: str, suffix: str) -> Path:
            return path.with_name(f"{path.stem}_{part}{suffix}")

        return cls(
            rollouts=path,
            failures=named("failures", ".jsonl"),
            materialized_inputs=named("materialized_inputs", ".jsonl"),
            aggregate_metrics=named("aggregate_metrics", ".json"),
            reward_profiling=named("reward_profiling", ".jsonl"),
            alarms=named("alarms", ".jsonl"),
            manifest=named("run", ".json"),
        )

    def all(self) -> tuple[Path, ...]:
        """Every file, in the order of the table above."""
        return msgspec.structs.astuple(self)

    def lock(self) -> Lock:
        """Take the lock under which these files are written; all of them may be.

        What a process that was killed has left aside is put back.

        Raises:
            UsageError: another process holds it, or one of the names is a link or the like.
        """
        refuse_special(*self.all())
        lock = Lock(self.rollouts)
        self.put_back()
        return lock

    def put_aside(self) -> None:
        """Hide the files for a run that replaces them, until it begins (`drop_aside`) or fails."""
        self.drop_aside()
        # The manifest is the first to be hidden or dropped and the last to come back: wherever a process is
        # killed, a hidden manifest says that the hidden files are those that count.
        for path in reversed(self.all()):
            if path.exists():
                path.rename(_aside(path))

    def put_back(self) -> None:
        """Undo `put_aside`, unless the files were dropped or another run has written files since."""
        hidden = [path for path in self.all() if _aside(path).exists()]
        rows = [path for path in hidden if path != self.manifest]
        if self.manifest in hidden and not any(path.exists() and path.stat().st_size for path in rows):
            for path in hidden:
                _aside(path).replace(path)

    def drop_aside(self) -> None:
        """Remove the hidden files."""
        for path in reversed(self.all()):
            _aside(path).unlink(missing_ok=True)

    def refuse_inputs(self, *paths: str | Path) -> None:
        """Refuse to write over a file that is read.

        Raises:
            UsageError: one of the paths is one of these files.
        """
        mine = {path.resolve() for path in self.all()}
        for path in paths:
            if Path(path).resolve() in mine:
                raise UsageError(f"{path} would be read and written; choose another -o")


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}.replaced")


class ResultWriter:
    """Appends records to the rollouts or to the failures, one line each.

    Use it in a ``with``; call `flush` when there is nothing to write (`Appender` says why). A file appears
    with its first line, but for the rollouts, which are there from the start.
    """

    def __init__(self, files: OutputFiles, images: Images = "inline") -> None:
        self.files = files
        self._images = ImageStore(files.rollouts, images)
        self._rollouts = Appender(files.rollouts)
        self._failures: Appender | None = None

    def __enter__(self) -> ResultWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, record: RolloutRecord) -> None:
        """Append a record: with a verdict to the rollouts, without one to the failures.

        Raises:
            UsageError: the disk is full or broken, or the file was deleted.
        """
        if isinstance(record.outcome, (Failed, Cancelled)):
            if self._failures is None:
                self._failures = Appender(self.files.failures)
            self._failures.append(self._images.stored(failure_row(record)))
        else:
            self._rollouts.append(self._images.stored(bytes(record.row)))

    def flush(self) -> None:
        """Hand everything to the system now."""
        for appender in self._appenders():
            appender.flush()

    def sync(self) -> None:
        """Hand everything to the system and wait until it is on the disk. Raises what `write` raises."""
        for appender in self._appenders():
            appender.flush()
            appender.sync()

    def close(self) -> None:
        """Flush, wait until all is on the disk, close. Raises what `flush` raises, after closing all."""
        # A stack closes all of them, also when one raises.
        with contextlib.ExitStack() as stack:
            for appender in self._appenders():
                stack.callback(appender.close)

    def _appenders(self) -> list[Appender]:
        return [self._rollouts, *([self._failures] if self._failures else [])]


class InputWriter:
    """Writes the materialized inputs: `add` every rollout of the run, in order, whether or not it is done.

    Lines that an interrupted run has already written are counted off and left alone. The results of long rows
    lack the input, which `restored` reads here.
    """

    def __init__(self, path: Path, *, resume: bool = False) -> None:
        self._present = 0
        # Where the long rows are whose results are still to come: their offsets and lengths.
        self._places: dict[tuple[int, int], tuple[int, int]] = {}
        if resume and path.exists():
            repair_tail(path)
            self._read(path)
        else:
            path.unlink(missing_ok=True)
        self._appender = Appender(path)
        self._fd = open_own(path, os.O_RDONLY)

    def __enter__(self) -> InputWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, task: RolloutSpec) -> RolloutSpec:
        """Write the next rollout's row, unless the file has it already; returns the task to publish.

        Raises:
            UsageError: the disk is full or broken.
        """
        if self._present:
            self._present -= 1
            return task
        line, at = materialize(task), self._appender.end_bytes
        self._appender.append(line)
        # The file's line differs from the task's row if that has line breaks, or begins with a space.
        same = line.startswith(b"{") and self._appender.end_bytes == at + len(line) + 1
        if len(line) < LONG_ROW_BYTES or not same:
            return task
        # Before the task is published: whatever kills this process, the next one finds the input.
        self._appender.flush()
        self._places[task.task_index, task.rollout_index] = at, len(line)
        return msgspec.structs.replace(task, has_row=True)

    def restored(self, record: RolloutRecord) -> RolloutRecord:
        """A record as it is without `has_row`; to be called once for each.

        Raises:
            msgspec.DecodeError: the file does not have the input that the record's row lacks.
        """
        at, length = self._places.pop((record.task_index, record.rollout_index), (0, 0))
        left = record.left_out
        if left is None:
            return record
        inside = 0 <= left.start <= left.start + left.size <= length  # a hostile result may name any place
        return with_input(record, os.pread(self._fd, left.size, at + left.start) if inside else b"")

    def _read(self, path: Path) -> None:
        at = 0
        with path.open("rb") as file:
            for line in file:
                self._present += 1
                if len(line) >= LONG_ROW_BYTES:
                    with contextlib.suppress(*UNREADABLE):
                        key = _decode_key(line)
                        self._places[key.task_index, key.rollout_index] = at, len(line)
                at += len(line)

    def flush(self) -> None:
        """Hand everything to the system now."""
        self._appender.flush()

    def close(self) -> None:
        """Flush, wait until all is on the disk, close."""
        os.close(self._fd)
        self._appender.close()


def failure_row(record: RolloutRecord) -> bytes:
    """A failed or cancelled rollout's row with NeMo Gym's failure fields, and the fault itself."""
    fields: dict[str, Any] = dict(_decode_fields(record.row))
    fault = record.outcome.fault if isinstance(record.outcome, Failed) else None
    fields["_ng_failure_class"] = failure_class(fault)
    fields["_ng_failure_terminal"] = fault is not None and fault.kind == "task"
    # NeMo Gym counts attempts from 0.
    fields["_ng_attempt_index"] = record.attempt - 1
    if fault is not None:
        fields["_ng_failure"] = fault
        if fields["_ng_failure_class"] == JUDGE_FAILED:
            fields["_ng_failure_judge_error"] = fault.message
    return _encode(fields)


def failure_class(fault: Fault | None) -> str:
    """NeMo Gym's class of a failure; where it has none, whose fault it was. None means cancelled.

    The stage of a model that failed in a role is the role's name.
    """
    if fault is None:
        return CANCELLED
    if fault.kind == "deadline":
        return TIMEOUT
    if fault.kind == "model" and fault.stage and fault.stage not in RESERVED - {"verify", "compare"}:
        return JUDGE_FAILED
    return fault.kind


def count_lines(path: Path) -> int:
    """How many lines a file has, read in blocks."""
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(2**20), b""))


FORMAT = 1
GROWING = ("repeats", "limit", "environments")
"""The settings that may differ where a run grows; ``environments`` counts the rows of each."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What ``OUT_run.json`` holds.

    Attributes:
        run: the run's id; that of its latest part, if it was resumed.
        digest: of the input rows (`Dataset.digest`).
        rows: how many input rows there are.
        rollouts: how many rollouts they make.
        settings: everything that changes results, as JSON values: environments, agent, model, sampling,
            repeats, limit, seeds … A resumed run must have the same.
        notes: what may change between its parts, such as file names and URLs. Never a secret.
        counts: rollouts by outcome, once a part of the run has ended.
        started_s: in seconds since the epoch.
        cancelled_by, cancelled_s: who cancelled this part of the run, ``USER@HOST`` by their own account, and
            when; empty and 0 if it was not cancelled.
        version: of this runtime.
        format: of this file.
    """

    run: str
    digest: str
    rows: int
    rollouts: int
    settings: dict[str, Any]
    notes: dict[str, Any] = {}
    counts: dict[str, int] = {}
    started_s: float = 0.0
    cancelled_by: str = ""
    cancelled_s: float = 0.0
    version: str = ""
    format: int = FORMAT

    def save(self, path: Path) -> None:
        """Write it, all or nothing."""
        write_whole(path, iter([msgspec.json.format(msgspec.json.encode(self), indent=2), b"\n"]))

    def differences(self, other: Manifest, *, but: Collection[str] = ()) -> list[str]:
        """Each setting in which another run differs from this one, with both values.

        Args:
            but: settings that may differ.
        """
        # A round trip through JSON, so that a tuple equals its list; ours was read from a file.
        mine = self.settings
        theirs = msgspec.json.decode(msgspec.json.encode(other.settings), type=dict[str, Any])
        return [
            f"{name} was {_show(mine.get(name))}, is {_show(theirs.get(name))}"
            for name in dict.fromkeys([*mine, *theirs])
            if name not in but and mine.get(name) != theirs.get(name)
        ]


def load_manifest(path: Path) -> Manifest | None:
    """The manifest in a file, or None if there is no file.

    Raises:
        UsageError: the file is not a manifest, or one of a newer version.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except UNREADABLE as error:
        raise UsageError(
            f"{path} is not the manifest of a run ({error}): put a copy of it back, or choose another -o"
        ) from None
    if manifest.format > FORMAT:
        raise UsageError(
            f"{path} was written by gym-runtime {manifest.version}, in format {manifest.format}; "
            f"this one reads up to {FORMAT}: upgrade it"
        )
    return manifest


def _show(value: Any) -> str:
    return "not set" if value is None else msgspec.json.encode(value).decode()


_HOLDER = b"pid "  # how a lock file begins
_NO_LOCKS = {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK}


class Lock:
    """Holds a lock file, ``.NAME.lock`` beside the file it protects, until it is closed.

    The system releases it when the process ends, however that happens; a file that is left behind means
    nothing. It works between machines where the file system passes locks on (NFS 4, Lustre with
    ``flock``); where it knows no locks at all, a warning is logged and nothing is protected.

    Raises:
        UsageError: another process holds it, which the message names; or its name is that of another file.
    """

    def __init__(self, protected: Path) -> None:
        # Two links to one file must meet at the same lock.
        real = protected.resolve()
        self.path = real.with_name(f".{real.stem}.lock")
        self._fd = -1
        while not self._acquire(protected):
            pass

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the lock and remove its file."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                # While it is still locked: another process that has this file open sees that it is not there
                # any more.
                self.path.unlink()
            os.close(self._fd)
            self._fd = -1

    def _acquire(self, protected: Path) -> bool:
        """True when the lock is held; False when its file was removed meanwhile, by the holder before us."""
        try:
            fd = open_own(self.path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise UsageError(f"cannot write to {self.path.parent}: {error.strerror}") from None
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, fd)
            found = os.pread(fd, 200, 0)
            if found and not found.startswith(_HOLDER):
                raise UsageError(
                    f"{self.path} is not a lock of this runtime; move it away, or choose another -o"
                )
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = found.decode(errors="replace").strip() or "another process"
                raise UsageError(f"{protected} is being written by {holder}; choose another -o") from None
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise UsageError(f"cannot lock {self.path}: {error.strerror}") from None
                self.path.unlink(missing_ok=True)
                text = "this file system has no locks; do not start a second run"
                logger().warning(text, path=str(protected))
                return True
            # The holder may have removed the file between our open and our lock; then another process may
            # lock a new one.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(fd), self.path.stat()):
                    try:
                        os.ftruncate(fd, 0)
                        os.pwrite(fd, _HOLDER + f"{os.getpid()} on {os.uname().nodename}\n".encode(), 0)
                    except OSError as error:
                        self.path.unlink()
                        raise UsageError(
                            f"cannot write {self.path}: {error.strerror}; make room, or choose another -o"
                        ) from None
                    stack.pop_all()
                    self._fd = fd
                    return True
            return False

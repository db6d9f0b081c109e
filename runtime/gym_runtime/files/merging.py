"""Result files of several runs as those of one: each rollout's row once, metrics computed again.

Rollouts are told apart by their numbers (``_ng_task_index``, ``_ng_rollout_index``), so the files must be of
the same rows: several parts of one run, or runs whose rows bring their numbers. A rollout that failed
in one file and has a row in another is no failure.

`StoredInputs` finds the inputs of stored rollouts. NeMo Gym's result rows lack the dataset's fields that a
server did not declare; its materialized inputs have them, and so has the dataset. It keeps where each input
stands, some 300 bytes, and no line.
"""

from __future__ import annotations

import codecs
import contextlib
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec
from msgspec import Raw

from gym_runtime.errors import UNREADABLE, TaskError, UsageError
from gym_runtime.files.appender import write_whole
from gym_runtime.files.keys import KeyCounts
from gym_runtime.files.recorded_run import benchmark_scores
from gym_runtime.files.results import OutputFiles
from gym_runtime.files.run_metrics import Metrics
from gym_runtime.files.sample import Sample, is_torn, sample_row, samples_of
from gym_runtime.files.stored_images import images_of
from gym_runtime.messages.names import NUMBERS, is_mark
from gym_runtime.messages.transcripts import as_list, as_object, content_text


class Merged(msgspec.Struct, frozen=True):
    """What became of the files.

    Attributes:
        repeated: rows that stood in more than one place, all alike.
        recovered: rollouts that failed in one file and have a row in another.
        torn: files whose last line did not count, since it was torn or still being written.
    """

    rows: int
    repeated: int
    recovered: int
    torn: list[Path]


def merge(paths: Sequence[Path], output: OutputFiles, metrics: Metrics) -> Merged:
    """Write the files of ``output`` from those of several runs. Hold its `Lock` while you call it.

    Rows keep the order of the files. Failures of rollouts without a row are kept, each line once. There
    is no manifest: what is merged cannot be resumed. The files of ``output`` are replaced when all of the new
    ones are on the disk.

    Args:
        paths: the rollouts of each run; the other files are looked for beside them.
        metrics: takes in what there is.

    Raises:
        UsageError: a file cannot be read or has a line that is no rollout's, two different rows have the
            same numbers, or the disk is full; the message names the places. The files there are as before.
    """
    runs = [OutputFiles.beside(path) for path in paths]
    for run in runs:
        if (
            images_of(run.rollouts).is_dir()
            and run.rollouts.resolve().parent != output.rollouts.resolve().parent
        ):
            raise UsageError(
                f"{run.rollouts} has its images in {images_of(run.rollouts).name}, beside it: merge into the "
                "same folder"
            )
    done, times, recovered = KeyCounts(), KeyCounts(), KeyCounts()
    failures = [run.failures for run in runs]
    inputs = [run.materialized_inputs for run in runs if run.materialized_inputs.exists()]
    torn: list[Path] = []
    draft = OutputFiles.beside(output.rollouts.with_name(f".{output.rollouts.name}.merged"))
    _remove(draft)  # of a merge that was killed
    try:
        with StoredInputs([run.rollouts for run in runs]) as rows, StoredInputs(inputs) as asked:
            write_whole(draft.rollouts, _rows(rows, done, metrics))
            for sample, _ in _different(failures, torn):
                (recovered if sample.key in done else times).increase(*sample.key)
            if len(times):
                write_whole(draft.failures, _without_a_row(failures, times, metrics))
            if inputs:
                write_whole(draft.materialized_inputs, (line + b"\n" for _, line in asked.lines()))
        metrics.scores = benchmark_scores(draft.rollouts, metrics.agents)
        write_whole(draft.aggregate_metrics, metrics.aggregate())
        # The manifest first: it must never stand beside rows that are not of its run.
        for new, old in reversed([*zip(draft.all(), output.all(), strict=True)]):
            new.replace(old) if new.exists() else old.unlink(missing_ok=True)
    finally:
        _remove(draft)
    return Merged(
        rows=len(done), repeated=rows.repeated, recovered=len(recovered), torn=rows.torn + asked.torn + torn
    )


def _remove(files: OutputFiles) -> None:
    for path in files.all():
        path.unlink(missing_ok=True)


def _rows(rows: StoredInputs, done: KeyCounts, metrics: Metrics) -> Iterator[bytes]:
    for place, line in rows.lines():
        try:
            sample = sample_row(line)
        except UNREADABLE as error:
            raise _no_row(place, error) from None
        done.increase(*sample.key)
        metrics.add_sample(sample)
        yield line + b"\n"


def _without_a_row(paths: Sequence[Path], times: KeyCounts, metrics: Metrics) -> Iterator[bytes]:
    """The failures of rollouts without a row, by how many each has; the last one enters the metrics."""
    for sample, line in _different(paths):
        left = times.get(*sample.key)
        if left:
            times.put(*sample.key, left - 1)
            if left == 1:
                metrics.add_sample(sample)
            yield line + b"\n"


def _different(paths: Sequence[Path], torn: list[Path] | None = None) -> Iterator[tuple[Sample, bytes]]:
    """The failures in some files, each different line once; ``torn`` as for `samples_of`."""
    had: set[bytes] = set()
    for path in paths:
        for sample, line, _ in samples_of(path, torn):
            digest = _digest(line)
            if digest not in had:
                had.add(digest)
                yield sample, line.strip()


def refuse_missing(paths: Sequence[Path]) -> None:
    """
    Raises:
        UsageError: one of the files does not exist, or is named twice.
    """
    for position, path in enumerate(paths):
        if not path.is_file():
            raise UsageError(f"there is no file {path}")
        if any(path.resolve() == other.resolve() for other in paths[:position]):
            raise UsageError(f"{path} is named twice")


_EVERY = -1
"""In the place of a rollout's number: the input of all the task's rollouts."""

_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder().encode


class _Numbers(msgspec.Struct, frozen=True):
    task: int | None = msgspec.field(name="_ng_task_index", default=None)
    rollout: int | None = msgspec.field(name="_ng_rollout_index", default=None)


_decode_numbers = msgspec.json.Decoder(_Numbers, strict=False).decode
_decode = msgspec.json.Decoder().decode


def _same_question(stored: dict[str, Raw], found: dict[str, Raw]) -> bool:
    """Whether what the user says last in an input is said in a stored rollout, as far as they tell.

    Texts are compared, not bytes: NeMo Gym writes the fields that a message lacks, and a harness puts the
    question into a text of its own.
    """
    asked = [text for role, text in _messages(found) if role == "user" and text]
    said = " ".join(text for _, text in _messages(stored))
    return not asked or not said or asked[-1] in said


def _messages(fields: dict[str, Raw]) -> list[tuple[Any, str]]:
    """The roles and texts of a row's input, with single spaces; images have no text."""
    try:
        given = as_object(_decode(fields.get("responses_create_params", b"null"))).get("input")
    except UNREADABLE:  # refused with its reason when the row is read whole
        return []
    items = [{"role": "user", "content": given}] if isinstance(given, str) else as_list(given)
    return [
        (item.get("role"), " ".join(content_text(item.get("content"), lambda _: "").split()))
        for item in map(as_object, items)
    ]


class _Place(NamedTuple):
    file: int
    offset: int
    size: int
    line: int


class StoredInputs:
    """The rows of some files. Use it in a ``with``, from one task at a time.

    Rows without a ``_ng_rollout_index`` are inputs of all the task's rollouts. Rows without a
    ``_ng_task_index``, a dataset's, are numbered as a run numbers them (`gym_runtime.files.rows`).

    Attributes:
        repeated: rows that stood in more than one place, all alike.
        torn: files whose last line is no row, which a killed process may leave so; it does not count.

    Raises:
        UsageError: a file can't be read, a line is no row, or two different rows have the same numbers.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._stack = contextlib.ExitStack()
        self._files: list[IO[bytes]] = []
        self._places: dict[tuple[int, int], _Place] = {}
        self._first: dict[int, _Place] = {}  # by the task
        self._texts: set[bytes] = set()
        self.repeated = 0
        self.torn: list[Path] = []
        # A separate stack, which closes the opened files if a later file fails.
        with contextlib.ExitStack() as opening:
            for path in paths:
                try:
                    self._files.append(opening.enter_context(path.open("rb")))
                except OSError as error:
                    raise UsageError(f"cannot read {path}: {error.strerror}") from None
                self._read(len(self._files) - 1)
            self._stack = opening.pop_all()

    def __enter__(self) -> StoredInputs:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def complete(self, row: bytes) -> bytes:
        """A stored rollout with the fields of its input that it lacks, without the input's own marks.

        Raises:
            TaskError: it is no JSON object, has no ``_ng_task_index``, no input has its numbers, or the one
                that has them asks another question.
        """
        try:
            numbers, fields = _decode_numbers(row), _decode_fields(row)
        except UNREADABLE as error:
            raise TaskError(f"not a stored rollout: {error}") from error
        if numbers.task is None:
            raise TaskError("the row has no '_ng_task_index', by which its input is found")
        # The input of this very rollout comes before one of all rollouts.
        task, rollout = numbers.task, numbers.rollout
        own = self._first.get(task) if rollout is None else self._places.get((task, rollout))
        place = own or self._places.get((task, _EVERY))
        if place is None:
            which = "" if rollout is None else f", rollout {rollout}"
            raise TaskError(f"there is no input of task {task}{which} in --inputs")
        found = _decode_fields(self._line(place))
        if not _same_question(fields, found):
            raise TaskError(
                f"{self._named(place)} has the row's numbers but asks another question: "
                "give the --inputs of the run that made these rollouts"
            )
        missing = {
            name: value
            for name, value in found.items()
            if name not in fields and (name in NUMBERS or not is_mark(name))
        }
        return _encode({**fields, **missing}) if missing else row

    def lines(self) -> Iterator[tuple[str, bytes]]:
        """Every different row, without its line's end, after its place; in the order of the files."""
        for place in self._places.values():
            yield self._named(place), self._line(place).strip()

    def _read(self, number: int) -> None:
        path, offset = self._paths[number], 0
        for line_number, line in enumerate(self._files[number], 1):
            if offset == 0 and line.startswith(codecs.BOM_UTF8):  # of an editor
                line, offset = line.removeprefix(codecs.BOM_UTF8), len(codecs.BOM_UTF8)
            if line.strip():
                try:
                    numbers = _decode_numbers(line)
                except UNREADABLE as error:
                    if is_torn(line, line_number, error, filter(bytes.strip, self._files[number])):
                        self.torn.append(path)
                        return
                    raise _no_row(f"{path}:{line_number}", error) from None
                place = _Place(number, offset, len(line), line_number)
                if numbers.task is not None:
                    self._add((numbers.task, _EVERY if numbers.rollout is None else numbers.rollout), place)
                elif (text := _digest(line)) not in self._texts:
                    self._add((len(self._texts), _EVERY), place)
                    self._texts.add(text)
            offset += len(line)

    def _add(self, key: tuple[int, int], place: _Place) -> None:
        known = self._places.setdefault(key, place)
        self._first.setdefault(key[0], place)
        if known is place:
            return
        self.repeated += 1
        if self._line(known).strip() != self._line(place).strip():
            raise UsageError(
                f"{self._named(known)} and {self._named(place)} are different rows with the same numbers; "
                "merge takes the parts of one run. A run gets more rollouts of its rows by: run --resume "
                "--extend with more --repeats"
            )

    def _named(self, place: _Place) -> str:
        return f"{self._paths[place.file]}:{place.line}"

    def _line(self, place: _Place) -> bytes:
        return os.pread(self._files[place.file].fileno(), place.size, place.offset)


def _no_row(place: str, error: BaseException) -> UsageError:
    return UsageError(f"{place} is no row ({error}); remove or repair the line to go on")


def _digest(line: bytes) -> bytes:
    return hashlib.blake2b(line.strip(), digest_size=16).digest()

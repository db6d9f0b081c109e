"""Datasets: JSONL files of rows, checked to the end before anything starts, then streamed.

A dataset keeps its files open between the two passes and notices when one of them changes. Of a row it
keeps 24 bytes: its place in the file, its line's number and its task's; and eight more in a random order.
"""

from __future__ import annotations

import hashlib
import io
import os
import random
import shutil
import stat
import sys
import tempfile
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

from gym_runtime.environment.environment import LoadedEnvironment, harness
from gym_runtime.environment.settings import require_known
from gym_runtime.errors import UsageError
from gym_runtime.files.keys import repeated
from gym_runtime.files.prompts import PromptTemplate, laid_on
from gym_runtime.files.row_reader import BadRow, Row, RowReader
from gym_runtime.files.rows import Numbering, row_key

MAX_LINE_BYTES = 256 * 2**20
_COPY_BYTES = 2**20
_BOM = b"\xef\xbb\xbf"
_MAGIC = {
    b"\x1f\x8b": "is compressed with gzip; unpack it first",
    b"\x28\xb5\x2f\xfd": "is compressed with zstd; unpack it first",
    b"PAR1": "is a Parquet file; convert it to JSONL first",
    b"PK\x03\x04": "is a zip archive; unpack it first",
    b"\xff\xfe": "is UTF-16; convert it to UTF-8 first",
    b"\xfe\xff": "is UTF-16; convert it to UTF-8 first",
}


class Source(msgspec.Struct, frozen=True):
    """A file of rows.

    Attributes:
        path: ``-`` is standard input.
        environment: that of the rows that name none.
        called: how errors name the file; its path by default.
        content: the rows, where the file is still to be written.
    """

    path: str
    environment: str | None = None
    called: str = ""
    content: bytes | None = None

    def __str__(self) -> str:
        return self.called or self.path

    def require(self) -> None:
        """Check that the file exists, before anything costly begins.

        Raises:
            UsageError: it is not.
        """
        if self.path != "-" and self.content is None and not Path(self.path).exists():
            raise _missing(self.path)


class LineFile:
    """An open file. ``-`` is standard input, which is copied to a temporary file, as any pipe is.

    Args:
        called: how errors name it; its path by default.
        content: read in place of the file.

    Raises:
        UsageError: it can't be opened, or the copy can't be written.
    """

    def __init__(self, path: str, called: str = "", content: bytes | None = None) -> None:
        self.path = called or path
        self._file = _open(path) if content is None else _spool(io.BytesIO(content))
        self._marked = (0, 0)

    def close(self) -> None:
        self._file.close()

    def mark(self) -> None:
        """Remember the file as it is now."""
        self._marked = self._state()

    def refuse_change(self) -> None:
        """Raises UsageError if the file is another than when it was marked."""
        if self._state() != self._marked:
            raise UsageError(f"{self.path} changed while it was being read; start again")

    def _state(self) -> tuple[int, int]:
        state = os.fstat(self._file.fileno())
        return state.st_size, state.st_mtime_ns

    def at(self, start: int, size: int) -> bytes:
        """The line at a place that `lines` has given.

        Raises:
            UsageError: the file can't be read.
        """
        try:
            # `pread` leaves the file's position to `lines`.
            return os.pread(self._file.fileno(), size, start)
        except OSError as error:
            raise UsageError(f"cannot read {self.path}: {error.strerror}") from None

    def lines(self, limit: int | None = None) -> Iterator[tuple[int, int, bytes]]:
        """``(line number, place, line)`` of the lines that aren't blank, without their ends and a BOM.

        From the start again, the first ``limit`` of them only.

        Raises:
            UsageError: the file cannot be read, or is not a text file.
        """
        self._file.seek(0, io.SEEK_SET)
        taken = number = end = 0
        while line := self._read_line(number + 1):
            number += 1
            end += len(line)
            if number == 1:
                for magic, what in _MAGIC.items():
                    if line.startswith(magic):
                        raise UsageError(f"{self.path} {what}")
                line = line.removeprefix(_BOM)
                if line.lstrip().startswith(b"["):
                    raise UsageError(f"{self.path} is a JSON array; make it JSONL, one object on each line")
                if line.strip() == b"{":
                    raise UsageError(
                        f"{self.path} has a JSON object over several lines; make it JSONL, one object on each"
                    )
            start, line = end - len(line), line.rstrip()
            if line:
                yield number, start, line
                taken += 1
                if taken == limit:
                    break

    def _read_line(self, number: int) -> bytes:
        try:
            # With a limit: a file without line breaks would be read into memory as a whole.
            line = self._file.readline(MAX_LINE_BYTES)
        except OSError as error:
            raise UsageError(f"cannot read {self.path}: {error.strerror}") from None
        if len(line) == MAX_LINE_BYTES:
            raise UsageError(
                f"{self.path}:{number} is longer than {MAX_LINE_BYTES // 2**20} MiB; is this JSONL?"
            )
        return line


def _missing(path: str) -> UsageError:
    address = (
        "" if path.find(":/") < 1 else "; an address is not fetched: download it, or pipe it into --input -"
    )
    return UsageError(f"there is no file {path}{address}")


def _open(path: str) -> IO[bytes]:
    """The file, at its start and seekable; a pipe is copied."""
    if path == "-":
        return _spool(sys.stdin.buffer)
    try:
        file = open(path, "rb", buffering=_COPY_BYTES)  # noqa: SIM115 - closed by its owner
    except IsADirectoryError:
        found = sorted(child.name for child in Path(path).glob("*.jsonl"))
        inside = f", such as {Path(path) / found[0]}" if found else ""
        raise UsageError(f"{path} is a directory; name a JSONL file{inside}") from None
    except FileNotFoundError:
        raise _missing(path) from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    with file:
        return _spool(file)


def _spool(stream: IO[bytes]) -> IO[bytes]:
    copy = tempfile.TemporaryFile(prefix="gym-runtime-")  # noqa: SIM115 - closed by its owner
    try:
        shutil.copyfileobj(stream, copy, _COPY_BYTES)
        copy.flush()
    except OSError as error:
        copy.close()
        raise UsageError(f"cannot copy the rows to {tempfile.gettempdir()}: {error.strerror}") from None
    return copy


MAX_LISTED = 5


class _Part(NamedTuple):
    source: Source
    file: LineFile
    reader: RowReader


class Dataset:
    """Checked rows from one or several files; nothing is started on half a dataset. Close it, or use it in a
    ``with``.

    Args:
        sources: files; ``-`` is standard input, which is copied to a temporary file.
        environment: for sources that name none.
        limit: take the first rows of each file only.
        settings: defaults of row fields, for the environments that have them.
        max_listed: bad rows that an error names one by one.
        shuffle_seed: `read` gives the rows in a random order, the same one each time; their numbers stay.
        earlier_rows: how many rows an earlier part of the run had; `earlier_digest` is of these.
        declared: environments whose code is elsewhere, by their names.
        skip_unknown: leave out rows whose ``agent_ref`` names no environment that there is.
        adopt: such rows belong to the environment that their source names, if it does.
        prompt: what is laid on the rows: a file, or a benchmark's own by its name; by default the benchmark's
            usual one, on rows without an input. A `PromptTemplate` refuses rows that have one. None lays
            nothing on.

    Attributes:
        skipped: how many rows were left out for each such name.
        adopted: how many rows name no environment that there is and belong to the one that was named.
        rows: how many rows there are.
        digest: SHA-256 over the rows and the environments they default to; the same rows under another
            file name have the same digest.
        environments: how many rows each environment has.
        agents: the agents that rows ask for.
        harnesses: those of them that a name in an ``agent_ref`` asks for as a harness.
        declared: as given.
        earlier_digest: of the first ``earlier_rows`` rows, if they have the same keys without the rows that
            follow; empty if they do not, or if there are fewer.
        tasks: all task indices are less than this.
        repeats_rows: whether some row comes more than once.

    Raises:
        UsageError: no environment has such a setting; a file can't be read, or has bad rows: one line each,
            ``file:line: what``, for the first ``max_listed``, and the number of the others.
    """

    def __init__(
        self,
        *sources: Source | str | Path,
        environment: str | None = None,
        limit: int | None = None,
        settings: Mapping[str, Any] | None = None,
        max_listed: int = MAX_LISTED,
        shuffle_seed: int | None = None,
        earlier_rows: int | None = None,
        declared: Mapping[str, LoadedEnvironment] | None = None,
        skip_unknown: bool = False,
        adopt: bool = False,
        prompt: str | PromptTemplate | None = "",
    ) -> None:
        if limit is not None and limit < 1:
            raise UsageError(f"the limit is {limit}; it must be at least 1")
        self.sources = tuple(
            given if isinstance(given, Source) else Source(str(given), environment) for given in sources
        )
        self.rows = self.tasks = 0
        self.digest = self.earlier_digest = ""
        self.environments: Counter[str] = Counter()
        self.agents: set[str] = set()
        self.harnesses: set[str] = set()
        self.skipped: Counter[str] = Counter()
        self.adopted: Counter[str] = Counter()
        self.declared = declared or {}
        self._loaded: dict[str, LoadedEnvironment] = {}
        self._limit, self._skip_unknown = limit, skip_unknown
        self._max_listed, self._earlier_rows = max_listed, earlier_rows
        # Of each row: where its line begins, its size and its number, and the task's index.
        self._starts, self._sizes, self._lines = array("q"), array("i"), array("i")
        self._tasks = array("q")
        self._ends: list[int] = []  # of each file: the number of rows up to its end
        self._parts: list[_Part] = []
        self._settings = settings or {}
        self._repeated: dict[int, int] = {}
        lay = None if prompt is None else laid_on(prompt)
        readers = [
            RowReader(source.environment, settings, declared=declared, adopt=adopt, lay=lay)
            for source in self.sources
        ]
        try:
            for source, reader in zip(self.sources, readers, strict=True):
                self._parts.append(_Part(source, LineFile(source.path, str(source), source.content), reader))
            self._check()
        # Without an object there is no `close` for the files that were opened.
        except BaseException:
            self.close()
            raise
        self.repeats_rows = bool(self._repeated)
        self._order: Sequence[int] = range(self.rows)
        if shuffle_seed is not None:
            self._order = _shuffled(self.rows, shuffle_seed)

    def __enter__(self) -> Dataset:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files."""
        for part in self._parts:
            part.file.close()

    def environment(self, name: str) -> LoadedEnvironment:
        """An environment that rows are of, by its name in `environments`."""
        return self._loaded[name]

    def numbering(self) -> Numbering:
        """A numbering for one pass over the rows."""
        return Numbering(repeated=self._repeated)

    def read(self) -> Iterator[Row]:
        """All rows, in their order or as shuffled, again from the start; each has its task's index.

        Raises:
            UsageError: a file has changed since it was checked.
        """
        # Before, so that nothing begins with a changed file; after, for a change meanwhile.
        self._refuse_change()
        for position in self._order:
            part = self._parts[bisect_right(self._ends, position)]
            line = part.file.at(self._starts[position], self._sizes[position])
            try:
                row = part.reader.read(line, check=False)
            except BadRow:
                raise UsageError(f"{part.source} changed while it was being read; start again") from None
            yield msgspec.structs.replace(row, task_index=self._tasks[position])
        self._refuse_change()

    def _refuse_change(self) -> None:
        for part in self._parts:
            part.file.refuse_change()

    def locate(self, row: int) -> str:
        """Where a row (counted from 0, as `read` gives them) stands, as ``file:line``."""
        position = self._order[row]
        return f"{self._parts[bisect_right(self._ends, position)].source}:{self._lines[position]}"

    def _check(self) -> None:
        """Read everything once.

        Raises:
            UsageError: lists the bad rows of the first file that has any.
        """
        digest = hashlib.sha256()
        highest = earlier_highest = -1  # of the indices that rows bring
        for part in self._parts:
            part.file.mark()
            before = self.rows
            # A separator that no JSON line holds: moving a row from one file to the next must change the
            # digest.
            digest.update(b"\x1e%b\n" % (part.source.environment or "").encode())
            for line, row in self._checked(part):
                digest.update(line)
                digest.update(b"\n")
                self.rows += 1
                self.environments[row.environment.name] += 1
                self._loaded[row.environment.name] = row.environment
                agent = row.environment.definition.agent_of(row.ref).name
                self.agents.add(agent)
                if agent == harness(row.ref):
                    self.harnesses.add(agent)
                if row.adopted:
                    self.adopted[row.ref] += 1
                highest = max(highest, -1 if row.task_index is None else row.task_index)
                self._tasks.append(
                    row_key(row.line, row.environment.name) if row.task_index is None else row.task_index
                )
                if self.rows == self._earlier_rows:
                    self.earlier_digest, earlier_highest = digest.hexdigest(), highest
            if self.rows == before:
                known = " of an environment that there is" if self.skipped else ""
                raise UsageError(f"{part.source} has no rows{known}")
            self._ends.append(self.rows)
        require_known(self._settings, self._loaded.values())
        # Rows without an index count on from the highest one, which a later row may have raised.
        if earlier_highest != highest and self.earlier_digest and min(self._tasks[: self._earlier_rows]) < 0:
            self.earlier_digest = ""
        self.digest = digest.hexdigest()
        self._number(highest + 1)

    def _number(self, following: int) -> None:
        """Give the rows that bring no index theirs, which count on; until then they have a `row_key`."""
        again = repeated(self._tasks)
        tasks: dict[int, int] = {}
        for position, key in enumerate(self._tasks):
            if key < 0:
                task = tasks.setdefault(key, following) if key in again else following
                following += task == following
                self._tasks[position] = task
        self.tasks = following
        self._repeated = {tasks.get(key, key): times for key, times in again.items()}

    def _checked(self, part: _Part) -> Iterator[tuple[bytes, Row]]:
        """The good rows of a file, with their lines as they are; at its end the bad ones are refused."""
        problems: list[str] = []
        bad = 0
        for number, start, line in part.file.lines(self._limit):
            try:
                row = part.reader.read(line)
            except BadRow as error:
                if self._skip_unknown and error.unknown:
                    self.skipped[error.unknown] += 1
                    continue
                bad += 1
                if bad <= self._max_listed:
                    problems.append(f"{part.source}:{number}: {error.message}")
                continue
            self._starts.append(start)
            self._sizes.append(len(line))
            self._lines.append(number)
            yield line, row
        if bad > self._max_listed:
            problems.append(f"… and {bad - self._max_listed} more bad rows")
        if problems:
            raise UsageError("\n".join(problems))


def _shuffled(rows: int, seed: int) -> array[int]:
    """The positions of the rows in a random order."""
    # Random.random is the one method that gives the same numbers in every version of Python.
    order, draw = array("q", range(rows)), random.Random(seed).random
    for last in range(rows - 1, 0, -1):
        chosen = int(draw() * (last + 1))
        order[last], order[chosen] = order[chosen], order[last]
    return order


open_dataset = Dataset
"""The name by which programs open one."""

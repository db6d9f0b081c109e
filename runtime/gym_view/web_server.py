"""The server of the viewer's page: its files, the list of runs, index records, figures, rows and their cards.

It answers from files and keeps nothing but which of them are being indexed, and figures of the last runs.
Files are indexed by a process beside it (`indexing`), and figures are added up in a thread, one run after
another: no file, however large or broken, holds up an answer.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import lru_cache, partial
from importlib import resources
from itertools import islice
from pathlib import Path
from socket import create_server, socket
from typing import Any, TypeVar

import anyio
import anyio.abc
import anyio.to_thread
import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler
from gym_runtime.errors import GymError, UsageError
from gym_runtime.files import MAX_LINE_BYTES
from gym_runtime.own_files import open_own, private_folder
from gym_runtime.timing import HEADERS_S

from gym_view.access import Access
from gym_view.index import (
    HEADER_BYTES,
    RECORD_BYTES,
    IndexedRow,
    end_of,
    index_path,
    indices,
    matching_bytes,
    read_index,
    sound,
)
from gym_view.labels import decode_labelled, load_labels, put_label
from gym_view.page_figures import page_figures, page_figures_and_means
from gym_view.row import card_json
from gym_view.row_fields import column, figures_in
from gym_view.run_comparison import Means, compare
from gym_view.run_files import Run, describe, find_runs
from gym_view.search import offsets_of
from gym_view.vocabulary import Vocabulary

HOST = "127.0.0.1"
MAX_ANSWER_BYTES = 4 * 2**20 // RECORD_BYTES * RECORD_BYTES
MAX_MATCHES = 100_000
KEPT_RUNS = 16
MOST_FIRST_ROWS = 10_000
_BLANK_BYTES = 100
Computed = TypeVar("Computed")
SystemState = Callable[[], Awaitable[Any]]
"""Asks a running system what ``gym-runtime status --json`` prints."""
_PAGE_FILES = {"": "index.html", "page.js": "page.js", "page.css": "page.css"}
_decode_path = msgspec.json.Decoder(str).decode


class Indexer:
    """The process that indexes, seen from the server. ``busy`` are the files that it works on."""

    def __init__(self, process: anyio.abc.Process) -> None:
        self._process = process
        self._asked: dict[Path, tuple[int, ...]] = {}
        self.busy: set[Path] = set()

    async def ask(self, rows: Path, state: tuple[int, ...]) -> None:
        """Have a file indexed up to its end; once for each ``state`` of it and its index: it may end torn."""
        if rows not in self.busy and self._asked.get(rows) != state and self._process.stdin is not None:
            self.busy.add(rows)
            self._asked[rows] = state
            await self._process.stdin.send(msgspec.json.encode(str(rows)) + b"\n")

    def forget(self, rows: Path) -> None:
        """A file may be asked for again in the same state: its index was complete, or is broken."""
        self._asked.pop(rows, None)

    async def listen(self) -> None:
        """Take in which files are done, until it ends."""
        assert self._process.stdout is not None
        rest = b""
        async for chunk in self._process.stdout:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self.busy.discard(Path(_decode_path(line)))
        self.busy.clear()


class ViewerServer:
    """The routes. ``find_runs`` is called again whenever the list of runs is asked for."""

    def __init__(
        self,
        find_runs: Callable[[], list[Run]],
        indexer: Indexer,
        system: SystemState | None = None,
        vocabulary: Vocabulary | None = None,
    ) -> None:
        self._find_runs = find_runs
        self._system = system
        self._vocabulary = vocabulary
        self._indexer = indexer
        self._runs: dict[str, Run] = {}
        self._known = _Figures()
        self._one_at_a_time = anyio.CapacityLimiter(1)

    def routes(self) -> list[web.RouteDef]:
        """What can be asked for."""
        return [
            *(web.get(f"/{path}", partial(self._page, name)) for path, name in _PAGE_FILES.items()),
            web.get("/data/runs.json", self._list),
            web.get("/data/system.json", self._state),
            web.get("/data/compare.json", self._compare),
            web.get("/data/{run}/figures.json", self._figures),
            web.get("/data/{run}/fields.json", self._fields),
            web.get("/data/{run}/labels.json", self._labels),
            web.post("/data/{run}/labels.json", self._label),
            web.get("/data/{run}/{part}.column", self._column),
            web.get("/data/{run}/{part}.idx", self._index),
            web.get("/data/{run}/{part}.card", self._card),
            web.get("/data/{run}/{part}.jsonl", self._rows),
            web.get("/data/{run}/{part}.found", self._found),
        ]

    async def find(self) -> list[Run]:
        """Look for runs; raises UsageError if none is found."""
        runs = await anyio.to_thread.run_sync(self._find_runs)
        self._runs = {run.id: run for run in runs}
        return runs

    async def _page(self, name: str, request: web.Request) -> web.StreamResponse:
        with resources.as_file(resources.files("gym_view") / "static" / name) as path:
            return web.FileResponse(path)

    async def _list(self, request: web.Request) -> web.Response:
        try:
            runs = await self.find()
        except UsageError:  # all of them were deleted while the page was open
            runs = []
        described = await anyio.to_thread.run_sync(lambda: [describe(run) for run in runs])
        about = {"mode": "server", "runs": described, "system": self._system is not None}
        return _json(msgspec.json.encode(about))

    async def _state(self, request: web.Request) -> web.Response:
        """The system's workers, queues and runs."""
        if self._system is None:
            raise web.HTTPNotFound(text="no system was named: gym-runtime view --nats URL\n")
        try:
            state = await self._system()
        except GymError as error:
            return web.Response(status=503, text=f"{error}\n")
        return _json(msgspec.json.encode(state))

    async def _index(self, request: web.Request) -> web.Response:
        """Index records from byte ``from`` on, at most `MAX_ANSWER_BYTES`; the rest is still being indexed.

        ``X-Generation`` changes when the file is another than before; ``X-Rows-Bytes`` and
        ``X-Indexed-Bytes`` say how far the index is.
        """
        rows = await self._file(request)
        start = _number(request.query.get("from", "0"))
        was_busy = rows in self._indexer.busy  # it may end after we read, with records that we did not see
        found = await anyio.to_thread.run_sync(_records, rows, start)
        if found.broken or found.end_bytes == found.state[0]:
            self._indexer.forget(rows)
        if found.end_bytes < found.state[0]:
            await self._indexer.ask(rows, (*found.state, found.end_bytes))
        return web.Response(
            body=found.records,
            content_type="application/octet-stream",
            headers={
                "X-Generation": found.generation,
                "X-Rows-Bytes": str(found.state[0]),
                "X-Indexed-Bytes": str(found.end_bytes),
                "X-Indexing": str(int(was_busy or rows in self._indexer.busy)),
                "X-More-Bytes": str(found.more_bytes),
            },
        )

    async def _rows(self, request: web.Request) -> web.StreamResponse:
        rows = await self._file(request)
        response = web.FileResponse(rows, chunk_size=2**18)
        response.content_type = "application/octet-stream"  # never shown by the browser itself
        return response

    async def _found(self, request: web.Request) -> web.StreamResponse:
        """Offsets in the file at which rows with the text ``q`` stand, a line each, while it looks."""
        rows = await self._file(request)
        text = request.query.get("q", "")
        if not text:
            raise web.HTTPBadRequest(text="q is empty\n")
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        count = 0
        blocks = offsets_of(rows, text)
        with suppress(ConnectionError):  # the page has gone, or looks for another text
            while count < MAX_MATCHES:
                offsets = await anyio.to_thread.run_sync(next, blocks, None)
                if offsets is None:
                    break
                count += len(offsets)
                await response.write("".join(f"{offset}\n" for offset in offsets).encode() or b"\n")
        return response

    async def _card(self, request: web.Request) -> web.Response:
        """The card of the row of ``size`` bytes at byte ``from``; null if it is no JSON object."""
        rows = await self._file(request)
        start, size = (_number(request.query.get(name, "")) for name in ("from", "size"))
        return _json(await anyio.to_thread.run_sync(_card_of, rows, start, size, self._vocabulary))

    async def _figures(self, request: web.Request) -> web.Response:
        """The page's figures of a run, as far as it is indexed; or of its first ``most`` rows, at once."""
        run = await self._run(request.match_info["run"])
        if "most" in request.query:
            most = min(_number(request.query["most"]), MOST_FIRST_ROWS)
            return _json(await anyio.to_thread.run_sync(_first_figures_of, run, most))
        return _json(await self._computed(self._known.of, run, _state(run)))

    async def _fields(self, request: web.Request) -> web.Response:
        """The fields of a run's rows: every row is read."""
        run = await self._run(request.match_info["run"])
        return _json(await self._computed(_fields_of, run, _state(run)))

    async def _labels(self, request: web.Request) -> web.Response:
        """What a person says of a run's rollouts."""
        run = await self._run(request.match_info["run"])
        return _json(msgspec.json.encode(await anyio.to_thread.run_sync(load_labels, run.rollouts)))

    async def _label(self, request: web.Request) -> web.Response:
        """Store what a person says of one rollout."""
        run = await self._run(request.match_info["run"])
        try:
            said = decode_labelled(await request.read())
            await self._computed(put_label, run.rollouts, said)
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            raise web.HTTPBadRequest(text=f"this is no label: {error}\n") from None
        return _json(b"null")

    async def _column(self, request: web.Request) -> web.Response:
        """The values of the field ``name`` in the rows from byte ``from`` on."""
        rows = await self._file(request)
        name, start = request.query.get("name", ""), _number(request.query.get("from", "0"))
        return _json(await self._computed(_column_of, rows, name, start))

    async def _compare(self, request: web.Request) -> web.Response:
        """The comparison of the runs ``a`` and ``b``, as far as they are indexed."""
        a, b = [await self._run(request.query.get(name, "")) for name in ("a", "b")]
        return _json(await self._computed(self._known.compared, a, _state(a), b, _state(b)))

    async def _computed(self, compute: Callable[..., Computed], *given: Any) -> Computed:
        return await anyio.to_thread.run_sync(compute, *given, limiter=self._one_at_a_time)

    async def _run(self, name: str) -> Run:
        if name not in self._runs:
            await self.find()
        if name not in self._runs:
            raise web.HTTPNotFound(text=f"there is no run {name}\n")
        run = self._runs[name]
        if not run.rollouts.is_file():
            raise web.HTTPConflict(text=f"{run.rollouts} is not there any more\n")
        return run

    async def _file(self, request: web.Request) -> Path:
        run = await self._run(request.match_info["run"])
        path = run.parts.get(request.match_info["part"])
        if path is None:
            raise web.HTTPNotFound(text=f"there is no such file in the run {run.id}\n")
        return path


class _Records(msgspec.Struct, frozen=True):
    """``state`` is the size and the time of change of the file of rows; ``broken``: the index was removed."""

    state: tuple[int, int]
    records: bytes = b""
    generation: str = ""
    end_bytes: int = 0
    more_bytes: int = 0
    broken: bool = False


def _records(rows: Path, start: int) -> _Records:
    """Index records from a byte on, and up to where in the file of rows they are, in all."""
    stat = rows.stat()
    state = stat.st_size, stat.st_mtime_ns
    place = index_path(rows)
    try:
        fd = open_own(place, os.O_RDONLY)
    except (OSError, UsageError):  # it is not made yet, or is no file of ours and will be replaced
        return _Records(state)
    try:
        keep = matching_bytes(fd, rows)
        if keep <= HEADER_BYTES:
            return _Records(state)
        start = max(HEADER_BYTES, start)
        records = os.pread(fd, min(MAX_ANSWER_BYTES, max(0, keep - start)), start)
        before = end_of(os.pread(fd, RECORD_BYTES, start - RECORD_BYTES)) if start > HEADER_BYTES else 0
        if not sound(records, rows.stat().st_size, before):
            place.unlink(missing_ok=True)
            return _Records(state, broken=True)
        return _Records(
            state,
            records,
            os.pread(fd, HEADER_BYTES, 0)[16:24].hex(),
            _end_of_rows(rows, end_of(os.pread(fd, RECORD_BYTES, keep - RECORD_BYTES))),
            max(0, keep - start - MAX_ANSWER_BYTES),
        )
    finally:
        os.close(fd)


def _end_of_rows(rows: Path, end: int) -> int:
    """The end of the last row; of the file where only blank lines follow, as an editor may leave them."""
    with rows.open("rb") as file:
        file.seek(end)
        rest = file.read(_BLANK_BYTES)
    return end if rest.strip() or len(rest) == _BLANK_BYTES else end + len(rest)


def _card_of(rows: Path, start: int, size: int, vocabulary: Vocabulary | None) -> bytes:
    with rows.open("rb") as file:
        file.seek(start)
        return card_json(file.read(min(size, MAX_LINE_BYTES)), vocabulary, rows.parent)


def _state(run: Run) -> tuple[tuple[int, int, int], ...]:
    """Of each file of a run its size, when it changed, and the size of its index."""
    found: list[tuple[int, int, int]] = []
    for rows in run.parts.values():
        stat, index = rows.stat(), index_path(rows)
        found.append((stat.st_size, stat.st_mtime_ns, index.stat().st_size if index.is_file() else 0))
    return tuple(found)


def _first_figures_of(run: Run, most: int) -> bytes:
    def read(rows: Path) -> list[IndexedRow]:
        # Failures may be of later rollouts.
        return first if rows == run.rollouts else []

    first = list(islice(read_index(_records(run.rollouts, HEADER_BYTES).records), most))
    return msgspec.json.encode(page_figures(run, read))


class _Figures:
    """Figures of the last runs, each in its last state, and what a comparison needs of them."""

    def __init__(self) -> None:
        self._known: dict[Run, tuple[object, bytes, Means]] = {}

    def of(self, run: Run, state: object) -> bytes:
        return self._read(run, state)[1]

    def compared(self, a: Run, state_a: object, b: Run, state_b: object) -> bytes:
        means = self._read(a, state_a)[2], self._read(b, state_b)[2]
        return msgspec.json.encode(compare(*means))

    def _read(self, run: Run, state: object) -> tuple[object, bytes, Means]:
        known = self._known.pop(run, None)
        if known is None or known[0] != state:
            figures, means = page_figures_and_means(run, _indexed)
            known = state, msgspec.json.encode(figures), means
        self._known[run] = known
        if len(self._known) > KEPT_RUNS:
            del self._known[next(iter(self._known))]
        return known


# The state is a part of the key: the same run in the same state has the same fields.
@lru_cache(maxsize=64)
def _fields_of(run: Run, state: object) -> bytes:
    return msgspec.json.encode(figures_in(run))


def _column_of(rows: Path, name: str, start: int) -> bytes:
    return msgspec.json.encode(list(column(rows, name, start)))


def _indexed(rows: Path) -> Iterator[IndexedRow]:
    """The rows of a file that are indexed."""
    found: list[bytes] = []
    at, more = HEADER_BYTES, True
    while more:
        part = _records(rows, at)
        found.append(part.records)
        at += len(part.records)
        more = part.more_bytes > 0
    return read_index(b"".join(found))


@web.middleware
async def _told(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The page is told in a line what is in the way, such as a file that we may not read any more."""
    try:
        return await handler(request)
    except UsageError as error:
        raise web.HTTPConflict(text=f"{error}\n") from None
    except ConnectionError:  # it is the page that has gone
        raise
    except OSError as error:
        what = error.filename or "a file"
        raise web.HTTPConflict(text=f"{what} cannot be read: {error.strerror}\n") from None


def _json(body: bytes) -> web.Response:
    return web.json_response(body=body)


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > 15:
        raise web.HTTPBadRequest(text="this is not a number of bytes\n")
    return int(text)


@asynccontextmanager
async def serve(
    places: Sequence[Path],
    port: int = 0,
    system: SystemState | None = None,
    *,
    failures_as_zero: bool = False,
    vocabulary: Vocabulary | None = None,
    headers_s: float = HEADERS_S,
) -> AsyncGenerator[Access]:
    """Serve the page on the loopback address while the block runs; gives what its address is.

    With a ``system`` the page shows that too, and there need be no rollouts yet. With ``failures_as_zero``
    failed rollouts count with a reward of 0; with a ``vocabulary`` tokens have texts.

    A connection has ``headers_s`` for the headers of each request.

    Raises:
        UsageError: there is nothing to show, the port is taken, or the cache cannot be used.
    """
    private_folder(indices())
    with _listen(port) as listener:
        access = Access(listener.getsockname()[1])
        find = partial(find_runs, places, failures_as_zero=failures_as_zero)
        if system is None:
            await anyio.to_thread.run_sync(find)
        async with _indexer() as indexer:
            server = ViewerServer(find, indexer, system, vocabulary)
            app = web.Application(middlewares=[access.middleware, _told])
            app.on_response_prepare.append(access.protect)
            app.add_routes(server.routes())
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, keepalive_timeout=headers_s)
            await runner.setup()
            try:
                await web.SockSite(runner, listener).start()
                yield access
            finally:
                with anyio.CancelScope(shield=True):
                    await runner.cleanup()


@asynccontextmanager
async def _indexer() -> AsyncGenerator[Indexer]:
    command = [sys.executable, "-m", "gym_view.indexing"]
    async with (
        # In its own session: a terminal's Ctrl-C is for this process, which then ends the indexer.
        await anyio.open_process(command, stderr=None, start_new_session=True) as process,
        anyio.create_task_group() as group,
    ):
        indexer = Indexer(process)
        group.start_soon(indexer.listen)
        try:
            yield indexer
        finally:
            with suppress(ProcessLookupError):  # it has ended by itself
                process.kill()  # an index is whole after every write
            group.cancel_scope.cancel()


def _listen(port: int) -> socket:
    try:
        # It may reuse the port: closed connections of an earlier server would hold it for a minute.
        return create_server((HOST, port))
    except OSError as error:
        raise UsageError(f"cannot listen on port {port}: {error.strerror}; choose another --port") from None

"""An inference engine that isn't one: an OpenAI-compatible HTTP server for tests and benchmarks.

    PYTHONPATH=tests python -m stubs.stub_engine --port 0 --latency-s 0.2 --api both

prints its base URL on the first line and serves ``POST /v1/responses``, ``POST /v1/chat/completions``,
``GET /v1/models``, ``GET /health``, ``GET /metrics`` and ``GET /stats`` (``POST /stats`` also sets the counts
to zero), ``GET /last`` (the last call as it arrived), ``GET /kv/SHARE`` (the metrics report so much of its
cache as used), and the first two also below ``/openai``, as Azure has them. It costs about 40 µs of CPU per
request, so that a benchmark measures what stands before it: raw `asyncio.Protocol`, answers written in one
piece, on uvloop where there is one.

Faults come at random (``--fault 429=0.05``), per request (header ``x-stub-fault: cut``), or by the
model's name (``fault:cut``, which every stub serves):

===========  ==========================================================================
``401``      no valid key              ``404``      no such model
``429``      rate limit, Retry-After   ``500`` ``503``  broken, overloaded
``context``  400, the prompt is longer than the context
``filter``   400, the content filter   ``quota``    429 that no waiting cures
``malformed``  JSON that stops short   ``html``     a proxy's page with status 502
``foreign``  200, but another service's JSON
``cut``      the connection breaks in the middle of the body
``drop``     the connection breaks before the first byte
``slow``     the first byte comes after ``--slow-s``
``hang``     no answer at all
===========  ==========================================================================
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import cast

import freezing
import msgspec
from stubs.stub_behaviour import FAULTS, Answer, Engine, Settings, Stats
from stubs.stub_dialects import DONE
from stubs.stub_limits import Seen


class Connection(asyncio.Protocol):
    """One client connection: frames requests, writes answers, counts who leaves early."""

    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
        self._engine = engine
        self._loop = loop
        self._buffer = bytearray()
        self._needed = 0
        self._busy = False
        self._timer: asyncio.TimerHandle | None = None
        self._queued: Answer | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._engine.stats.connections += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self._engine.stats.connections -= 1
        if self._timer is not None:
            self._timer.cancel()
        if self._busy:
            self._engine.stats.in_flight -= 1
            self._engine.stats.aborted += 1
            self._busy = False
            self._leave()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._busy and len(self._buffer) >= self._needed:
            self._next()

    def _next(self) -> None:
        buffer = self._buffer
        end = buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(buffer[: end + 2])
        lower = head.lower()
        start = lower.find(b"\r\ncontent-length:")
        length = int(lower[start + 17 : lower.find(b"\r\n", start + 17)]) if start >= 0 else 0
        self._needed = end + 4 + length
        if len(buffer) < self._needed:
            return
        body = bytes(buffer[end + 4 : self._needed])
        del buffer[: self._needed]
        self._needed = 0
        method, path, _ = head.split(b" ", 2)
        answer = self._engine.answer(method, path, lower, body)
        stats = self._engine.stats
        if method == b"POST" and path != b"/stats":
            stats.requests += 1
            stats.bytes_in += len(body)
            stats.bytes_out += len(answer.body)
            stats.in_flight += 1
            stats.max_in_flight = max(stats.max_in_flight, stats.in_flight)
            self._busy = True
            self._engine.note(method, path, head, body)
            if not self._engine.enter(self):
                self._queued = answer
                return
        self.generate(answer)

    def generate(self, answer: Answer | None = None) -> None:
        """Begin an answer: this one, or the one that waited for a place."""
        answer, self._queued = answer or self._queued, None
        if answer is None or answer.fault == "hang":
            return
        if answer.delay_s > 0:
            self._timer = self._loop.call_later(answer.delay_s, self._write, answer)
        else:
            self._write(answer)

    def _write(self, answer: Answer) -> None:
        self._timer = None
        if self._busy:
            self._busy = False
            self._engine.stats.in_flight -= 1
            self._leave()
        if answer.fault == "drop":
            self._transport.abort()
            return
        if answer.fault == "cut":
            self._transport.write(answer.head() + answer.body[: len(answer.body) // 2])
            self._transport.close()
            return
        self._transport.write(answer.head() + answer.body)
        if self._buffer:
            self._next()

    def _leave(self) -> None:
        following = self._engine.leave(self)
        if isinstance(following, Connection):
            following.generate()


async def serve(settings: Settings, *, host: str, port: int, exit_on_eof: bool) -> None:
    """Serve until SIGTERM or SIGINT, or until standard input ends; prints the URL when ready."""
    loop = asyncio.get_running_loop()
    engine = Engine(settings)
    over = asyncio.Event()
    server = await loop.create_server(lambda: Connection(engine, loop), host, port, backlog=16_384)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, over.set)
    if exit_on_eof:
        loop.add_reader(sys.stdin.fileno(), lambda: os.read(sys.stdin.fileno(), 4096) or over.set())
    print(f"http://{host}:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await over.wait()


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="stub_engine", description="An OpenAI-compatible stub engine.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 lets the system choose")
    parser.add_argument("--api", choices=["responses", "chat", "both"], default="both")
    parser.add_argument("--latency-s", type=float, default=0.0, help="of every answer")
    parser.add_argument("--models", default="stub", help="names, with commas between them")
    parser.add_argument("--require-key", default="", metavar="KEY")
    parser.add_argument("--context-tokens", type=int, default=0, help="0 for no limit; 4 bytes are a token")
    parser.add_argument("--text", default=DONE, help="what its messages say")
    parser.add_argument(
        "--fault", action="append", default=[], metavar="NAME=FRACTION", help=", ".join(FAULTS)
    )
    parser.add_argument("--retry-after-s", type=float, default=1.0)
    parser.add_argument("--slots", type=int, default=0, help="answers at a time; the rest queue")
    parser.add_argument("--rate-limit", type=int, default=0, help="calls in a window; 0 for no limit")
    parser.add_argument("--rate-window-s", type=float, default=1.0)
    parser.add_argument("--slow-s", type=float, default=1.0)
    parser.add_argument("--silent-health", action="store_true", help="leave GET /health without an answer")
    parser.add_argument("--seed", type=int, default=0, help="of the random faults")
    parser.add_argument("--exit-on-eof", action="store_true", help="end when standard input does")
    given = parser.parse_args(arguments)
    faults = {name: float(rate or 1) for name, _, rate in (text.partition("=") for text in given.fault)}
    if unknown := set(faults) - set(FAULTS):
        parser.error(f"no such fault: {', '.join(unknown)}; there are {', '.join(FAULTS)}")
    settings = Settings(
        api=given.api,
        latency_s=given.latency_s,
        models=tuple(given.models.split(",")),
        require_key=given.require_key,
        context_tokens=given.context_tokens,
        text=given.text,
        retry_after_s=given.retry_after_s,
        slots=given.slots,
        rate_limit=given.rate_limit,
        rate_window_s=given.rate_window_s,
        slow_s=given.slow_s,
        silent_health=given.silent_health,
        faults=faults,
        seed=given.seed,
    )
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        import uvloop
    except ModuleNotFoundError:
        runner = asyncio.Runner()
    else:
        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    with runner:
        runner.run(serve(settings, host=given.host, port=given.port, exit_on_eof=given.exit_on_eof))


class StubEngine:
    """A stub engine in its own process, seen from the outside.

    Attributes:
        url: its base URL, such as ``http://127.0.0.1:41234/v1``.
        pid: of its process.
    """

    def __init__(self, url: str, pid: int) -> None:
        self.url = url
        self.pid = pid

    def last(self) -> Seen:
        """The last call as it arrived; blocks for a millisecond."""
        return msgspec.json.decode(self._ask("/last"), type=Seen)

    def stats(self, *, reset: bool = False) -> Stats:
        """The counts until now; blocks for a millisecond."""
        return msgspec.json.decode(self._ask("/stats", b"" if reset else None), type=Stats)

    def set_kv_usage(self, share: float) -> None:
        """Its metrics say from now on that so much of its cache is in use; blocks for a millisecond."""
        self._ask(f"/kv/{share}")

    @contextlib.contextmanager
    def frozen(self) -> Generator[None]:
        """Stop its process within the block: it accepts connections and answers nothing, nor `stats`."""
        with freezing.frozen(self.pid):
            yield

    def _ask(self, path: str, body: bytes | None = None) -> bytes:
        # An opener of urllib's loads all certificates from Python 3.12 on: 25 ms of CPU.
        connection = http.client.HTTPConnection(self.url.removeprefix("http://").removesuffix("/v1"))
        with contextlib.closing(connection):
            connection.request("GET" if body is None else "POST", path, body)
            answer = connection.getresponse()
            assert answer.status == 200, f"{path} was answered {answer.status}"
            return answer.read()


COMMAND = [
    sys.executable,
    "-c",
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from stubs.stub_engine import main; main()",
    str(Path(__file__).parents[1]),
]
"""Starts a stub engine from any directory; flags follow."""


@contextlib.contextmanager
def running(*flags: str) -> Generator[StubEngine]:
    """A stub engine with these command-line flags, ended at the end of the block, if not before."""
    command = [*COMMAND, "--exit-on-eof", *flags]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        url = process.stdout.readline().strip()
        if not url:
            raise RuntimeError(f"the stub engine did not start: {' '.join(command)}")
        try:
            yield StubEngine(url, process.pid)
        finally:
            process.stdin.close()


if __name__ == "__main__":
    main()

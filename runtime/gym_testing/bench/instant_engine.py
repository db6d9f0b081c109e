"""An engine without a model, for benchmarks: it answers the Responses API with fixed texts.

A conversation without a tool's output gets a tool call, any other a message. An answer costs it 30 µs, so
that what is measured stands before it. It runs in its own process (``python -m
gym_testing.bench.instant_engine``), prints its base URL, and ends when its standard input does.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Generator
from typing import cast

from gym_runtime import make_response

_TOOL_CALL = {
    "type": "function_call",
    "call_id": "call_1",
    "name": "get_weather",
    "arguments": '{"city":"San Francisco"}',
}
_TOOL_OUTPUT = b'"function_call_output"'
_LENGTH = b"\r\ncontent-length:"


def _answer(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
        len(body),
        body,
    )


CALL = _answer(make_response(_TOOL_CALL))
MESSAGE = _answer(make_response("It is cold in San Francisco."))
MODELS = _answer(b'{"object":"list","data":[{"id":"bench","object":"model"}]}')


class Calls:
    """The calls in progress, and how many there were at most."""

    def __init__(self) -> None:
        self.now = self.most = 0

    def begin(self) -> None:
        self.now += 1
        self.most = max(self.most, self.now)


class Connection(asyncio.Protocol):
    """One client, whose requests come one after the other."""

    def __init__(self, latency_s: float, calls: Calls) -> None:
        self._latency_s = latency_s
        self._calls = calls
        self._loop = asyncio.get_running_loop()
        self._parts: list[bytes] = []
        self._missing = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._parts.append(data)
        self._missing -= len(data)
        if self._missing > 0:
            return
        request = b"".join(self._parts)
        self._parts = [request]
        end = request.find(b"\r\n\r\n")
        if end < 0:
            return
        head = request[: end + 2].lower()
        at = head.find(_LENGTH)
        length = int(head[at + len(_LENGTH) : head.index(b"\r\n", at + 2)]) if at >= 0 else 0
        self._missing = end + 4 + length - len(request)
        if self._missing > 0:
            return
        self._parts, self._missing = [], 0
        if head.startswith(b"get /most"):
            self._write(_answer(b"%d" % self._calls.most))
            return
        if not head.startswith(b"post"):
            self._write(MODELS)
            return
        self._calls.begin()
        answer = MESSAGE if _TOOL_OUTPUT in request else CALL
        if self._latency_s:
            self._loop.call_later(self._latency_s, self._finish, answer)
        else:
            self._finish(answer)

    def _finish(self, answer: bytes) -> None:
        self._calls.now -= 1
        self._write(answer)

    def _write(self, answer: bytes) -> None:
        if self._transport is not None:
            self._transport.write(answer)


async def _serve(latency_s: float) -> None:
    loop = asyncio.get_running_loop()
    calls = Calls()
    server = await loop.create_server(lambda: Connection(latency_s, calls), "127.0.0.1", 0, backlog=16_384)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    over = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), over.set)
    await over.wait()


@contextlib.contextmanager
def running(latency_s: float = 0.0) -> Generator[tuple[str, int]]:
    """An engine in its own process: its base URL and process id. It ends with the block."""
    command = [sys.executable, "-m", "gym_testing.bench.instant_engine", "--latency-s", str(latency_s)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), process.pid
        finally:
            process.stdin.close()


def main() -> None:
    """Serve until standard input ends."""
    import resource

    import uvloop

    parser = argparse.ArgumentParser()
    parser.add_argument("--latency-s", type=float, default=0.0)
    latency_s = parser.parse_args().latency_s
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    uvloop.run(_serve(latency_s))


if __name__ == "__main__":
    main()

"""An engine without a model, for benchmarks: it answers the Responses API with fixed texts.

The last of ``turns`` answers in a conversation is a message, those before it are tool calls. It runs in its
own process (``python -m gym_testing.bench.instant_engine``), prints its base URL, and ends when its standard
input does.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import subprocess
import sys
from collections.abc import Generator

import anyio
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.buffered import BufferedByteReceiveStream
from gym_runtime import make_response

_TOOL_CALL = {
    "type": "function_call",
    "call_id": "call_1",
    "name": "get_weather",
    "arguments": '{"city":"San Francisco"}',
}
_TOOL_OUTPUT = b'"function_call_output"'
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)")


def _http(body: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    return head + body


CALL = _http(make_response(_TOOL_CALL))
MESSAGE = _http(make_response("It is cold in San Francisco."))
MODELS = _http(b'{"object":"list","data":[{"id":"bench","object":"model"}]}')


class Engine:
    """Answers clients, whose requests come one after the other on each connection."""

    def __init__(self, latency_s: float, turns: int) -> None:
        self._latency_s, self._turns = latency_s, turns
        self._now = self._most = 0

    async def serve(self, client: ByteStream) -> None:
        """Answer one client."""
        requests = BufferedByteReceiveStream(client)
        async with client:
            with contextlib.suppress(anyio.IncompleteRead, anyio.BrokenResourceError):
                while True:
                    head = (await requests.receive_until(b"\r\n\r\n", 1 << 16)).lower()
                    length = _LENGTH.search(head)
                    body = await requests.receive_exactly(int(length[1])) if length else b""
                    await client.send(await self._answer(head, body))

    async def _answer(self, head: bytes, body: bytes) -> bytes:
        if head.startswith(b"get /most"):
            return _http(b"%d" % self._most)
        if not head.startswith(b"post"):
            return MODELS
        self._now += 1
        self._most = max(self._most, self._now)
        await anyio.sleep(self._latency_s)
        self._now -= 1
        return MESSAGE if body.count(_TOOL_OUTPUT) >= self._turns - 1 else CALL


async def _serve(latency_s: float, turns: int) -> None:
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1", backlog=16_384) as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, Engine(latency_s, turns).serve)
        print(f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}/v1", flush=True)
        await anyio.wait_readable(sys.stdin)
        tasks.cancel_scope.cancel()


@contextlib.contextmanager
def running(latency_s: float = 0.0, turns: int = 2) -> Generator[tuple[str, int]]:
    """An engine in its own process: its base URL and process id. It ends with the block."""
    options = ("--latency-s", str(latency_s), "--turns", str(turns))
    command = [sys.executable, "-m", "gym_testing.bench.instant_engine", *options]
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

    parser = argparse.ArgumentParser()
    parser.add_argument("--latency-s", type=float, default=0.0)
    parser.add_argument("--turns", type=int, default=2)
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    anyio.run(_serve, options.latency_s, options.turns, backend_options={"use_uvloop": True})


if __name__ == "__main__":
    main()

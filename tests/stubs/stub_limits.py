"""What bounds the stub engine: places to generate in, with a queue before them, and a rate limit."""

from __future__ import annotations

import time

import msgspec


class RateLimit:
    """So many calls in a fixed window, as hosts report it: OpenAI's header names.

    ``calls`` 0 is no limit. The window begins with the first call that finds none open.
    """

    def __init__(self, calls: int, window_s: float) -> None:
        self._calls = calls
        self._window_s = window_s
        self._left = 0
        self._ends_s = 0.0

    def take(self) -> tuple[bool, bytes]:
        """Whether a call may pass, and what the answer's headers say of the limit."""
        if not self._calls:
            return True, b""
        now_s = time.monotonic()
        if now_s >= self._ends_s:
            self._left, self._ends_s = self._calls, now_s + self._window_s
        passes = self._left > 0
        self._left -= passes
        rest_ms = 1000 * (self._ends_s - now_s)
        headers = (
            b"x-ratelimit-limit-requests: %d\r\nx-ratelimit-remaining-requests: %d\r\n"
            b"x-ratelimit-reset-requests: %dms\r\n" % (self._calls, self._left, rest_ms + 1)
        )
        return passes, headers if passes else headers + b"retry-after-ms: %d\r\n" % (rest_ms + 1)


class Places:
    """Places to be answered in, and the queue before them. ``places`` 0 is as many as come."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._queue: dict[object, None] = {}  # in order, and quick to leave
        self._taken = 0

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def enter(self, caller: object) -> bool:
        if self._places and self._taken >= self._places:
            self._queue[caller] = None
            return False
        self._taken += 1
        return True

    def leave(self, caller: object) -> object | None:
        if caller in self._queue:
            del self._queue[caller]
            return None
        if self._queue:
            following = next(iter(self._queue))
            del self._queue[following]
            return following
        self._taken -= 1
        return None


class Seen(msgspec.Struct):
    """One request as it arrived: for tests of what is sent."""

    method: str = ""
    path: str = ""
    headers: dict[str, str] = {}
    body: str = ""


def seen(method: bytes, path: bytes, head: bytes, body: bytes) -> Seen:
    """Names of headers in lower case."""
    lines = (line.partition(b":") for line in head.split(b"\r\n")[1:] if line)
    headers = {name.decode().lower(): value.strip().decode() for name, _, value in lines}
    return Seen(
        method=method.decode(), path=path.decode(), headers=headers, body=body.decode(errors="replace")
    )


def metrics(running: int, waiting: int, kv_usage: float) -> bytes:
    """A body of ``GET /metrics``, in vLLM's names."""
    return (
        b"# TYPE vllm:num_requests_running gauge\n"
        b'vllm:num_requests_running{engine="0",model_name="stub"} %d.0\n'
        b"# TYPE vllm:num_requests_waiting gauge\n"
        b'vllm:num_requests_waiting{engine="0",model_name="stub"} %d.0\n'
        b"# TYPE vllm:kv_cache_usage_perc gauge\n"
        b'vllm:kv_cache_usage_perc{engine="0",model_name="stub"} %.3f\n' % (running, waiting, kv_usage)
    )

"""What the stub engine answers to a request, faults included. It knows nothing of sockets."""

from __future__ import annotations

import random

import msgspec
from stubs import stub_dialects as dialects
from stubs import stub_limits as limits

REASONS = {
    200: b"OK",
    400: b"Bad Request",
    401: b"Unauthorized",
    404: b"Not Found",
    429: b"Too Many Requests",
    500: b"Internal Server Error",
    502: b"Bad Gateway",
    503: b"Service Unavailable",
}
FAULTS = (
    *("401", "404", "429", "500", "503", "context", "filter", "quota", "malformed", "html", "foreign"),
    *("cut", "drop", "slow", "hang"),
)
_MODEL_PREFIX = "fault:"


class Stats(msgspec.Struct):
    """What the stub has seen. ``aborted``: the client left before its answer was written; ``limited``: calls
    beyond the rate limit; ``metrics`` and ``health``: looks at those; ``bytes_in`` and ``bytes_out``: of the
    bodies of calls and of their answers.
    """

    requests: int = 0
    in_flight: int = 0
    max_in_flight: int = 0
    aborted: int = 0
    faults: int = 0
    limited: int = 0
    metrics: int = 0
    health: int = 0
    connections: int = 0
    bytes_in: int = 0
    bytes_out: int = 0


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says."""

    api: str = "both"
    latency_s: float = 0.0
    models: tuple[str, ...] = ("stub",)
    require_key: str = ""
    context_tokens: int = 0
    text: str = dialects.DONE
    retry_after_s: float = 1.0
    slots: int = 0
    rate_limit: int = 0
    rate_window_s: float = 1.0
    slow_s: float = 1.0
    silent_health: bool = False
    faults: dict[str, float] = {}
    seed: int = 0

    def has_api(self, name: str) -> bool:
        return self.api in (name, "both")


class Answer(msgspec.Struct, frozen=True):
    """What goes out for one request."""

    status: int
    body: bytes
    headers: bytes = b""
    fault: str = ""
    delay_s: float = 0.0

    def head(self) -> bytes:
        reason = REASONS.get(self.status, b"Error")
        return b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n" % (
            self.status,
            reason,
            self.headers,
            len(self.body),
        )


class Engine:
    """Decides what to answer; knows nothing of sockets."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.stats = Stats()
        self._places = limits.Places(settings.slots)
        self._rate = limits.RateLimit(settings.rate_limit, settings.rate_window_s)
        self._last = (b"", b"", b"", b"")
        self._kv_usage = 0.0
        self._random = random.Random(settings.seed)
        self._rates = [(name, rate) for name, rate in settings.faults.items() if rate > 0]

    def answer(self, method: bytes, path: bytes, head: bytes, body: bytes) -> Answer:
        """``head`` is the request's head, in lower case."""
        place, _, query = path.partition(b"?")
        route = place.removeprefix(b"/v1")
        if place.startswith(b"/openai/"):
            return self._azure(method, place.removeprefix(b"/openai"), query, head, body)
        if method == b"POST" and route == b"/responses" and self.settings.has_api("responses"):
            return self._generate(head, body, chat=False)
        if method == b"POST" and route == b"/chat/completions" and self.settings.has_api("chat"):
            return self._generate(head, body, chat=True)
        if route == b"/models":
            return self._refusal(head) or Answer(200, dialects.models_answer(self.settings.models))
        if route == b"/health":
            self.stats.health += 1
            return Answer(200, b"{}", fault="hang" if self.settings.silent_health else "")
        if route == b"/metrics":
            self.stats.metrics += 1
            waiting = self._places.waiting
            return Answer(200, limits.metrics(self.stats.in_flight - waiting, waiting, self._kv_usage))
        if route.startswith(b"/kv/"):
            self._kv_usage = float(route.removeprefix(b"/kv/"))
            return Answer(200, b"{}")
        if route == b"/stats":
            stats = msgspec.json.encode(self.stats)
            if method == b"POST":
                self.stats = Stats(in_flight=self.stats.in_flight, connections=self.stats.connections)
            return Answer(200, stats)
        if route == b"/last":
            return Answer(200, msgspec.json.encode(limits.seen(*self._last)))
        return self._nothing_here()

    def note(self, method: bytes, path: bytes, head: bytes, body: bytes) -> None:
        """Keep a call as it arrived, for ``/last``."""
        self._last = (method, path, head, body)

    def enter(self, caller: object) -> bool:
        """Whether a caller has a place to be answered in; otherwise it queues."""
        return self._places.enter(caller)

    def leave(self, caller: object) -> object | None:
        """A caller is done, or has gone; whose turn it is now, if anybody waits."""
        return self._places.leave(caller)

    def _nothing_here(self) -> Answer:
        return Answer(404, b'{"detail":"Not Found"}')

    def _azure(self, method: bytes, route: bytes, query: bytes, head: bytes, body: bytes) -> Answer:
        """Azure's two surfaces: by deployment with an ``api-version``, and ``/v1``; keys in ``api-key``."""
        key = self.settings.require_key.lower().encode()
        if key and b"\r\napi-key: " + key not in head and b"\r\nauthorization: bearer " + key not in head:
            message = "Access denied due to invalid subscription key or wrong API endpoint."
            return self._error(401, message, "", "401")
        open_head = b"\r\nauthorization: bearer " + key + b"\r\n" + head
        if route.startswith(b"/v1/"):
            return self.answer(method, route, open_head, body)
        parts = route.split(b"/", 3)
        if len(parts) < 4 or parts[1] != b"deployments" or not query.startswith(b"api-version="):
            return self._error(404, "Resource not found", "", "404")
        if parts[2].decode() not in self.settings.models:
            message = "The API deployment for this resource does not exist."
            return self._error(404, message, "", "DeploymentNotFound")
        return self.answer(method, b"/v1/" + parts[3], open_head, body)

    def _generate(self, head: bytes, body: bytes, *, chat: bool) -> Answer:
        if refusal := self._refusal(head):
            return refusal
        try:
            call = dialects.decode_call(body)
        except msgspec.DecodeError as error:
            return self._error(400, str(error), "invalid_request_error")
        if not call.conversation or call.stream:
            wrong = "Missing required parameter: 'input'." if not call.stream else "'stream' is not supported"
            return self._error(400, wrong, "invalid_request_error")
        passes, headers = self._rate.take()
        if not passes:
            self.stats.limited += 1
            return self._error(429, "Rate limit reached.", "requests", "rate_limit_exceeded", headers)
        fault = self._fault(call.model, head)
        limit = self.settings.context_tokens
        if fault in ("", "slow") and limit and len(body) // 4 > limit:
            fault = "context"
        if fault not in ("", "slow", "cut", "drop", "malformed", "hang"):
            return self._fault_answer(fault, call.model)
        if not call.model.startswith(_MODEL_PREFIX) and call.model not in self.settings.models:
            return self._fault_answer("404", call.model)
        write = dialects.chat_answer if chat else dialects.responses_answer
        delay_s = self.settings.slow_s if fault == "slow" else self.settings.latency_s
        text = write(call, len(body), self.settings.text)
        if fault == "malformed":
            text = text[:-20]
        return Answer(200, text, headers, fault=fault, delay_s=delay_s)

    def _refusal(self, head: bytes) -> Answer | None:
        key = self.settings.require_key
        if not key or f"\r\nauthorization: bearer {key.lower()}\r\n".encode() in head:
            return None
        return self._fault_answer("401", "")

    def _fault(self, model: str, head: bytes) -> str:
        start = head.find(b"\r\nx-stub-fault:")
        if start >= 0:
            name = head[start + 15 : head.find(b"\r\n", start + 15)].strip().decode()
        elif model.startswith(_MODEL_PREFIX):
            name = model.removeprefix(_MODEL_PREFIX)
        else:
            name = ""
            for candidate, rate in self._rates:
                if self._random.random() < rate:
                    name = candidate
        if name:
            self.stats.faults += 1
        return name

    def _fault_answer(self, fault: str, model: str) -> Answer:
        match fault:
            case "401":
                message = "Incorrect API key provided: sk-st***key. You can find your API key at example.com."
                return self._error(401, message, "invalid_request_error", code="invalid_api_key")
            case "404":
                return self._error(404, f"The model `{model}` does not exist.", "NotFoundError")
            case "429":
                wait_s = self.settings.retry_after_s
                headers = b"retry-after: %d\r\nretry-after-ms: %d\r\n" % (-(-wait_s // 1), wait_s * 1000)
                return self._error(429, "Rate limit reached.", "tokens", "rate_limit_exceeded", headers)
            case "quota":
                return self._error(
                    429, "You exceeded your current quota.", "insufficient_quota", "insufficient_quota"
                )
            case "context":
                limit = self.settings.context_tokens or 2048
                message = (
                    f"This model's maximum context length is {limit} tokens. However, your messages resulted "
                    f"in {limit + 1} tokens. Please reduce the length of the messages."
                )
                return self._error(400, message, "invalid_request_error", "context_length_exceeded")
            case "filter":
                return self._error(
                    400, "The response was filtered.", "invalid_request_error", "content_filter"
                )
            case "foreign":
                return Answer(200, b'{"hello":"world"}')
            case "html":
                return Answer(502, b"<html><body><h1>502 Bad Gateway</h1></body></html>")
            case "500":
                return self._error(500, "The server had an error.", "server_error")
            case "503":
                return self._error(503, "The engine is overloaded.", "server_error")
            case _:
                return self._error(400, f"no such fault: {fault}", "invalid_request_error")

    def _error(
        self, status: int, message: str, kind: str, code: str | None = None, headers: bytes = b""
    ) -> Answer:
        return Answer(status, dialects.error_answer(message, kind, code=code), headers)

"""What the dialects share: the table of an API for its clients, a request's fields, items, errors, events.

A client's request with a field that cannot be carried is refused with the field's name; only hints that no
engine here can follow are dropped silently. The model's answer arrives whole, so a stream is the answer
divided into events, in each dialect's exact order. What an engine answers is read leniently.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

import msgspec
from gym_runtime.adapters import ModelCall
from gym_runtime.errors import UNREADABLE, TaskError
from msgspec import Raw

from gym_faces.dialects.pieces import encode, present

Kind = Literal[
    "invalid",
    "overflow",
    "unauthorized",
    "forbidden",
    "not_found",
    "method",
    "slow",
    "too_large",
    "media_type",
    "rate_limit",
    "overloaded",
    "timeout",
    "internal",
    "not_offered",
]
MAX_ITEMS = 20_000
MAX_OBJECTS = 500_000
"""Objects and lists of one request, also counting brackets in its texts: three bytes of JSON take hundreds in
memory, and a microsecond each of the event loop."""
MAX_KEYS = 100_000
"""Keys of the objects of one request. To read one takes the interpreter's lock for up to half a microsecond,
so a thread does not spare the event loop that time. A conversation of 20,000 items has up to so many."""
_SLICE_BYTES = 2**16

_HALF = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])")
"""The first half of a surrogate pair, without the second."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A request, read.

    Attributes:
        call: the model call; the gateway sets its ``return_tokens``.
        model: the name that the client used.
        stream: the client wants the answer as events.
        include_usage: for a Chat stream: end with the usage.
        namespaces: the namespace and name of each function that has them; see `responses_api`.
        computer: the computer tool that the client offers by itself; see `computer`.
    """

    call: ModelCall
    model: str
    stream: bool
    include_usage: bool = False
    namespaces: Mapping[str, tuple[str, str]] = {}
    computer: str = ""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Why there is no answer. ``retry_after_s`` is when to retry; None if a retry would not help. Only the
    Messages API sends ``details``, which the client's code reads.
    """

    kind: Kind
    message: str
    retry_after_s: float | None = None
    details: Mapping[str, Any] = {}


class Refusal(Exception):
    """A request that the gateway refuses, for a reason that `gym_runtime.errors` does not cover."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class ApiDialect(msgspec.Struct, frozen=True, kw_only=True):
    """How one API reads and writes what all of them have in common.

    Attributes:
        path: below the base URL.
        read: reads a body; raises `TaskError` if it cannot be carried.
        answer: makes the body of an answer from a response object.
        events: makes the same answer as a stream, event by event.
        error: the status and the body of an error.
        error_event: an error once a stream has begun.
        in_streams: the kinds of errors that a stream tells by events also where nothing was sent before them.
        keep_alive: what a stream that waits is sent, so that proxies keep it open; no client reads it.
    """

    name: str
    path: str
    read: Callable[[bytes], Asked]
    answer: Callable[[Raw, Asked], bytes]
    events: Callable[[Raw, Asked], Iterator[bytes]]
    error: Callable[[Problem], tuple[int, bytes]]
    error_event: Callable[[Problem], bytes]
    in_streams: frozenset[Kind] = frozenset()
    keep_alive: bytes = b": at work\n\n"

    @property
    def end(self) -> str:
        """The end of its paths, by which an address that fits no route is told."""
        return self.path.rpartition("}")[2]


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """How an API counts a conversation's tokens.

    Attributes:
        path: as that of `ApiDialect`.
        read: reads a body; raises `TaskError` if it cannot be carried.
        write: makes the body of the answer from a response whose usage has the count.
        lacking: what the client is told where tokens are not counted.
    """

    path: str
    read: Callable[[bytes], Asked]
    write: Callable[[Raw], bytes]
    lacking: Kind

    @property
    def end(self) -> str:
        """As `ApiDialect.end`."""
        return self.path.rpartition("}")[2]


def counting(call: ModelCall) -> ModelCall:
    """A call that asks for the number of its tokens."""
    # A worker of an older version answers it in full: its answer would be short.
    params = {**msgspec.json.decode(call.params, type=dict[str, Raw]), "max_output_tokens": 1}
    return msgspec.structs.replace(call, params=Raw(encode(params)), count=True)


class ForeignAnswer(Exception):
    """What an engine answered is not an answer of this API."""


class FailedAnswer(Exception):
    """An engine's answer failed, or has not come to its end; `failures.failed` reads the reason."""


class ErrorForm(NamedTuple):
    """How a kind of problem is written: its status, OpenAI's type and code, Anthropic's type."""

    status: int
    openai: str
    code: str | None
    anthropic: str


ERRORS: dict[Kind, ErrorForm] = {
    "invalid": ErrorForm(400, "invalid_request_error", None, "invalid_request_error"),
    "overflow": ErrorForm(400, "invalid_request_error", "context_length_exceeded", "invalid_request_error"),
    "unauthorized": ErrorForm(401, "invalid_request_error", "invalid_api_key", "authentication_error"),
    "forbidden": ErrorForm(403, "invalid_request_error", "forbidden", "permission_error"),
    "slow": ErrorForm(408, "invalid_request_error", "request_timeout", "invalid_request_error"),
    "media_type": ErrorForm(415, "invalid_request_error", "unsupported_media_type", "invalid_request_error"),
    "too_large": ErrorForm(413, "invalid_request_error", "request_too_large", "request_too_large"),
    "not_found": ErrorForm(404, "invalid_request_error", "not_found", "not_found_error"),
    "method": ErrorForm(405, "invalid_request_error", "method_not_supported", "invalid_request_error"),
    "rate_limit": ErrorForm(429, "requests", "rate_limit_exceeded", "rate_limit_error"),
    "overloaded": ErrorForm(503, "server_error", "server_overloaded", "overloaded_error"),
    "timeout": ErrorForm(504, "server_error", "timeout", "timeout_error"),
    "internal": ErrorForm(500, "server_error", None, "api_error"),
    "not_offered": ErrorForm(501, "server_error", "not_implemented", "api_error"),
}


def openai_error(problem: Problem) -> tuple[int, bytes]:
    """Status and body of an error as OpenAI's two APIs write it."""
    form = ERRORS[problem.kind]
    error = {"message": problem.message, "type": form.openai, "param": None, "code": form.code}
    return form.status, encode({"error": error})


def check_text(body: bytes) -> None:
    """Check also what stays raw, which a decoder does not.

    Raises:
        UnicodeDecodeError: the body is not UTF-8.
    """
    # `isascii` is faster than decoding, and most bodies are ASCII.
    if not body.isascii():
        body.decode()


def check_objects(body: bytes) -> None:
    """
    Raises:
        TaskError: the body has more than `MAX_OBJECTS` objects and lists, or more than `MAX_KEYS` keys.
    """
    if len(body) > MAX_OBJECTS and body.count(b"{") + body.count(b"[") > MAX_OBJECTS:
        raise TaskError(f"the body has more than {MAX_OBJECTS} objects and lists")
    # In slices, between which the event loop has its turn.
    starts, keys = range(0, len(body), _SLICE_BYTES) if len(body) > 4 * MAX_KEYS else (), 0
    for start in starts:
        piece = body[start : start + _SLICE_BYTES]
        if b":" not in piece:  # of an image
            continue
        packed = piece.translate(None, b" \t\r\n")
        # JSON within a text has one backslash before the quotation mark; a key may end with two.
        keys += packed.count(b'":') - packed.count(b'\\":') + packed.count(b'\\\\":')
        if keys > MAX_KEYS:
            raise TaskError(f"the body has more than {MAX_KEYS} keys")


class Fields:
    """The fields of a request's body, to be taken out one by one; ``null`` counts as absent.

    Raises:
        TaskError: the body is not a JSON object in UTF-8, or has too much in it, see `check_objects`.
    """

    def __init__(self, body: bytes) -> None:
        try:
            check_text(body)
        except UnicodeDecodeError as error:
            raise TaskError(
                f"the body is not UTF-8: byte {error.start} is 0x{body[error.start]:02x}"
            ) from error
        check_objects(body)
        try:
            self._left = present(body)
        except UNREADABLE as error:
            half = _HALF.search(body)
            # The decoder takes it for an end in the middle. Harnesses in JavaScript cut texts there.
            why = f"half of a character, {half[0].decode()}, at byte {half.start()}" if half else error
            raise TaskError(f"the body is not a JSON object: {why}") from error

    def take(self, name: str, kind: Any, default: Any = None) -> Any:
        """One field, decoded, or the default.

        Raises:
            TaskError: it is of another type.
        """
        raw = self._left.pop(name, None)
        if raw is None:
            return default
        try:
            return msgspec.json.decode(raw, type=kind)
        except UNREADABLE as error:
            raise TaskError(f"{name}: {error}") from error

    def require(self, name: str, kind: Any) -> Any:
        """As `take`, but it must be there."""
        if name not in self._left:
            raise TaskError(f"{name}: this field is required")
        return self.take(name, kind)

    def take_raw(self, *names: str) -> dict[str, Any]:
        """Those of these fields that are present, undecoded."""
        return {name: self._left.pop(name) for name in names if name in self._left}

    def refuse(self, reasons: Mapping[str, str]) -> None:
        """
        Raises:
            TaskError: one of these fields is present.
        """
        for name, reason in reasons.items():
            if name in self._left:
                raise TaskError(f"{name}: {reason}")

    def rest(self) -> dict[str, Raw]:
        """The fields that were not taken."""
        return self._left


def item(**fields: Any) -> Raw:
    """An item of the fields that are not None."""
    return Raw(encode({name: value for name, value in fields.items() if value is not None}))


def reasoning_item(thought: str) -> Raw:
    """An item with the model's earlier thinking."""
    # The same thinking has the same id in every call, so that a history stays equal byte by byte.
    identity = blake2b(thought.encode(), digest_size=9).hexdigest()
    return item(type="reasoning", id=f"rs_{identity}", summary=[{"type": "summary_text", "text": thought}])


def assistant_message(parts: list[dict[str, Any]]) -> Raw:
    """An item with the model's earlier message."""
    return item(type="message", role="assistant", status="completed", content=parts)


def output_text(text: str) -> dict[str, Any]:
    """A part of such a message."""
    return {"type": "output_text", "text": text, "annotations": []}


def event(data: object, name: str = "") -> bytes:
    """A server-sent event."""
    head = f"event: {name}\n".encode() if name else b""
    body = data if isinstance(data, bytes) else encode(data)
    # A line ends the data. What passes through as JSON may be laid out in lines; its texts hold none.
    if b"\n" in body or b"\r" in body:
        body = msgspec.json.format(body, indent=-1)
    return head + b"data: " + body + b"\n\n"

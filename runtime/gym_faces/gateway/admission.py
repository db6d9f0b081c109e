"""Which requests a gateway accepts; its limits on calls in progress, on their bytes in memory, and on time.

A page in a browser can send requests to this machine, and DNS rebinding can make them look same-origin. So
a request that a browser makes for a page (it has an ``Origin``) is refused, and one whose ``Host`` is foreign
(`gym_data.web.host_names`). Headers that are not UTF-8 are refused, so that no other code meets them.

A call is admitted before its body is read. A body's bytes count when they arrive, not when they are
announced, and until its call is over, because a call consists of slices of its body.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager

import anyio
from aiohttp import web
from gym_data.web.listener import foreign_host
from gym_runtime.plurals import counted
from gym_runtime.timing import RETRY_AFTER_S, WRITE_S

from gym_faces.dialects.dialect import Problem, Refusal

BODY_S = 60.0
"""How long a client may take to send a request's body."""

MAX_BODY_BYTES = 32 * 2**20
"""Anthropic's limit."""
MAX_HELD_BYTES = 512 * 2**20


def check_caller(request: web.BaseRequest, names: Iterable[str]) -> None:
    """
    Raises:
        Refusal: the request is a web page's, its ``Host`` is not one of the gateway's names, or a header is
            not UTF-8.
    """
    for name, value in request.raw_headers:
        try:
            value.decode()
        except UnicodeDecodeError:
            what = f"the header {name.decode('ascii', 'replace')[:100]!r} is not UTF-8"
            raise Refusal(Problem(kind="invalid", message=what)) from None
    # Browsers send it even where they leave out the origin; other clients send neither.
    site = request.headers.get("sec-fetch-site", "none").lower()
    if "origin" in request.headers or site not in ("none", "same-origin"):
        raise _forbidden("requests of web pages (with an Origin) are not answered")
    if problem := foreign_host(request, names):
        raise _forbidden(problem)


class Admission:
    """
    Args:
        capacity: calls in progress at most.
        max_bytes: of the bodies of calls in progress, together.
        body_s: how long a body may take to arrive.

    Attributes:
        in_use: calls in progress.
        held_bytes: of their bodies.
    """

    def __init__(self, capacity: int, *, max_bytes: int = MAX_HELD_BYTES, body_s: float = BODY_S) -> None:
        self.in_use = 0
        self.held_bytes = 0
        self.capacity = capacity
        self.max_bytes = max_bytes
        self.body_s = body_s

    @contextmanager
    def admitted(self) -> Generator[Place]:
        """A place for one call.

        Raises:
            Refusal: all are taken.
        """
        if self.in_use >= self.capacity:
            raise _full(f"the gateway is at its capacity of {counted(self.capacity, 'call')}")
        place = Place(self)
        self.in_use += 1
        try:
            yield place
        finally:
            self.in_use -= 1
            self.held_bytes -= place.held_bytes


class Place:
    """One call's share."""

    __slots__ = ("_admission", "held_bytes")

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self.held_bytes = 0

    def hold(self, size_bytes: int) -> None:
        """Count bytes, which are given back with the place.

        Raises:
            Refusal: there is no room for them.
        """
        whole, most_bytes = self._admission, self._admission.max_bytes
        if whole.held_bytes + size_bytes > most_bytes:
            raise _full(
                f"the bodies of the calls in progress would exceed {most_bytes >> 20} MiB; retry later"
            )
        whole.held_bytes += size_bytes
        self.held_bytes += size_bytes

    async def read(self, request: web.Request, at_most: int = MAX_BODY_BYTES) -> bytes:
        """The body of a call, of so many bytes at most.

        Raises:
            Refusal: it is not JSON, too large, too slow, or exceeds the bytes of all calls in progress.
        """
        _check_type(request)
        too_large = Problem(kind="too_large", message=f"the body is larger than {at_most} bytes")
        # Refused before a byte is read. The bytes are counted all the same: the header is the client's word.
        if (request.content_length or 0) > at_most:
            raise Refusal(too_large)
        body, body_s = bytearray(), self._admission.body_s
        with anyio.move_on_after(body_s) as scope:
            async for piece in request.content.iter_any():
                if len(body) + len(piece) > at_most:
                    raise Refusal(too_large)
                # At once, so that they are given back also when the client leaves in the middle.
                self.hold(len(piece))
                body += piece
        if scope.cancelled_caught:
            message = f"the body did not arrive within {body_s:g} s"
            raise Refusal(Problem(kind="slow", message=message))
        return bytes(body)


@contextmanager
def written(request: web.Request, within_s: float = WRITE_S) -> Generator[anyio.CancelScope]:
    """Close the connection of a client that does not read its answer in time."""
    with anyio.move_on_after(within_s) as scope:
        yield scope
    if scope.cancelled_caught and request.transport is not None:
        # Not `close`, which would wait until the client reads what is buffered.
        request.transport.abort()


async def write(request: web.Request, answer: web.Response, within_s: float = WRITE_S) -> bool:
    """Write a whole answer while its call still has its place; return whether the client read it."""
    with written(request, within_s) as scope:
        await answer.prepare(request)
        await answer.write_eof()
    return not scope.cancelled_caught


def _check_type(request: web.Request) -> None:
    kind = request.content_type.lower() if "content-type" in request.headers else "nothing"
    if kind != "application/json" and not kind.endswith("+json"):
        message = f"the content-type is {kind}; it must be application/json"
        raise Refusal(Problem(kind="media_type", message=message))
    if (request.charset or "utf-8").lower().replace("_", "-") not in ("utf-8", "utf8", "us-ascii"):
        raise Refusal(Problem(kind="media_type", message=f"JSON is UTF-8, not {request.charset}"))
    packed = request.headers.get("content-encoding", "identity").strip().lower()
    if packed not in ("", "identity"):
        raise Refusal(Problem(kind="media_type", message=f"the content-encoding '{packed}' is not supported"))


def _full(message: str) -> Refusal:
    return Refusal(Problem(kind="rate_limit", message=message, retry_after_s=RETRY_AFTER_S))


def _forbidden(message: str) -> Refusal:
    return Refusal(Problem(kind="forbidden", message=message))

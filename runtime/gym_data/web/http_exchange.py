"""One HTTP exchange whose hosts, time and size are checked, with decompression in small steps."""

from __future__ import annotations

import io
import socket
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import aiohttp
import anyio.lowlevel
from aiohttp.abc import AbstractResolver, ResolveResult
from multidict import CIMultiDictProxy
from yarl import URL

from gym_data.web.public_addresses import is_public
from gym_data.web.web_request import Bounds, Guard, PageUnavailable, Unreachable, WebAnswer, WebRequest

STEP_BYTES = 256 << 10
MEMBERS = 1000
"""The parts that one gzip body may have; each costs a new decompressor."""

# zlib's numbers of the formats; servers send either of the last two as "deflate".
_GZIP, _ZLIB, _BARE = 31, 15, -15


def decompressor(encoding: str) -> Callable[[bytes], Iterator[bytes]] | None:
    """What takes a body's chunks and yields its content, at most `STEP_BYTES` at a time; None if unknown.

    What cannot be decompressed raises `PageUnavailable` while it is consumed.
    """
    match encoding.strip().lower():
        case "" | "identity":
            return _as_it_is
        case "gzip" | "x-gzip":
            return _Decompressor(_GZIP)
        case "deflate":
            return _Decompressor(_ZLIB, _BARE)
        case _:
            return None


def _as_it_is(chunk: bytes) -> Iterator[bytes]:
    yield chunk


class _Decompressor:
    """
    Args:
        formats: zlib's numbers of the formats that are tried in turn on the beginning of the body.
    """

    def __init__(self, *formats: int) -> None:
        self._format, self._others = formats[0], formats[1:]
        self._stream = zlib.decompressobj(self._format)
        self._begun = False
        self._members = 0

    def __call__(self, chunk: bytes) -> Iterator[bytes]:
        part = b""
        # A full step may have left output behind, although all input is consumed.
        while chunk or len(part) == STEP_BYTES:
            if self._stream.eof:
                self._next_member()
            try:
                part = self._stream.decompress(chunk, STEP_BYTES)
            except zlib.error as error:
                if self._begun or not self._others:
                    raise PageUnavailable("its compression is broken") from error
                self._format, self._others = self._others[0], self._others[1:]
                self._stream = zlib.decompressobj(self._format)
                continue
            self._begun = True
            chunk = self._stream.unconsumed_tail or self._stream.unused_data
            yield part

    def _next_member(self) -> None:
        self._members += 1
        if self._members > MEMBERS:
            raise PageUnavailable(f"it is compressed in more than {MEMBERS} parts")
        self._stream = zlib.decompressobj(self._format)


HTTP_CONNECT_S = 10.0
"""How long connecting may take; the whole exchange may take longer."""

REDIRECTS = 5
_CHUNK_BYTES = 64 << 10
_SEE_OTHER, _REDIRECTS = 303, frozenset({301, 302, 303, 307, 308})


async def exchange(request: WebRequest, guard: Guard, bounds: Bounds, *, strays: bool = True) -> WebAnswer:
    """Ask, and follow redirects; each hop is checked like the first.

    Args:
        strays: redirects may lead to another origin, to which the request's headers are never sent.

    Raises:
        Unreachable: there was no answer, not all of it, or not in time.
        PageUnavailable: the guard or a bound refuses it.
    """
    place = request.url
    try:
        url = URL(request.url)
        url = url.update_query(request.params) if request.params else url
        place = url.host or place
        with anyio.fail_after(bounds.timeout_s):
            return await _followed(url, request, guard, bounds, strays=strays)
    # Before TimeoutError, of which it is a kind.
    except aiohttp.ServerTimeoutError as error:
        raise Unreachable(f"{place} cannot be reached: no connection within {HTTP_CONNECT_S:g} s") from error
    except TimeoutError as error:
        raise Unreachable(f"{place} did not answer within {bounds.timeout_s:g} s") from error
    except (aiohttp.InvalidURL, ValueError) as error:
        raise PageUnavailable("it is not a plain http or https address") from error
    except (aiohttp.ClientError, OSError) as error:
        raise Unreachable(f"{place} cannot be reached: {_reason(error)}") from error


async def _followed(
    url: URL, request: WebRequest, guard: Guard, bounds: Bounds, *, strays: bool
) -> WebAnswer:
    origin, method = url.origin(), request.method
    checked = _Checked(guard)
    # No cache of names: an address from it would not have been checked by this guard.
    connector = aiohttp.TCPConnector(
        resolver=checked, socket_factory=checked.socket, use_dns_cache=False, force_close=True
    )
    async with aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=HTTP_CONNECT_S),
        auto_decompress=False,
        # A proxy would resolve names and connect without the checks.
        trust_env=False,
    ) as session:
        for _ in range(REDIRECTS + 1):
            guard.check(url)
            own = request.headers if url.origin() == origin else {}
            body = {"Content-Type": "application/json"} if method == "POST" else {}
            headers = {"Accept-Encoding": "gzip, deflate", "User-Agent": "gym-runtime", **body, **own}
            data = io.BytesIO(request.body) if method == "POST" else None  # sent in pieces, however large
            # Redirects are followed here, because each hop has to be checked.
            async with session.request(
                method, url, headers=headers, data=data, allow_redirects=False
            ) as response:
                target = response.headers.get("Location")
                if response.status not in _REDIRECTS or not target:
                    return await _read(response, bounds)
            url = url.join(URL(target))
            # The body of a POST never goes to another origin.
            if url.origin() != origin and (not strays or method == "POST"):
                raise Unreachable(f"{origin.host} redirects to another origin, {url.host}")
            method = "GET" if response.status == _SEE_OTHER else method
    raise PageUnavailable(f"more than {REDIRECTS} redirects")


class _Checked(AbstractResolver):
    """Resolves names to addresses that were checked, and makes sockets for such addresses only."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._addresses = set(guard.private_hosts)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await self._guard.addresses(host, port)
        self._addresses.update(address for _, address in found)
        return [
            ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=0)
            for family, address in found
        ]

    def socket(self, info: tuple[int, int, int, str, tuple[Any, ...]]) -> socket.socket:
        """The last check: it holds however a URL was parsed before."""
        family, kind, protocol, _, address = info
        if str(address[0]) not in self._addresses and not is_public(str(address[0])):
            raise PermissionError("not a public address")
        return socket.socket(family, kind, protocol)

    async def close(self) -> None:
        """There is nothing to close."""


async def _read(response: aiohttp.ClientResponse, bounds: Bounds) -> WebAnswer:
    media_type = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    readable = not bounds.media_types or media_type.startswith(bounds.media_types) or not media_type
    if response.status < 300 and not readable:
        raise PageUnavailable(f"it is {media_type[:80]}, not a page of text")
    too_large = PageUnavailable(f"it is larger than {bounds.size_bytes / 1e6:g} MB")
    # Only a short cut: what is really received is counted below.
    if (response.content_length or 0) > bounds.size_bytes:
        raise too_large
    unpack = decompressor(response.headers.get("Content-Encoding", ""))
    if unpack is None:
        raise PageUnavailable("it is compressed in a way that was not asked for")
    parts: list[bytes] = []
    received_bytes, size_bytes = 0, 0
    async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
        received_bytes += len(chunk)
        for part in unpack(chunk):
            parts.append(part)
            size_bytes += len(part)
            if max(size_bytes, received_bytes) > bounds.size_bytes:
                raise too_large
            # A small body may unpack for long; other rollouts run in between.
            await anyio.lowlevel.checkpoint()
    return WebAnswer(
        status=response.status,
        url=str(response.url),
        media_type=media_type,
        body=b"".join(parts),
        retry_after_s=_pause_s(response.headers),
    )


def _pause_s(headers: CIMultiDictProxy[str]) -> float:
    said = headers.get("Retry-After", "")
    # `isdigit` alone accepts characters that `float` does not; the length keeps out endless waits.
    return float(said) if said.isascii() and said.isdigit() and len(said) < 7 else 0.0


def _reason(error: Exception) -> str:
    """What failed, without the addresses and settings that aiohttp's texts have."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "its name cannot be resolved"
    if isinstance(error, aiohttp.ClientConnectorError):
        return error.os_error.strerror or type(error.os_error).__name__
    return type(error).__name__

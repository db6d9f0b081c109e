"""HTTP by aiohttp: for hosts, which need TLS and perhaps a proxy (`plain_client` has neither)."""

from __future__ import annotations

import io
import socket
from collections.abc import Mapping
from typing import Any

import aiohttp
import anyio
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.connector import Connection
from gym_runtime import UsageError
from yarl import URL

from gym_models.wire import reply
from gym_models.wire.reply import NoAnswer, Reply
from gym_models.wire.sockets import (
    ADDRESSES_S,
    CONNECT_S,
    KEEP_ALIVE_S,
    OPENING_AT_ONCE,
    most_connections,
    probe,
)

_LARGE_BYTES = 1 << 20  # aiohttp warns about larger bodies that are not a stream


class _Connector(aiohttp.TCPConnector):
    """Limits how many connections are opened at the same time, and uses none again on which the server spoke
    unasked. aiohttp has no public place for either.
    """

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self._opening = anyio.Semaphore(OPENING_AT_ONCE, fast_acquire=True)

    async def _create_connection(
        self, req: aiohttp.ClientRequest, traces: list[Any], timeout: aiohttp.ClientTimeout
    ) -> ResponseHandler:
        async with self._opening:
            return await super()._create_connection(req, traces, timeout)

    async def _get(self, key: ConnectionKey, traces: list[Any]) -> Connection | None:
        # aiohttp 3.14 would take what it said for the next request's answer, and wait for its end for ever.
        while (connection := await super()._get(key, traces)) is not None:
            if connection.protocol is not None and not connection.protocol.should_close:
                return connection
            connection.close()
        return None


class AiohttpClient:
    """As `gym_models.wire.plain_client.PlainClient`, and with TLS. ``proxied``: by the proxy, if the
    environment names one.
    """

    def __init__(self, url: str, headers: Mapping[str, str], *, reuse: bool, proxied: bool) -> None:
        self._headers = headers
        self._reuse = reuse
        self._proxied = proxied
        self._proxy = _proxy(url) if proxied else None
        self._urls: dict[str, URL] = {}

    async def __aenter__(self) -> AiohttpClient:
        self._session = aiohttp.ClientSession(
            connector=_Connector(
                limit=most_connections(),
                ttl_dns_cache=ADDRESSES_S,
                force_close=not self._reuse,
                keepalive_timeout=KEEP_ALIVE_S if self._reuse else None,
                socket_factory=_socket,
            ),
            # No cookies: a load balancer's would tie all calls of a worker to one engine.
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=self._headers,
            skip_auto_headers=() if self._proxied else ("User-Agent",),
            proxy=self._proxy,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
            auto_decompress=False,  # `reply` unpacks, up to a limit
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def request(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str] | None, limit_s: float
    ) -> Reply:
        """See `gym_models.wire.plain_client.PlainClient.request`."""
        known = self._urls.get(url)
        if known is None:
            known = self._urls[url] = URL(url)
        data = body if body is None or len(body) < _LARGE_BYTES else io.BytesIO(body)
        timeout = aiohttp.ClientTimeout(total=limit_s, sock_connect=CONNECT_S)
        try:
            # No redirects: one would turn the POST into a GET, and carry the headers to another host.
            async with self._session.request(
                method, known, data=data, headers=headers, timeout=timeout, allow_redirects=False
            ) as answer:
                found: dict[str, str] = {}
                for name, value in answer.headers.items():
                    found.setdefault(name.lower(), value)
                return Reply(answer.status, found, await _read(answer))
        except aiohttp.ClientError as error:
            # Also a connection that took too long, which is no matter of the deadline.
            # Without its cause: aiohttp quotes the line that it cannot read, which may hold the key.
            raise _translate(error) from None


async def _read(answer: aiohttp.ClientResponse) -> bytes:
    limit, failed = reply.limit_bytes(answer.status), answer.status >= 300
    length = answer.content_length
    if length is not None and length > limit and not failed:
        raise reply.TooLarge
    body = bytearray()
    try:
        async for piece in answer.content.iter_any():
            body += piece
            if len(body) > limit:
                if failed:
                    break
                raise reply.TooLarge
            await reply.READING.has_room(answer, len(body))
    finally:
        reply.READING.ended(answer)
    del body[limit:]
    return bytes(body)


def _socket(address: tuple[Any, ...]) -> socket.socket:
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    probe(made)
    return made


def _translate(error: aiohttp.ClientError) -> NoAnswer:
    reason = str(error)
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return NoAnswer(reply.UNTRUSTED, reason)
        # No TLS is spoken there. Any other failure may pass: a server that is overloaded, or that is started
        # again, ends the handshake with an alert.
        case aiohttp.ClientConnectorSSLError() if "WRONG_VERSION_NUMBER" in reason:
            return NoAnswer(reply.UNTRUSTED, reason)
        case aiohttp.ClientConnectorDNSError():
            return NoAnswer(reply.UNRESOLVED)
        case aiohttp.ClientConnectorError(os_error=ConnectionRefusedError()):
            return NoAnswer(reply.REFUSED)
        case aiohttp.ClientConnectorError() | aiohttp.ServerTimeoutError():
            return NoAnswer(reply.NO_CONNECTION, reason or type(error).__name__)
        case aiohttp.ClientHttpProxyError(status=status):
            return NoAnswer(reply.PROXY, str(status))
        case aiohttp.ClientResponseError():
            return NoAnswer(reply.NOT_HTTP)
        case _:
            return NoAnswer(reply.BROKE, reason or type(error).__name__)


def _proxy(url: str) -> str | None:
    """The proxy that ``HTTPS_PROXY`` and similar variables name for this URL; read once, since it takes 50
    µs.

    Raises:
        UsageError: the proxy is not an HTTP proxy.
    """
    from urllib.parse import urlsplit
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(url)
    if not parts.hostname or proxy_bypass(parts.hostname):
        return None
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy:
        return None
    kind, found, _ = proxy.partition("://")
    if found and kind not in ("http", "https"):
        raise UsageError(
            f"the environment names a '{kind}' proxy for {url}, and only HTTP proxies are supported: "
            f"set {parts.scheme.upper()}_PROXY=http://HOST:PORT, or NO_PROXY={parts.hostname}"
        )
    return proxy if found else f"http://{proxy}"

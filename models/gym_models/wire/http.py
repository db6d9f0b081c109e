"""One HTTP connection pool to one engine: bytes out, bytes in.

A pool keeps as many connections as there are calls in flight and reuses them; cancelling a call closes its
connection, at which the engine stops generating. Foreign exceptions are translated only here.

One pool per worker and engine, plain aiohttp: 68 µs of CPU per call here, where the ``openai`` client
takes 1,370 µs (757 µs over its aiohttp transport).
"""

from __future__ import annotations

import io
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import aiohttp
import anyio
from aiohttp.client_proto import ResponseHandler
from gym_runtime import DeadlineExceeded, ModelError, ModelRefused, ModelUnavailable, UsageError, clock
from yarl import URL

from gym_models.wire import bounded
from gym_models.wire.endpoint import Endpoint

CONNECT_S = 10.0
# Below the 5 s after which vLLM (uvicorn) and llama.cpp close an idle connection: to reuse one that is
# being closed costs a retry.
_KEEP_ALIVE_S = 4.5
_OPENING_AT_ONCE = 128
_RESERVED_FILES = 512
_IDLE_S, _PROBE_S, _PROBES = 15, 5, 3  # a host that answers no probe counts as dead after 30 s
MAX_REASON_CHARS = 200
_LARGE_BYTES = 1 << 20  # aiohttp warns about larger bodies that are not a stream


def _socket(address: tuple[Any, ...]) -> socket.socket:
    """A socket that detects, with keep-alive probes, a host that vanished before it answered."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform == "linux":  # elsewhere the system's default holds, two hours
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE_S)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_S)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
    return made


class _Connector(aiohttp.TCPConnector):
    """Limits how many connections are opened at the same time.

    A burst of thousands would overflow the engine's backlog (4,096 on Linux, often 128), which then drops
    connections, to be retried after 1, 2, 4 … seconds. aiohttp has no public place for this.
    """

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self._opening = anyio.Semaphore(_OPENING_AT_ONCE, fast_acquire=True)

    async def _create_connection(
        self, req: aiohttp.ClientRequest, traces: list[Any], timeout: aiohttp.ClientTimeout
    ) -> ResponseHandler:
        async with self._opening:
            return await super()._create_connection(req, traces, timeout)


class Answer(NamedTuple):
    """An HTTP answer, whole. ``login`` are the headers of the request that expire; see `Endpoint.quote`."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    login: Mapping[str, str] = MappingProxyType({})

    def __repr__(self) -> str:
        return f"Answer(status={self.status}, {len(self.body)} bytes)"


Authorize = Callable[[], Awaitable[Mapping[str, str]]]


class Pool:
    """Connections to one engine. Enter it before use.

    ``reuse`` false opens one per call, for engines that close connections unannounced. ``authorize`` gives
    the headers of credentials that expire; it is called before every request.
    """

    def __init__(self, endpoint: Endpoint, *, reuse: bool = True, authorize: Authorize | None = None) -> None:
        self.endpoint = endpoint
        self._reuse = reuse
        self._authorize = authorize
        self._urls: dict[str, URL] = {}

    async def __aenter__(self) -> Pool:
        self.endpoint.check_headers()
        self._session = aiohttp.ClientSession(
            connector=_Connector(
                limit=raise_file_limit() - _RESERVED_FILES,
                ttl_dns_cache=60,
                force_close=not self._reuse,
                keepalive_timeout=_KEEP_ALIVE_S if self._reuse else None,
                socket_factory=_socket,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=self.endpoint.headers | self._encoding(),
            skip_auto_headers=("User-Agent",) if self.endpoint.private else (),
            proxy=None if self.endpoint.private else _proxy(self.endpoint.url),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
            auto_decompress=False,  # `bounded` unpacks, up to a bound
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def get(self, path: str, *, deadline_s: float) -> Answer:
        """``GET`` a path below the base URL, or a whole URL of the same engine; see `post`."""
        return await self._request("GET", path, None, None, deadline_s)

    async def post(
        self, path: str, body: bytes, *, deadline_s: float, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """``POST`` a JSON body; any status is an answer.

        ``deadline_s`` is absolute, in seconds since the epoch. Cancelling closes the connection.

        Raises:
            ModelUnavailable: the connection was refused, or broke before the answer was complete.
            ModelRefused: the certificate is not trusted.
            ModelRefused: the answer is larger than `bounded.MAX_ANSWER_BYTES`.
            DeadlineExceeded: the deadline passed first.
        """
        data = body if len(body) < _LARGE_BYTES else io.BytesIO(body)
        return await self._request("POST", path, data, headers, deadline_s)

    async def _request(
        self, method: str, path: str, data: Any, headers: Mapping[str, str] | None, deadline_s: float
    ) -> Answer:
        remaining_s = deadline_s - clock.now()
        if remaining_s <= 0:
            raise DeadlineExceeded("the deadline passed before the model was called", stage="model")
        timeout = aiohttp.ClientTimeout(total=remaining_s, sock_connect=CONNECT_S)
        login: Mapping[str, str] = await self._authorize() if self._authorize is not None else {}
        if login:
            headers = {**(headers or {}), **login}
        try:
            async with self._session.request(
                method, self._url(path), data=data, headers=headers, timeout=timeout, allow_redirects=False
            ) as answer:
                return Answer(answer.status, answer.headers, await bounded.read(answer), login)
        except bounded.TooLarge:
            raise ModelRefused(
                f"{self.endpoint.url} answered with more than {bounded.MAX_ANSWER_BYTES >> 20} MiB or "
                f"{bounded.MAX_OBJECTS:,} objects: it was not read; ask for fewer log-probabilities or "
                "tokens, or look at what answers there",
                stage="model",
            ) from None
        except bounded.Unreadable as error:
            raise ModelUnavailable(
                f"{self.endpoint.url} answered with a body that cannot be read: {error}", stage="model"
            ) from error
        except aiohttp.ClientError as error:
            # Without its cause: aiohttp quotes the line that it cannot read, which may hold the key.
            raise self._translate(error) from None
        except TimeoutError as error:
            raise DeadlineExceeded(
                f"no answer from {self.endpoint.url} by the deadline", stage="model"
            ) from error

    def _url(self, path: str) -> URL:
        url = self._urls.get(path)
        if url is None:
            whole = path if path.startswith("http") else self.endpoint.url + path + self.endpoint.query
            url = self._urls[path] = URL(whole)
        return url

    def _encoding(self) -> dict[str, str]:
        # Inside a network compression costs more than it saves.
        return {"accept-encoding": "identity" if self.endpoint.private else "gzip"}

    def _translate(self, error: aiohttp.ClientError) -> ModelError:
        url = self.endpoint.url
        reason = self.endpoint.quote(_reason(error)).cut(MAX_REASON_CHARS)
        match error:
            case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
                return ModelRefused(f"no trusted TLS connection to {url}: {reason}", stage="model")
            case aiohttp.ClientConnectorDNSError():
                return ModelUnavailable(f"the host of {url} cannot be resolved", stage="model")
            case aiohttp.ClientConnectorError(os_error=ConnectionRefusedError()):
                return ModelUnavailable(f"nothing listens at {url}", stage="model")
            case aiohttp.ClientConnectorError() | aiohttp.ServerTimeoutError():
                return ModelUnavailable(f"no connection to {url}: {reason}", stage="model")
            case aiohttp.ClientHttpProxyError(status=status):
                return ModelUnavailable(f"the proxy on the way to {url} answered {status}", stage="model")
            case aiohttp.ClientResponseError():
                return ModelUnavailable(f"{url} does not answer in HTTP as it should", stage="model")
            case _:
                return ModelUnavailable(
                    f"the connection to {url} broke in mid-answer: {reason}", stage="model"
                )


def raise_file_limit() -> int:
    """Raise this process's limit of open files to the maximum and return it. Idempotent.

    Every call in flight holds one connection, hence one file.
    """
    try:
        import resource
    except ModuleNotFoundError:  # not a POSIX system: sockets are not files there
        return 1 << 16
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, 1 << 20) if hard != resource.RLIM_INFINITY else 1 << 20
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (ValueError, OSError):  # macOS reports "unlimited" and accepts less
            wanted = soft
    return max(wanted, soft, 2 * _RESERVED_FILES)


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


def _reason(error: BaseException) -> str:
    return str(error).strip() or type(error).__name__

"""One HTTP connection pool to one engine: bytes out, bytes in.

A pool keeps as many connections as there are calls in flight and reuses them; cancelling a call closes its
connection, at which the engine stops generating. Every way of having no answer becomes an error of ours here.

Engines in a private network are called by `gym_models.wire.plain_client`, hosts by aiohttp: where TLS and the
way to the host take their time, 70 µs of CPU more do not matter. The ``openai`` client takes 1,370 µs a call
(757 µs over its aiohttp transport).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import anyio
from gym_runtime import clock
from gym_runtime.errors import DeadlineExceeded, ModelError, ModelRefused, ModelUnavailable

from gym_models.wire import reply
from gym_models.wire.endpoint import Endpoint
from gym_models.wire.plain_client import PlainClient
from gym_models.wire.reply import NoAnswer

if TYPE_CHECKING:
    from gym_models.wire.aiohttp_client import AiohttpClient

MAX_REASON_CHARS = 200


class Answer(NamedTuple):
    """An HTTP answer, whole. ``headers``: names in lower case. ``login`` are the headers of the request that
    expire; see `Endpoint.quote`.
    """

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

    async def __aenter__(self) -> Pool:
        self.endpoint.check_headers()
        self._client = self._made()
        await self._client.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.__aexit__()

    def _made(self) -> PlainClient | AiohttpClient:
        url, private = self.endpoint.url, self.endpoint.private
        # Inside a network compression costs more than it saves.
        headers = self.endpoint.headers | {"accept-encoding": "identity" if private else "gzip"}
        if private and url.startswith("http://"):
            return PlainClient(url, headers, reuse=self._reuse)
        from gym_models.wire.aiohttp_client import AiohttpClient  # 0.12 s of CPU

        return AiohttpClient(url, headers, reuse=self._reuse, proxied=not private)

    async def get(self, path: str, *, deadline_s: float) -> Answer:
        """``GET`` a path below the base URL, or a whole URL of the same engine; see `post`."""
        return await self._request("GET", path, None, None, deadline_s)

    async def post(
        self, path: str, body: bytes, *, deadline_s: float, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """``POST`` a JSON body; any status is an answer.

        ``deadline_s`` is a time of `gym_runtime.clock.monotonic`. Cancelling closes the connection.

        Raises:
            ModelUnavailable: the connection was refused, or broke before the answer was complete.
            ModelRefused: the certificate is not trusted.
            ModelRefused: the answer is larger than `reply.MAX_ANSWER_BYTES`.
            DeadlineExceeded: the deadline passed first.
        """
        return await self._request("POST", path, body, headers, deadline_s)

    async def _request(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str] | None,
        deadline_s: float,
    ) -> Answer:
        remaining_s = deadline_s - clock.monotonic()
        if remaining_s <= 0:
            raise DeadlineExceeded("the deadline passed before the model was called", stage="model")
        login: Mapping[str, str] = await self._authorize() if self._authorize is not None else {}
        if login:
            headers = {**(headers or {}), **login}
        try:
            status, found, packed = await self._client.request(
                method, self._url(path), body, headers, remaining_s
            )
            encoding = found.get("content-encoding", "")
            if not encoding:
                return Answer(status, found, reply.counted(packed), login)
            with anyio.fail_after(deadline_s - clock.monotonic()):
                return Answer(status, found, await reply.unpacked(status, encoding, packed), login)
        except reply.TooLarge:
            raise ModelRefused(
                f"{self.endpoint.url} answered with more than {reply.MAX_ANSWER_BYTES >> 20} MiB or "
                f"{reply.MAX_OBJECTS:,} objects: it was not read; ask for fewer log-probabilities "
                "or tokens, or look at what answers there",
                stage="model",
            ) from None
        except reply.Unreadable as error:
            raise ModelUnavailable(
                f"{self.endpoint.url} answered with a body that cannot be read: {error}", stage="model"
            ) from error
        except NoAnswer as error:
            raise self._translate(error) from None
        except TimeoutError as error:
            raise DeadlineExceeded(
                f"no answer from {self.endpoint.url} by the deadline", stage="model"
            ) from error

    def _url(self, path: str) -> str:
        return path if path.startswith("http") else self.endpoint.url + path + self.endpoint.query

    def _translate(self, error: NoAnswer) -> ModelError:
        reason = self.endpoint.quote(error.reason.strip()).cut(MAX_REASON_CHARS)
        said = error.said.format(url=self.endpoint.url, reason=reason)
        if error.said == reply.UNTRUSTED:
            return ModelRefused(said, stage="model", any_call=True)
        return ModelUnavailable(said, stage="model")

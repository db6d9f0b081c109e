"""Where a model's replicas are: ``urls`` may name sources that change while the system runs.

==================  ==============================================================
``http://…``        the replica itself
``file:PATH``       a file with one URL a line; ``#`` starts a comment
``dns:HOST:PORT``   every address of that name, over HTTP, as of a headless service
``head:URL``        the policy's engines, as NeMo Gym's head server at URL knows them
==================  ==============================================================

NeMo RL and verl's NeMo Gym recipe start engines and a head server, whose configuration has the engines'
addresses as ``policy_base_url``.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import anyio
import anyio.to_thread
import msgspec
from gym_runtime import UsageError
from gym_runtime.adapters import ModelSettings
from gym_runtime.errors import UNREADABLE, NotThereYet

from gym_models.wire.endpoint import Endpoint

HEAD_LIMIT_S = 10.0
HEAD_BYTES = 16 * 2**20
_FILE, _DNS, _HEAD = "file:", "dns:", "head:"


class ReplicaSources:
    """What the URLs of a model's settings name.

    Args:
        at: makes the endpoint for a base URL.

    Attributes:
        change: those of the URLs that are sources, to be read again and again.
    """

    def __init__(self, settings: ModelSettings, at: Callable[[str, ModelSettings], Endpoint]) -> None:
        self.change = [url for url in settings.urls if _changes(url)]
        self._settings = settings
        self._at = at
        self._named: dict[str, list[str]] = {}

    async def read(self) -> list[Endpoint]:
        """All endpoints.

        Raises:
            UsageError: a source cannot be read, or names what is not a URL.
        """
        self._named = {url: await look_up(url) for url in self._settings.urls}
        return await self._endpoints(self._named)

    async def read_again(self, source: str) -> list[Endpoint] | None:
        """All endpoints, if a source names others than before; None if it names the same, or none.

        Raises:
            UsageError: as `read`; nothing has changed.
        """
        found = await look_up(source)
        # An empty list is taken for a mistake: it would end every call.
        if not found or found == self._named[source]:
            return None
        named = {**self._named, source: found}
        endpoints = await self._endpoints(named)
        # After the endpoints were made, which may fail: then nothing has changed.
        self._named = named
        return endpoints

    async def _endpoints(self, named: Mapping[str, list[str]]) -> list[Endpoint]:
        return [
            await anyio.to_thread.run_sync(self._at, url, self._settings)
            for urls in named.values()
            for url in urls
        ]


def _changes(url: str) -> bool:
    """Whether a URL names a source, which has to be read repeatedly."""
    return url.startswith((_FILE, _DNS, _HEAD))


async def look_up(url: str) -> list[str]:
    """The base URLs that a source names now.

    Raises:
        NotThereYet: no head server answers.
        UsageError: the file cannot be read, the name cannot be resolved, or the source is malformed.
    """
    if url.startswith(_FILE):
        return await _file(url.removeprefix(_FILE))
    if url.startswith(_DNS):
        return await _addresses(url, url.removeprefix(_DNS))
    if url.startswith(_HEAD):
        return await _policy(url.removeprefix(_HEAD).rstrip("/"))
    return [url]


async def _file(path: str) -> list[str]:
    try:
        text = await anyio.Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the list of model URLs '{path}' cannot be read: {error}") from error
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [line for line in lines if line]


async def _addresses(url: str, name: str) -> list[str]:
    host, _, port = name.rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(f"'{url}' is not a source of model URLs; it looks like dns:engines.internal:8000")
    try:
        found = await anyio.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    except OSError as error:
        raise UsageError(f"the host of {url} cannot be resolved: {error}") from error
    # An address may come more than once.
    addresses = dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found)
    return [f"http://{f'[{one}]' if ':' in one else one}:{port}/v1" for one in addresses]


async def _policy(head: str) -> list[str]:
    """``policy_base_url`` of a head server, which is one URL or a list."""
    import aiohttp  # 0.1 s of CPU, which engines in a private network do not need

    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=HEAD_LIMIT_S)) as http,
            http.get(f"{head}/global_config_dict_yaml") as answer,
        ):
            body = await answer.content.read(HEAD_BYTES)
            while (piece := await answer.content.read(HEAD_BYTES)) and len(body) < HEAD_BYTES:
                body += piece
    except aiohttp.InvalidURL as error:
        raise UsageError(f"'head:{head}' is no source of model URLs: head:http://HOST:PORT") from error
    except (aiohttp.ClientError, TimeoutError) as error:
        raise NotThereYet(f"no head server answers at {head}: {type(error).__name__}: {error}") from error
    if answer.status != 200:
        raise UsageError(
            f"{head}/global_config_dict_yaml answered {answer.status}; is it NeMo Gym's head server?"
        )
    if len(body) >= HEAD_BYTES:
        raise UsageError(f"{head}/global_config_dict_yaml is larger than {HEAD_BYTES // 2**20} MiB")
    found = await anyio.to_thread.run_sync(_policy_urls, body)
    if not found:
        raise UsageError(f"the head server at {head} knows no policy_base_url")
    return list(found)


@lru_cache(maxsize=8)  # it is asked every second, and YAML is slow
def _policy_urls(body: bytes) -> tuple[str, ...]:
    """The URLs in a head server's answer: a JSON string that holds YAML."""
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise UsageError(
            "head: reads YAML, whose package is not installed: pip install 'gym-runtime[nemo-gym]'"
        ) from error
    try:
        # The loader in C is many times as fast, but is not in every build.
        config: Any = yaml.load(
            msgspec.json.decode(body, type=str), getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        )
        urls: Any = config.get("policy_base_url") or []
        return tuple(msgspec.convert([urls] if isinstance(urls, str) else urls, list[str]))
    except (yaml.YAMLError, AttributeError, *UNREADABLE) as error:
        raise UsageError(f"the head server's configuration cannot be read: {error}") from error

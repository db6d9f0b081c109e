"""Where the replicas of a model are said: base URLs, and sources of URLs that may change (`discovery`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import anyio.to_thread
from gym_runtime.adapters import ModelSettings

from gym_models.wire import discovery
from gym_models.wire.endpoint import Endpoint


class ReplicaSources:
    """What the URLs of a model's settings name.

    Args:
        at: makes the endpoint for a base URL.

    Attributes:
        change: those of the URLs that are sources, to be read again and again.
    """

    def __init__(self, settings: ModelSettings, at: Callable[[str, ModelSettings], Endpoint]) -> None:
        self.change = [url for url in settings.urls if discovery.changes(url)]
        self._settings = settings
        self._at = at
        self._named: dict[str, list[str]] = {}

    async def read(self) -> list[Endpoint]:
        """All endpoints.

        Raises:
            UsageError: a source cannot be read, or names what is not a URL.
        """
        self._named = {url: await discovery.look_up(url) for url in self._settings.urls}
        return await self._endpoints(self._named)

    async def read_again(self, source: str) -> list[Endpoint] | None:
        """All endpoints, if a source names others than before; None if it names the same, or none.

        Raises:
            UsageError: as `read`; nothing has changed.
        """
        found = await discovery.look_up(source)
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

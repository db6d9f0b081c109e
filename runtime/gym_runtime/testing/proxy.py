"""A TCP relay that simulates a failing network: it can be cut and frozen."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, SocketAttribute, SocketStream


class Proxy:
    """Relays connections to one address, which may come and go."""

    def __init__(self, host: str, port: int) -> None:
        self._upstream = (host, port)
        self._up = True
        self._moving = anyio.Event()
        self._moving.set()
        self._relays: dict[anyio.CancelScope, None] = {}

    def cut(self) -> None:
        """Break what is connected, and refuse new connections until `mend`."""
        self._up = False
        for relay in self._relays:
            relay.cancel()

    def mend(self) -> None:
        """Connect again."""
        self._up = True

    def freeze(self) -> None:
        """Let nothing pass until `thaw`; the sockets stay open."""
        self._moving = anyio.Event()

    def thaw(self) -> None:
        """Let pass what waits."""
        self._moving.set()

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator[int]:
        """Relay until the context ends; yields the port on the loopback interface."""
        async with (
            await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(listener.serve, self._relay)
            yield listener.extra(SocketAttribute.local_port)
            tasks.cancel_scope.cancel()

    async def _relay(self, client: SocketStream) -> None:
        async with client:
            if not self._up:
                return
            with anyio.CancelScope() as scope:
                self._relays[scope] = None
                try:
                    async with (
                        await anyio.connect_tcp(*self._upstream) as upstream,
                        anyio.create_task_group() as pumps,
                    ):
                        pumps.start_soon(self._pump, client, upstream, scope)
                        pumps.start_soon(self._pump, upstream, client, scope)
                except OSError:
                    # No process listens there now; closing the connection tells the client.
                    pass
                finally:
                    del self._relays[scope]

    async def _pump(self, source: ByteReceiveStream, sink: ByteSendStream, scope: anyio.CancelScope) -> None:
        try:
            async for chunk in source:
                await self._moving.wait()
                await sink.send(chunk)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        scope.cancel()

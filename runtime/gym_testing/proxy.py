"""A TCP relay that simulates a failing network: it can be cut, frozen and made slow."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from random import Random

import anyio
import msgspec
from anyio.abc import ByteReceiveStream, ByteSendStream, ObjectReceiveStream, SocketAttribute, SocketStream

REPEATED_S = 0.2
"""The shortest time after which TCP sends lost data again; each further loss doubles it."""
UNDER_WAY = 1024
"""Pieces that a slow link holds for each direction."""


class Slowness(msgspec.Struct, frozen=True, kw_only=True):
    """The effects of a bad link on each piece of data, in each direction; the pieces stay in order.

    Attributes:
        delay_s: how long it takes.
        jitter_s: how much longer at most, by chance.
        loss: the probability that it is lost once, and then again; TCP repeats it after `REPEATED_S`.
        bytes_per_s: how much passes; 0 for no limit.
    """

    delay_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0
    bytes_per_s: float = 0.0

    def late_s(self, chance: Random) -> float:
        """How late one piece is."""
        late_s = self.delay_s + self.jitter_s * chance.random()
        repeated_s = REPEATED_S
        while chance.random() < self.loss:
            late_s += repeated_s
            repeated_s *= 2
        return late_s


class Proxy:
    """Relays connections to one address, which may come and go.

    Attributes:
        slowness: of what comes from now on.
    """

    def __init__(self, host: str, port: int, *, seed: int = 0) -> None:
        self.slowness = Slowness()
        self._chance = Random(seed)
        self._upstream = (host, port)
        self._up = True
        self._moving = anyio.Event()
        self._moving.set()
        self._relays: dict[anyio.CancelScope, None] = {}

    def cut(self) -> None:
        """Break all connections, and refuse new ones until `mend`."""
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
        into, out_of = anyio.create_memory_object_stream[tuple[float, bytes]](UNDER_WAY)
        async with out_of, anyio.create_task_group() as tasks:
            tasks.start_soon(self._deliver, out_of, sink, scope)
            async with into:
                try:
                    async for chunk in source:
                        await into.send((anyio.current_time() + self.slowness.late_s(self._chance), chunk))
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    pass

    async def _deliver(
        self, pieces: ObjectReceiveStream[tuple[float, bytes]], sink: ByteSendStream, scope: anyio.CancelScope
    ) -> None:
        try:
            async for due_s, chunk in pieces:
                await anyio.sleep_until(due_s)
                if self.slowness.bytes_per_s:
                    await anyio.sleep(len(chunk) / self.slowness.bytes_per_s)
                await self._moving.wait()
                await sink.send(chunk)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        scope.cancel()

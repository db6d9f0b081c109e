"""The subscriptions of a link: each listener, and its subscription at the present client of nats-py."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import anyio
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from gym_runtime.bus.headers import NO_HEADERS
from gym_runtime.bus.interface import Headers
from gym_runtime.bus.sending import Change

log = structlog.get_logger(__name__)


class Listener(Protocol):
    """Takes one message of a subscription: subject, reply subject, headers, payload. Never blocks."""

    def __call__(self, subject: str, reply: str, headers: Headers, payload: bytes, /) -> None: ...


class Traffic:
    """Bytes of subjects, payloads and sent headers; nats-py counts payloads only."""

    received_bytes = sent_bytes = 0


@dataclass(eq=False)
class Interest:
    """One subscription.

    Attributes:
        at_client: the present client's, while there is one.
        denied: whether the broker refused it.
        ended: nothing is handed over any more.
    """

    subject: str
    queue: str
    listener: Listener
    at_client: Subscription | None = None
    denied: bool = False
    ended: bool = False


class Sink(asyncio.Future[Msg]):
    """The ``future`` of a nats-py subscription that gets every message, not the first one."""

    def __init__(self, interest: Interest, traffic: Traffic, context: Context) -> None:
        super().__init__()
        self._interest, self._traffic, self._context = interest, traffic, context

    def set_result(self, message: Msg, /) -> None:
        interest = self._interest
        if interest.ended:  # the broker sends until it has read the UNSUB
            return
        subject, payload = message.subject, message.data
        self._traffic.received_bytes += len(subject) + len(payload)
        headers = message.headers
        try:
            self._context.run(
                interest.listener, subject, message.reply, NO_HEADERS if headers is None else headers, payload
            )
        except Exception:
            # The boundary to a subscriber: its bug must not end nats-py's reading for all the others.
            log.exception("receive failed", subject=subject)


class Subscriptions:
    """All subscriptions, by our own ids. ``change`` queues an operation on the client.

    Args:
        nowhere: a subject that we may send to and that has no listener.
    """

    def __init__(self, change: Callable[[Change], None], traffic: Traffic, *, nowhere: str) -> None:
        self._change, self._traffic, self._nowhere = change, traffic, nowhere
        self._by_sid: dict[int, Interest] = {}
        self._sid = 0
        # Empty, so that message handlers do not inherit the context of the connecting task.
        self._context = Context()
        self._muted: deque[tuple[Client, Subscription, asyncio.Event]] = deque()
        self._draining: set[asyncio.Event] = set()
        self._more = asyncio.Event()

    def add(self, subject: str, listener: Listener, queue: str) -> int:
        self._sid += 1
        interest = self._by_sid[self._sid] = Interest(subject, queue, listener)
        self._change(partial(self._subscribe, interest))
        return self._sid

    async def _subscribe(self, interest: Interest, client: Client) -> None:
        if not interest.ended:
            sink = Sink(interest, self._traffic, self._context)
            interest.at_client = await client.subscribe(interest.subject, interest.queue, future=sink)

    async def attach(self, client: Client) -> None:
        """Subscribe all at a new client."""
        # The next pass finds subscriptions that are added meanwhile.
        while missing := [one for one in self._by_sid.values() if one.at_client is None]:
            for interest in missing:
                await self._subscribe(interest, client)

    def detach(self) -> None:
        """The client is gone."""
        for interest in self._by_sid.values():
            interest.at_client = None
        for drained in self._draining:
            drained.set()
        self._draining.clear()
        self._muted.clear()

    def denied(self, sid: int) -> bool:
        return self._by_sid[sid].denied

    def deny(self, subject: str) -> None:
        """The broker does not let us listen on a subject, which nats-py tells in small letters."""
        for interest in self._by_sid.values():
            if interest.subject.lower() == subject:
                interest.denied = True  # no `break`: several may have the same subject

    def end(self, sid: int) -> None:
        interest = self._by_sid.pop(sid, None)
        if interest is not None:
            interest.ended = True
            self._change(partial(self._unsubscribe, interest))

    async def _unsubscribe(self, interest: Interest, client: Client) -> None:
        if interest.at_client is not None:
            subscription, interest.at_client = interest.at_client, None
            await subscription.unsubscribe()

    def mute(self, sid: int) -> None:
        """As `Link.mute`; `run` drains it."""
        interest = self._by_sid.get(sid)
        if interest is not None:
            self._change(partial(self._mute, interest))

    async def _mute(self, interest: Interest, client: Client) -> None:
        if interest.at_client is not None:
            drained = asyncio.Event()
            self._draining.add(drained)
            self._muted.append((client, interest.at_client, drained))
            interest.at_client = None
            self._more.set()

    async def drained(self) -> None:
        """Return when what was muted before has been handed over, or the client is gone."""
        for drained in list(self._draining):
            await drained.wait()

    async def run(self, lost: asyncio.Event) -> None:
        """Drain what is muted at the present client, until cancelled."""
        async with anyio.create_task_group() as tasks:
            while True:
                while self._muted:
                    tasks.start_soon(self._drain, *self._muted.popleft(), lost)
                self._more.clear()
                await self._more.wait()

    async def _drain(
        self, client: Client, subscription: Subscription, drained: asyncio.Event, lost: asyncio.Event
    ) -> None:
        try:
            # This fills the queue of flushes, so the drain sends its PING after its UNSUB was sent.
            await client.publish(self._nowhere, b"")
            await subscription.drain()
        except NatsError:
            lost.set()  # a PONG that comes after all would end nats-py's reading
        finally:
            drained.set()
            self._draining.discard(drained)

"""What a link receives: messages for its subscriptions, and answers to its requests.

Each listener outlives the clients of nats-py; here it has its subscription at the present one.

The subject for an answer holds a random number: a worker can answer the request that it received, and cannot
guess where the answers to others go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from os import urandom
from typing import NamedTuple

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from gym_runtime.bus.handshake import LOST_ERRORS
from gym_runtime.bus.interface import Headers, Stopped
from gym_runtime.bus.sending import Change
from gym_runtime.bus.wire import NO_HEADERS
from gym_runtime.errors import BrokerError, ConnectionLost, DeadlineExceeded
from gym_runtime.logs import logger
from gym_runtime.timing import EXACT_S, OVERDUE_S

log = logger()


Listener = Callable[[str, str, Headers, bytes], None]
"""Takes one message of a subscription: subject, reply subject, headers, payload. Never blocks."""


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
        failed: the kinds of errors that the listener has raised, each of which is logged once.
    """

    subject: str
    queue: str
    listener: Listener
    at_client: Subscription | None = None
    denied: bool = False
    ended: bool = False
    failed: set[type[Exception]] = field(default_factory=set[type[Exception]])


class Sink(asyncio.Future[Msg]):
    """The ``future`` of a nats-py subscription that gets every message, not the first one."""

    def __init__(self, interest: Interest, traffic: Traffic, context: Context) -> None:
        super().__init__()
        self._interest, self._traffic, self._context = interest, traffic, context

    def set_result(self, message: Msg, /) -> None:
        interest = self._interest
        if interest.ended:  # the broker sends until it has read the UNSUB
            return
        subject, payload, headers = message.subject, message.data, message.headers
        self._traffic.received_bytes += len(subject) + len(payload)
        headers = NO_HEADERS if headers is None else headers
        try:
            self._context.run(interest.listener, subject, message.reply, headers, payload)
        except Exception as error:
            # The boundary to a subscriber: its bug must not end nats-py's reading for all the others, and who
            # sends what it fails on must not fill the disk with lines.
            if type(error) not in interest.failed:
                interest.failed.add(type(error))
                log.exception("receive failed", subject=subject)


class Draining:
    """A muted subscription, until all that it was sent before has been handed over."""

    def __init__(self) -> None:
        self.begun, self.over = asyncio.Event(), asyncio.Event()

    def end(self) -> None:
        self.begun.set()
        self.over.set()


class Subscriptions:
    """All subscriptions, by our own ids.

    Args:
        change: queues an operation on the client.
        lost: reports that the present client is of no use any more.
        nowhere: a subject that we may send to and that has no listener.

    Attributes:
        traffic: what was received and sent.
    """

    def __init__(self, change: Callable[[Change], None], lost: Callable[[], None], *, nowhere: str) -> None:
        self._change, self._lost, self._nowhere = change, lost, nowhere
        self.traffic = Traffic()
        self._by_sid: dict[int, Interest] = {}
        self._sid = 0
        # Empty, so that message handlers do not inherit the context of the connecting task.
        self._context = Context()
        self._muted: list[tuple[Client, Subscription, Draining]] = []
        self._draining: set[Draining] = set()
        self._more = asyncio.Event()

    def add(self, subject: str, listener: Listener, queue: str) -> int:
        self._sid += 1
        interest = self._by_sid[self._sid] = Interest(subject, queue, listener)
        self._change(partial(self._subscribe, interest))
        return self._sid

    async def _subscribe(self, interest: Interest, client: Client) -> None:
        if not interest.ended:
            sink = Sink(interest, self.traffic, self._context)
            interest.at_client = await client.subscribe(interest.subject, interest.queue, future=sink)

    async def attach(self, client: Client) -> None:
        """Subscribe all at a new client."""
        self.detach()  # from one that broke before all were subscribed there
        # The next pass finds subscriptions that are added meanwhile.
        while missing := [one for one in self._by_sid.values() if one.at_client is None]:
            for interest in missing:
                await self._subscribe(interest, client)

    def detach(self) -> None:
        """The client is gone."""
        for interest in self._by_sid.values():
            interest.at_client = None
        for draining in self._draining:
            draining.end()
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
        """As `Link.mute`."""
        interest = self._by_sid.get(sid)
        if interest is not None:
            self._change(partial(self._mute, interest))

    async def _mute(self, interest: Interest, client: Client) -> None:
        if interest.at_client is not None:
            draining = Draining()
            self._draining.add(draining)
            self._muted.append((client, interest.at_client, draining))
            interest.at_client = None
            self._more.set()
            # What is sent from now on comes after its UNSUB: a task that is given back must not come back.
            await draining.begun.wait()

    async def run(self) -> None:
        """Drain what is muted at the present client, until cancelled."""
        while True:
            await self._more.wait()
            self._more.clear()
            muted, self._muted = self._muted, []
            # Where the loop ends now, a task group would leave coroutines that were never awaited.
            await asyncio.gather(*(self._drain(*each) for each in muted))  # noqa: TID251

    async def _drain(self, client: Client, subscription: Subscription, draining: Draining) -> None:
        try:
            # This fills the queue of flushes, so the drain sends its PING after its UNSUB was sent.
            await client.publish(self._nowhere, b"")
            draining.begun.set()  # the drain's first step, until it waits for that queue, has the UNSUB
            await subscription.drain()
        except LOST_ERRORS:
            self._lost()  # a PONG that comes after all would end nats-py's reading
        finally:
            draining.end()
            self._draining.discard(draining)

    async def drained(self) -> None:
        """Return when what was muted before has been handed over, or the client is gone."""
        for draining in list(self._draining):
            await draining.over.wait()


class RawAnswer(NamedTuple):
    """What came back on a request."""

    headers: Headers
    payload: bytes


Result = RawAnswer | BrokerError | ConnectionLost | DeadlineExceeded | Stopped


class Wait(NamedTuple):
    """One request in flight; without its own timer it is looked at together with others."""

    subject: str
    future: asyncio.Future[Result]
    within_s: float
    due_s: float
    timer: asyncio.TimerHandle | None

    def expire(self) -> None:
        settle(self.future, DeadlineExceeded(f"no answer on {self.subject!r} within {self.within_s:.1f} s"))


class Requests:
    """The requests in flight, by the subject for their answer. Errors are results, so each is retrieved."""

    def __init__(self, root: str) -> None:
        self._root, self._loop = root, asyncio.get_running_loop()
        self._waiting: dict[str, Wait] = {}
        self._looking: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, subject: str, within_s: float, reply: str = "") -> tuple[str, asyncio.Future[Result]]:
        """A new request, whose wait ends after ``within_s``: the subject for its answer, and that. With
        ``reply`` it waits once more for the answer to an earlier one."""
        reply = reply or f"{self._root}{int.from_bytes(urandom(8))}"
        future: asyncio.Future[Result] = self._loop.create_future()
        timer = None
        if within_s <= EXACT_S:
            timer = self._loop.call_later(within_s, lambda: self._waiting[reply].expire())
        elif self._looking is None:
            self._looking = self._loop.call_later(OVERDUE_S, self._look)
        self._waiting[reply] = Wait(subject, future, within_s, self._loop.time() + within_s, timer)
        return reply, future

    def _look(self) -> None:
        now_s = self._loop.time()
        for wait in self._waiting.values():
            if wait.due_s <= now_s:
                wait.expire()
        self._looking = self._loop.call_later(OVERDUE_S, self._look) if self._waiting else None

    def end(self, reply: str) -> None:
        """Forget a request; an answer that comes later is dropped."""
        timer = self._waiting.pop(reply).timer
        if timer is not None:
            timer.cancel()

    def answer(self, subject: str, reply: str, headers: Headers, payload: bytes) -> None:
        """A message on the inbox."""
        # An answer to a request that was cancelled or ran out of time finds no entry.
        if subject in self._waiting:
            settle(self._waiting[subject].future, RawAnswer(headers, payload))

    def fail(self, why: str) -> None:
        """The connection broke."""
        for wait in self._waiting.values():
            settle(wait.future, ConnectionLost(why))

    def deny(self, subject: str, why: str) -> None:
        """The broker does not let us ask on a subject, which nats-py tells in small letters."""
        # The broker's error names the subject only, so all requests on it fail.
        for wait in self._waiting.values():
            if wait.subject.lower() == subject:
                settle(wait.future, BrokerError(why))


def settle(future: asyncio.Future[Result], result: Result) -> None:
    """The result of a request, unless it has one: its task may not have run since to end it."""
    if not future.done():
        future.set_result(result)

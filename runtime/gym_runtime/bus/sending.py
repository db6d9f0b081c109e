"""The outgoing queue of a link: messages and changes of subscriptions, in order and bounded; how far the
broker is.

A message goes to nats-py at once. It waits in a list while there is no client, while too many bytes are under
way, or while earlier entries wait. *Echoes* tell how much is under way: empty messages to an inbox of our
own. The broker sends an echo back when it has acted on everything that was sent before it.

nats-py's own ``flush`` is not used for this: it sends its PING before what it has pending, and when it is
cancelled the late PONG ends nats-py's reading (``tests/runtime/bus/nats_py_defects.md``). Nor is its limit on
pending bytes, which rests on the transport's: some versions of Python have none (CVE-2024-12254).

How long echoes take says how far the broker is (`RoundTrips`). A link that is slow, loses packets or is full
delays every echo. So does a busy event loop, on sending and on receiving: the lateness of its timers while an
echo is under way is subtracted twice.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from statistics import median
from typing import Any, NamedTuple

import anyio
from nats.aio.client import Client

from gym_runtime.bus.handshake import LOST_ERRORS
from gym_runtime.bus.interface import Headers
from gym_runtime.bus.wire import NO_HEADERS
from gym_runtime.timing import SLOW_LINK_S

PENDING_BYTES = 32 * 1024 * 1024
"""How many bytes may wait in the list before senders wait."""
WINDOW_BYTES = 4 * 1024 * 1024
"""How many bytes, plus one message, may be under way: a frozen broker gets all of them when it thaws."""
ECHO_BYTES = 256 * 1024
"""How often an echo is asked for. A slow link must carry so much before it counts as dead."""
LOOP_CHECKED_S = 0.05
"""How often it is seen how late the event loop is, while an echo is under way."""
KEPT = 3
"""The median of so many echoes counts: one that was delayed by chance changes nothing."""


class Message(NamedTuple):
    """The arguments of `Client.publish`, in its order."""

    subject: str
    payload: bytes
    reply: str = ""
    headers: Headers = NO_HEADERS


Change = Callable[[Client], Awaitable[object]]
"""Something to do with the client in its turn, such as to subscribe."""


class Sending:
    """The list, and what is under way.

    Attributes:
        waiting_bytes: the size of the waiting entries.
        arrived_bytes: how much the broker has acted on, over all connections.
        unanswered: how often the link has looked since the last echo arrived.
    """

    def __init__(self, echo: str, lost: Callable[[], None]) -> None:
        self.waiting_bytes = self.arrived_bytes = self.unanswered = 0
        self._echo = Message(echo, b"")
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._client: Client | None = None
        self._waiting: deque[tuple[Message | Change | asyncio.Future[None], int]] = deque()
        self._echoes: deque[tuple[int, asyncio.Future[None] | None]] = deque()
        self._under_way = self._since_echo = 0
        self._go_on = asyncio.Event()
        self._has_room, self._calm = asyncio.Event(), asyncio.Event()
        self._crowd = anyio.Lock(fast_acquire=True)

    @property
    def full(self) -> bool:
        return self.waiting_bytes > PENDING_BYTES

    @property
    def crowded(self) -> bool:
        """Whether what is sent now has to wait."""
        return self._client is not None and (bool(self._waiting) or self._under_way >= WINDOW_BYTES)

    @property
    def end_bytes(self) -> int:
        """What `arrived_bytes` is when all that was added until now has arrived."""
        return self.arrived_bytes + self._under_way + self.waiting_bytes

    def attach(self, client: Client) -> None:
        """There is a client, which has all subscriptions; `run` sends what waits."""
        self._client = client
        self._under_way = self._since_echo = self.unanswered = 0
        self._go_on.set()

    def detach(self) -> None:
        """The client is gone. Messages that wait are kept; echoes end; the next client is subscribed."""
        self._client = None
        ended = [echo for _, echo in self._echoes]
        ended += [
            entry for entry, _ in self._waiting if not isinstance(entry, Message) and not callable(entry)
        ]
        self._echoes.clear()
        self._waiting = deque(item for item in self._waiting if isinstance(item[0], Message))
        for echo in ended:
            _settle(echo)
        self._calm.set()

    async def run(self) -> None:
        """Send the waiting entries to the present client, until it is lost or this is cancelled."""
        client = self._client
        assert client is not None
        while True:
            while self._waiting and self._under_way < WINDOW_BYTES:
                entry, size = self._waiting[0]  # it stays there meanwhile, so that no message overtakes it
                if isinstance(entry, Message):
                    self._hand(client, entry, size)
                elif callable(entry):
                    try:
                        await entry(client)
                    except LOST_ERRORS:  # the next client has all subscriptions
                        self._lost()
                        return
                    if self._client is not client:
                        return
                else:
                    self._ask_echo(client, entry)
                del entry  # it may be large
                self._waiting.popleft()
                self.waiting_bytes -= size
            if not self.full:
                self.wake()
            if not self.crowded:
                self._calm.set()
            self._go_on.clear()
            await self._go_on.wait()

    def add(self, message: Message, size: int) -> None:
        """Send a message after all before it."""
        if self._client is None or self._waiting or self._under_way >= WINDOW_BYTES:
            self._append(message, size)
        else:
            self._hand(self._client, message, size)

    def change(self, change: Change) -> None:
        """Do this with the client after all before it; nothing without one."""
        if self._client is not None:
            self._append(change, 0)

    def echo(self) -> asyncio.Future[None]:
        """Done when the broker has acted on everything sent before, or the client is lost."""
        echo: asyncio.Future[None] = self._loop.create_future()
        if self._client is None:
            echo.set_result(None)
        elif self._waiting:
            self._append(echo, 0)
        else:
            self._ask_echo(self._client, echo)
        return echo

    def echoed(self) -> None:
        """The oldest echo came."""
        if self._echoes:
            size, echo = self._echoes.popleft()
            self._under_way -= size
            self.arrived_bytes += size
            self.unanswered = 0
            _settle(echo)
            self._go_on.set()

    def _append(self, entry: Message | Change | asyncio.Future[None], size: int) -> None:
        self._waiting.append((entry, size))
        self.waiting_bytes += size
        self._go_on.set()

    def _hand(self, client: Client, message: Message, size: int) -> None:
        subject, payload, reply, headers = message
        self._at_once(client.publish(subject, payload, reply, dict(headers) if headers else None))
        self._under_way += size
        self._since_echo += size
        if self._since_echo >= ECHO_BYTES:
            self._ask_echo(client, None)

    def _ask_echo(self, client: Client, echo: asyncio.Future[None] | None) -> None:
        self._echoes.append((self._since_echo, echo))
        self._since_echo = 0
        self._at_once(client.publish(self._echo.subject, b""))

    def _at_once(self, publishing: Coroutine[Any, Any, None]) -> None:
        """Run a ``publish`` to its end: with ``pending_size=0`` it waits for nothing while all is well."""
        try:
            publishing.send(None)
        except StopIteration:
            return
        except LOST_ERRORS:
            pass
        publishing.close()
        self._lost()

    async def room(self) -> None:
        """Return when it was not full for a moment; it may be again by then. `wake` ends it too."""
        self._has_room.clear()
        await self._has_room.wait()

    async def ease(self) -> None:
        """Return when it was not crowded for a moment, in the order of the calls."""
        # One at a time, because its message may crowd the queue again: the lock's next owner sees that.
        async with self._crowd:
            while self.crowded:
                self._calm.clear()
                await self._calm.wait()

    def wake(self) -> None:
        """Wake everything that waits for room."""
        self._has_room.set()


def _settle(future: asyncio.Future[None] | None) -> None:
    # A waiter that was cancelled stays in the list until here.
    if future is not None and not future.done():
        future.set_result(None)


class RoundTrips:
    """The echoes of one connection.

    Args:
        changed: called when the link becomes slow, and when it is no longer.

    Attributes:
        seconds: the median; 0 until there are `KEPT`.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self.seconds = 0.0
        self._changed = changed
        self._kept: deque[float] = deque(maxlen=KEPT)

    @property
    def slow(self) -> bool:
        return self.seconds > SLOW_LINK_S

    def measure(self, echo: asyncio.Future[None], counts: Callable[[], bool]) -> None:
        """Measure the echo that was just asked for. ``counts`` says at its end whether it was answered."""
        loop = echo.get_loop()
        began_s = time.monotonic()
        due_s, late_s = began_s + LOOP_CHECKED_S, 0.0

        def tick() -> None:
            nonlocal due_s, late_s, timer
            late_s = max(late_s, time.monotonic() - due_s)
            due_s = time.monotonic() + LOOP_CHECKED_S
            timer = loop.call_later(LOOP_CHECKED_S, tick)

        def end(_: asyncio.Future[None]) -> None:
            timer.cancel()
            now_s = time.monotonic()
            # The future also ends when the connection breaks; that is no measurement.
            if counts():
                self.add(max(0.0, now_s - began_s - 2 * max(late_s, now_s - due_s)))

        timer = loop.call_later(LOOP_CHECKED_S, tick)
        echo.add_done_callback(end)

    def add(self, seconds: float) -> None:
        """One more echo took this long."""
        self._kept.append(seconds)
        if len(self._kept) == KEPT:
            # The right side is evaluated first, so `before` is what it was.
            before, self.seconds = self.slow, median(self._kept)
            if self.slow != before:
                self._changed()

"""One connection to a NATS broker: the `gym_runtime.bus.link.Link` below a `NatsBus`.

It speaks the protocol of `gym_runtime.bus.protocol` over the socket of an `Upkeep`. Messages go from the
socket to a plain function, what is sent goes through an `Outgoing` list, and requests share one inbox.

Laws:

1. There is one socket at a time. When it is lost, or `PINGS_OUTSTANDING` pings are not answered, requests
   in flight fail at once and `run` connects again, to any server of the cluster, for as long as it takes.
2. What is sent without a socket is kept, up to `PENDING_BYTES`, and sent after the subscriptions.
3. An error of the broker costs one socket at most, never the connection.

It does not use nats-py 2.16, which queues each message for a task (5.0 µs of CPU for a message of 256 bytes,
here 2.3), swallows cancellation in ``publish``, closes for good on an error of the broker, waits without
limit for a lost socket, and leaves requests in flight to their time-outs. Each can be cured in its private
methods only.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial

import anyio

from gym_runtime.bus import connection_errors
from gym_runtime.bus.handshake import Refused
from gym_runtime.bus.interests import Interest
from gym_runtime.bus.link import Listener, RawAnswer
from gym_runtime.bus.protocol import (
    CRLF,
    NO_RESPONDERS,
    OutOfStep,
    publish_command,
    subscribe_command,
    unsubscribe_command,
)
from gym_runtime.bus.requests import stopped
from gym_runtime.bus.stop import Stop
from gym_runtime.bus.upkeep import CLOSED, Upkeep
from gym_runtime.errors import ConnectionLost, DeadlineExceeded, NoWorker, PayloadTooLarge
from gym_runtime.timing import API_ANSWER_S, CONNECT_TIMEOUT_S, PING_INTERVAL_S, RECONNECT_S

DIAL_S = 4.0
"""How long the first connection may take, over all addresses."""


class Connection(Upkeep):
    """A `gym_runtime.bus.link.Link`: `dial`, then `run` in a task of its own, at the end `close`."""

    async def dial(self) -> None:
        """Connect for the first time.

        Raises:
            BrokerError: It is not reachable, or refuses us, or takes too small messages only.
            UsageError: The credentials cannot be used.
        """
        failure: Exception | None = None
        inbox = f"{self._answers}.*"
        # Subscribed by each connection.
        sid = self.listen(inbox, self._requests.answer)
        try:
            with anyio.move_on_after(DIAL_S):
                while not self._is_up.is_set():
                    try:
                        await self._connect()
                        await self._first_answer()
                        # Only now: requests that were sent before could not be answered.
                        self._is_up.set()
                    # A time-out of `anyio.fail_after` is an OSError, too.
                    except (Refused, OutOfStep, OSError) as error:
                        failure = error
                        self._socket.abort()
                        self._set_down("the connection to the broker broke")
                        # A wrong password or certificate stays wrong; a refused connection may be a broker
                        # that still starts.
                        if connection_errors.is_final(error):
                            break
                        await anyio.sleep(RECONNECT_S[0])
            if not self._is_up.is_set():
                raise connection_errors.unreachable(self._where.shown, failure)
            if self.max_payload < connection_errors.MIN_MAX_PAYLOAD:
                raise connection_errors.too_small(self._where.shown, self.max_payload)
            if self.denied(sid):
                raise connection_errors.unheard(self._where.shown, inbox)
        # `close` is not called after a failed dial, or one that was cancelled; so the socket must go here.
        except BaseException:
            self._socket.abort()
            raise

    async def _first_answer(self) -> None:
        """Wait until the broker has answered a ping: a refused subscription is known by then.

        Raises:
            OSError: it did not answer in time, or the socket was lost, which `run` does not watch yet.
        """
        lost = self._loop.create_task(self._socket.lost.wait())
        try:
            with anyio.fail_after(CONNECT_TIMEOUT_S):
                await asyncio.wait((self._outgoing.ping(), lost), return_when=asyncio.FIRST_COMPLETED)
        finally:
            lost.cancel()
        if self._socket.lost.is_set():
            raise ConnectionResetError("the connection broke after the greeting")

    def inbox(self) -> str:
        self._inboxes += 1
        return f"{self._inbox_root}.{self._inboxes}"

    def listen(self, subject: str, listener: Listener, *, queue: str = "") -> int:
        self._sid += 1
        self._interests[self._sid] = Interest(subject, queue, listener)
        # Otherwise the next connection subscribes (`Interests.commands`).
        if self._connected:
            self._queue(subscribe_command(self._sid, subject, queue))
        return self._sid

    def unlisten(self, sid: int) -> None:
        if self._interests.pop(sid, None) is not None:
            self.mute(sid)

    def denied(self, sid: int) -> bool:
        return self._interests[sid].denied

    def mute(self, sid: int) -> None:
        if self._connected:
            self._queue(unsubscribe_command(sid))

    async def settle(self) -> None:
        if self._connected:
            await self._outgoing.ping()

    def post(self, subject: str, payload: bytes, *, reply: str = "", header: bytes = b"") -> None:
        # Clean-up after the close still posts (a task given back, a consumer to delete), and reaches nothing.
        if self._finished:
            return
        size = len(payload) + len(header)
        # Headers count: the broker would close the connection, not only refuse the message.
        if size > self._info.max_payload:
            raise PayloadTooLarge(
                f"{len(payload)} bytes and {len(header)} of headers on {subject!r}; the broker takes "
                f"{self._info.max_payload}"
            )
        command = publish_command(subject, reply, len(header), size)
        self._outgoing.add((command, header, payload, CRLF), size + len(command))

    async def send(self, subject: str, payload: bytes, *, reply: str = "", header: bytes = b"") -> None:
        if self._finished or self._outgoing.full:
            await self._room()
        self.post(subject, payload, reply=reply, header=header)

    async def measure_far(self) -> None:
        """Measure how far the broker that stores is, where that is another one, until cancelled."""
        while True:
            await anyio.sleep(PING_INTERVAL_S)
            if self._is_up.is_set() and self.measures_far:
                await self._ask_far()

    async def _ask_far(self) -> None:
        answered = self._loop.create_future()
        self._round_trips.measure(answered, lambda: not answered.cancelled())
        try:
            with suppress(DeadlineExceeded):  # it takes that long at least
                await self.ask("$JS.API.INFO", b"", within_s=API_ANSWER_S)
            answered.set_result(None)
        except (NoWorker, ConnectionLost):
            pass  # it cannot be reached
        finally:
            answered.cancel()

    async def ask(
        self,
        subject: str,
        payload: bytes,
        *,
        within_s: float,
        header: bytes = b"",
        stop: Stop | None = None,
    ) -> RawAnswer:
        if not self._is_up.is_set() or self._finished or self._outgoing.full:
            started_s = self._loop.time()
            with anyio.move_on_after(within_s) as scope:
                await self.wait_up()
                await self._room()
            if scope.cancelled_caught:
                raise DeadlineExceeded(f"the broker did not come back within {within_s:.1f} s")
            # What the wait for the connection took is gone from the caller's time.
            within_s -= self._loop.time() - started_s
        number, reply, future, timer = self._requests.begin(subject, within_s)
        try:
            if stop is not None:
                stop.calls(partial(stopped, future))
            self.post(subject, payload, reply=reply, header=header)
            # It may be large, and the answer may take minutes.
            del payload
            answer = await future
        finally:
            if timer is not None:
                timer.cancel()
            self._requests.end(number)
        # Failures come as results (`Requests`), and are raised in the caller's task only.
        if not isinstance(answer, RawAnswer):
            raise answer
        if answer.header.startswith(NO_RESPONDERS):
            raise NoWorker(f"no worker serves {subject!r}")
        return answer

    @property
    def crowded(self) -> bool:
        return self._outgoing.crowded

    async def ease(self) -> None:
        await self._outgoing.ease()

    async def _room(self) -> None:
        while not self._finished and self._outgoing.full:
            await self._outgoing.room()
        if self._finished:
            raise ConnectionLost(CLOSED)

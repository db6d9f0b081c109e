"""Working on the queue: runs the credit rules of `gym_runtime.bus.pull` against a durable consumer.

One inbox per connection takes deliveries and statuses; one timer keeps all deliveries alive; each
delivery runs in a task group of its own puller.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio
import msgspec
from anyio.abc import TaskGroup

from gym_runtime.bus.blobs import Blobs, pull_terms
from gym_runtime.bus.interface import Delivery, Headers
from gym_runtime.bus.link import Link
from gym_runtime.bus.pull import Command, Credit, Ended, Event, Phase, Rank, Slots, ask, step
from gym_runtime.bus.streams import Streams
from gym_runtime.bus.wire import Stamp, description, is_completed, status
from gym_runtime.cancellation import contained
from gym_runtime.errors import BrokerError, ConnectionLost, GymError, RuntimeFault, TransportError
from gym_runtime.logs import logger
from gym_runtime.task_pool import TaskPool
from gym_runtime.timing import EXPIRES_S, HEARTBEAT_S, RELEASE_S

MAX_ACK_PENDING = -1
"""Tasks in flight over all workers of a pattern: as many as they ask for. The default is 1000."""
MAX_WAITING = 65536
"""Open pulls over all workers of a pattern, up to eight a worker; the broker's default is 512."""
QUEUE_KEPT_S = 86400.0
"""After so long without workers the broker forgets the consumer of a queue that does not stay. Its tasks are
kept; a rollout that was in progress then is taken for a new one, and stopped by its journal once."""
PULL_TICK_S = 0.5
"""How often a puller looks for silence, and asks where a pause or a slow link kept it from asking."""
PULL_CLEANUP_S = 2.0
"""How long a puller that ends waits for the tasks that are on their way, to give them back."""
CLOSED_KEPT_S = 2.0
"""The same for a queue that is closed. In a cluster each consumer is a group that elects a leader: 500 that
are left over take 7 % of a core of each of three brokers."""
NO_CONSUMER_TO_UPDATE = 10149
"""One of the values of `err_code`, see `gym_runtime.bus.streams`."""
RESTORE_S = 1.0
"""The pause before a consumer that cannot be made again is tried once more."""

log = logger()

ORDINARY = (404, 408)  # statuses that end a pull after its time


async def open_queue(
    streams: Streams,
    pattern: str,
    consumer: str,
    ack_wait_s: float,
    most: int | None = None,
    *,
    closed: bool = False,
) -> None:
    """Create or adapt the durable consumer that all workers on a pattern of the work queue share.

    Args:
        closed: only adapt it, so that it is forgotten once no worker pulls it; not an error if it is already.

    Raises:
        BrokerError: The broker refuses it, or is silent.
    """
    name = streams.names.consumer(consumer)
    config = {
        "durable_name": name,
        "deliver_policy": "all",
        "ack_policy": "explicit",
        # The broker's API counts in nanoseconds.
        "ack_wait": int(ack_wait_s * 1e9),
        # Without a limit: after `max_deliver` the broker would keep the task and never deliver it again.
        "max_deliver": -1,
        "max_ack_pending": most or MAX_ACK_PENDING,
        "max_waiting": MAX_WAITING,
    }
    if most is not None:
        config["inactive_threshold"] = int((CLOSED_KEPT_S if closed else QUEUE_KEPT_S) * 1e9)
    # Clients and agents may adapt consumers at a secured broker, and not delete them.
    only_adapt: dict[str, Any] = {"action": "update", "expected": NO_CONSUMER_TO_UPDATE} if closed else {}
    await streams.consume(pattern, name, config, **only_adapt)


class QueueDelivery:
    """A `gym_runtime.bus.interface.Delivery` of the work queue."""

    def __init__(self, link: Link, subject: str, reply: str, headers: Headers, payload: bytes) -> None:
        self._link, self._reply, self._headers = link, reply, headers
        self.subject, self.payload = subject, payload
        stamp = Stamp.of(reply)
        self.deliveries, self.stored_s = stamp.deliveries, stamp.stored_s
        self.settled = self.put_off = False

    @property
    def headers(self) -> Headers | None:
        # Ids and conditions that the bus itself added are not the sender's headers.
        return {name: value for name, value in self._headers.items() if not name.startswith("Nats-")} or None

    async def ack(self) -> None:
        if not self.settled:
            # Before the await: a cancelled `ack` must not be followed by a release of the same task.
            self.settled = True
            await self._link.send(self._reply, b"+ACK")

    async def release(self, delay_s: float = 0.0) -> None:
        self.give_back(delay_s)

    def abandon(self) -> None:
        self.settled = True

    def give_back(self, delay_s: float = 0.0) -> None:
        """`release`, for places that cannot wait."""
        if not self.settled:
            self.settled, self.put_off = True, delay_s > 0
            # A plain -NAK is delivered again at once; the delay is in nanoseconds.
            delay = b' {"delay": %d}' % int(delay_s * 1e9) if delay_s > 0 else b""
            self._link.post(self._reply, b"-NAK" + delay)

    def keep_alive(self) -> None:
        """Restart the broker's wait for an acknowledgement."""
        if not self.settled:
            self._link.post(self._reply, b"+WPI")


class Puller:
    """One call of `gym_runtime.bus.interface.Bus.pull`."""

    def __init__(
        self,
        link: Link,
        streams: Streams,
        blobs: Blobs,
        *,
        pattern: str,
        consumer: str,
        slots: Slots,
        handle: Callable[[Delivery], Awaitable[None]],
        ack_wait_s: float,
        most: int | None = None,
        rank: Rank | None = None,
    ) -> None:
        self._link, self._names, self._blobs = link, streams.names, blobs
        self._create = partial(open_queue, streams, pattern, consumer, ack_wait_s, most)
        self._consumer = f"{self._names.stream(pattern)}.{self._names.consumer(consumer)}"
        self._handle = handle
        self._ack_wait_s = ack_wait_s
        expires_s = min(EXPIRES_S, ack_wait_s / 2)
        heartbeat_s = min(HEARTBEAT_S, expires_s / 2)  # the broker refuses longer ones
        self._request = {"expires": int(expires_s * 1e9), "idle_heartbeat": int(heartbeat_s * 1e9)}
        self._slots = slots
        self._share = slots.join(self._look, rank)
        self._credit = Credit(heartbeat_s=heartbeat_s)
        self._in_flight: dict[QueueDelivery, None] = {}
        self._inbox, self._sid, self._numbers = "", 0, itertools.count(1)
        self._missing = False
        self._opening: anyio.CancelScope | None = None
        self._wake = anyio.Event()
        self._tasks: TaskGroup
        self._pool: TaskPool

    async def run(self, stop: anyio.Event | None) -> None:
        """Work until cancelled, or until ``stop`` is set and everything in flight is finished.

        Raises:
            BrokerError: The broker refuses the consumer.
            ConnectionLost: The bus is closed.
        """
        try:
            await self._create()
        except BaseException:  # a cancellation, too: the share must not stay
            self._share.leave()
            raise
        unwatch = self._link.watch(self._on_link)
        try:
            async with anyio.create_task_group() as self._tasks:
                self._pool = TaskPool(self._tasks)
                self._tasks.start_soon(self._keep_alive)
                self._tasks.start_soon(self._tick)
                if stop is not None:
                    self._tasks.start_soon(self._until_stopped, stop)
                if self._link.up:
                    self._open()
                while not self._link.closed and (
                    self._credit.phase is not Phase.CLOSING or self._credit.busy
                ):
                    if self._missing and self._credit.phase is not Phase.CLOSING:
                        await self._restore()
                    else:
                        self._wake = anyio.Event()
                        await self._wake.wait()
                self._tasks.cancel_scope.cancel()  # its timers run for ever
        finally:
            unwatch()
            # Dropping the inbox ends the open pulls at the broker; what it has sent already comes back.
            self._feed("stopped")
            for delivery in self._in_flight:
                delivery.give_back()  # a task that was cancelled before its first step has not done so
            self._share.leave()
            with anyio.move_on_after(PULL_CLEANUP_S, shield=True):
                await self._link.settle()
            self._link.unlisten(self._sid)
        if self._link.closed:
            raise ConnectionLost("the connection to the broker is closed")

    async def _restore(self) -> None:
        with anyio.CancelScope() as self._opening:  # a stop must not wait for a silent broker
            try:
                await self._create()
            except GymError as error:
                log.warning("consumer not restored", consumer=self._consumer, error=str(error))
                await anyio.sleep(RESTORE_S)
            else:
                self._missing = False
                self._open()

    def _open(self) -> None:
        self._change_inbox()
        self._feed("opened")

    def _change_inbox(self) -> None:
        if self._sid:
            self._link.mute(self._sid)
            self._tasks.start_soon(self._retire, self._sid)  # not awaited: read callbacks come here
        inbox = self._inbox = self._link.inbox()
        self._sid = self._link.listen(f"{inbox}.*", partial(self._on_message, inbox))

    async def _retire(self, sid: int) -> None:
        # After a freeze of our own, what was sent to the old inbox has only now been read.
        await self._link.settle()
        self._link.unlisten(sid)

    def _on_link(self, up: bool) -> None:
        if up:
            # A broker that was started again gives tasks without a sign of life to others within seconds.
            self._say_alive()
            # The durable consumer outlives a restart of the broker; if not, the next pull shows it.
            self._open()
        else:
            self._link.unlisten(self._sid)
            self._sid = 0  # there is nothing to end any more; no subscription has the number 0
            self._feed("broke")
            self._wake.set()

    async def _until_stopped(self, stop: anyio.Event) -> None:
        await stop.wait()
        self._feed("stopped")
        if self._opening is not None:
            self._opening.cancel()
        self._wake.set()

    async def _tick(self) -> None:
        while True:
            await anyio.sleep(PULL_TICK_S)
            self._look()

    def _look(self) -> None:
        self._slots.fit(self._link.round_trips.seconds)
        self._feed("ticked")

    async def _keep_alive(self) -> None:
        while True:
            await anyio.sleep(self._ack_wait_s / 3)
            if self._link.up:
                self._say_alive()

    def _say_alive(self) -> None:
        for delivery in self._in_flight:  # without an await: `_work` changes the dict
            delivery.keep_alive()

    def _on_message(self, inbox: str, subject: str, reply: str, headers: Headers, payload: bytes) -> None:
        match status(headers):
            case 0:
                delivery = QueueDelivery(self._link, self._names.bare(subject), reply, headers, payload)
                self._share.fed(time.monotonic())
                self._feed("delivered" if inbox == self._inbox else "stray", delivery)
            case _ if inbox != self._inbox:  # a pull that was written off
                pass
            case 100:
                self._feed("heartbeat")
            case 503:  # no responders: the consumer is gone, or JetStream is not up yet
                self._feed("vanished")
            case 409 if "deleted" in description(headers).lower():
                self._feed("vanished")
            case code:
                completed = is_completed(headers)
                if not completed:
                    self._share.went_without(time.monotonic())
                # A refusal does not say how much was left: all that `_feed` asked for.
                left = int(headers.get("Nats-Pending-Messages") or subject.rpartition("-")[2])
                self._feed(Ended(left, refused=code not in ORDINARY and not completed))

    def _feed(self, event: Event, delivery: QueueDelivery | None = None) -> None:
        now_s, held = time.monotonic(), self._share.held
        self._credit, command = step(self._credit, event, now_s, self._share.most)
        self._count()
        if command is not None:
            self._obey(command, delivery)
        # What it may ask for depends on what the event has changed.
        self._credit, batch = ask(self._credit, now_s, self._share.limit(now_s))
        self._count()
        if batch:
            how = {"no_wait": True} if self._share.brief else self._request
            terms = msgspec.json.encode({**how, **pull_terms(batch, self._link.max_payload)})
            following = f"$JS.API.CONSUMER.MSG.NEXT.{self._consumer}"
            self._link.post(following, terms, reply=f"{self._inbox}.{next(self._numbers)}-{batch}")
        if self._share.held < held:
            self._share.released()

    def _count(self) -> None:
        self._share.busy, self._share.asked = self._credit.busy, self._credit.asked
        self._share.is_open = self._credit.phase is Phase.OPEN

    def _obey(self, command: Command, delivery: QueueDelivery | None) -> None:
        match command:
            case "start":
                assert delivery is not None
                self._in_flight[delivery] = None
                self._pool.start_soon(self._work, delivery)
            case "refuse":
                assert delivery is not None
                delivery.give_back()
            case "reopen":
                self._change_inbox()
            case "leave":
                self._link.mute(self._sid)
            case "restore":
                self._missing = True
                self._wake.set()

    async def _work(self, delivery: QueueDelivery) -> None:
        delay_s = 0.0
        try:
            delivery.payload = await self._blobs.fetch(delivery.payload)
            async with contained(RuntimeFault, "agent"):
                await self._handle(delivery)
        except anyio.get_cancelled_exc_class():
            # Stop asking before the slot is free, or this puller would be sent the task that it gives back.
            self._feed("stopped")
            raise
        except TransportError as error:
            # The connection to the broker failed; the handler that waited for it has logged why.
            # Once for a task: a blob that is gone may stay so, and its run would wait without a word.
            lasts = (
                isinstance(error, BrokerError) and not error.silent and delivery.deliveries == len(RELEASE_S)
            )
            say = log.warning if lasts else log.info
            say("a task is given back", subject=delivery.subject, reason=str(error))
            delay_s = _release_s(delivery)
        except Exception:
            # The boundary to the handler: its bug gives back one task and ends nothing else.
            log.exception("handling failed", subject=delivery.subject, deliveries=delivery.deliveries)
            delay_s = _release_s(delivery)
        finally:
            delivery.give_back(delay_s)
            self._in_flight.pop(delivery, None)
            if delivery.put_off:
                # Its queue is not preferred to one whose tasks can be worked on.
                self._share.went_without(time.monotonic())
            self._feed("finished")
            self._wake.set()


def _release_s(delivery: Delivery) -> float:
    # Not `retrying`: how often it failed is counted by the broker, over all workers.
    return RELEASE_S[min(delivery.deliveries, len(RELEASE_S)) - 1] * random.uniform(0.5, 1.5)

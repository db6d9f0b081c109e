"""The work queue: tasks, and the workers that have them.

A task waits, or belongs to one delivery. The task's count of deliveries identifies the delivery: one with an
older count may still ack, but can no longer release the task or keep it alive.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial

import anyio
import structlog
from anyio.abc import TaskGroup
from gym_runtime import clock
from gym_runtime.bus import Delivery, Headers, QueueDepth, Rank, Slots
from gym_runtime.cancellation import contained
from gym_runtime.errors import BrokerError, RuntimeFault
from gym_runtime.task_pool import TaskPool
from gym_runtime.timing import RELEASE_S

from gym_testing.memory.faults import Kind
from gym_testing.memory.line import Action, Line
from gym_testing.memory.subject_patterns import compiled, overlap

log = structlog.get_logger(__name__)

BEATS = 3
"""How often a delivery is kept alive within the time after which it would be given up."""

Carry = Callable[[Kind, str, Line | None, Line | None, Action], bool]
"""Transmits a message of a subject from a sender to a receiver; False if it is lost. None is the broker."""


class Task:
    """A task on the queue."""

    def __init__(self, sequence: int, subject: str, payload: bytes, headers: Headers | None) -> None:
        self.sequence = sequence
        self.subject = subject
        self.payload = payload
        self.headers = headers
        self.stored_s = clock.now()
        self.deliveries = 0
        self.held = False
        """Whether it is delivered, and neither released nor expired."""
        self.until_s = 0.0
        """When its delivery expires, in the event loop's time."""
        self.consumer: Consumer | None = None

    def __lt__(self, other: Task) -> bool:
        return self.sequence < other.sequence


class Consumer:
    """A pattern's share of the queue, for all its workers."""

    def __init__(self, pattern: str, ack_wait_s: float, carry: Carry) -> None:
        self.pattern = pattern
        self.ack_wait_s = ack_wait_s
        self.most = 0
        """Tasks that are in flight at most; 0 for no limit."""
        self._pending: set[int] = set()
        self._carry = carry
        self._waiting: list[Task] = []
        self._workers: deque[Puller] = deque()
        self._loop = asyncio.get_running_loop()

    def join(self, worker: Puller) -> None:
        """Give a worker tasks from now on."""
        self._workers.append(worker)
        self.dispatch()

    def leave(self, worker: Puller) -> None:
        """Give a worker no more tasks; not an error if it had left."""
        if worker in self._workers:
            self._workers.remove(worker)

    def offer(self, task: Task) -> None:
        """A task waits; the oldest is delivered first."""
        heapq.heappush(self._waiting, task)
        self.dispatch()

    def drop(self, gone: Callable[[Task], bool]) -> None:
        """Forget the waiting tasks that are gone."""
        self._waiting = [task for task in self._waiting if not gone(task)]
        heapq.heapify(self._waiting)

    @property
    def served(self) -> bool:
        return bool(self._workers)

    @property
    def waiting(self) -> int:
        return sum(task.deliveries == 0 for task in self._waiting)

    def dispatch(self) -> None:
        """Deliver waiting tasks to workers with free slots, round robin."""
        while self._waiting and self._may_deliver() and (worker := self._next()) is not None:
            task = heapq.heappop(self._waiting)
            self._pending.add(task.sequence)
            task.deliveries += 1
            task.held = True
            task.until_s = self._loop.time() + self.ack_wait_s
            self._loop.call_at(task.until_s, self._expire, task, task.deliveries)
            receive = partial(worker.receive, task, task.deliveries)
            if self._carry("delivery", task.subject, None, worker.line, receive):
                worker.expect()

    def _may_deliver(self) -> bool:
        again = self._waiting[0].sequence in self._pending
        return not self.most or again or len(self._pending) < self.most

    @property
    def wants(self) -> bool:
        """Whether a task could be delivered now."""
        return bool(self._waiting) and self._may_deliver()

    def forget(self, task: Task) -> None:
        """A task is done, or deleted."""
        self._pending.discard(task.sequence)
        self.dispatch()

    def _next(self) -> Puller | None:
        for _ in range(len(self._workers)):
            worker = self._workers[0]
            self._workers.rotate(-1)
            if worker.free > 0:
                return worker
        return None

    def _expire(self, task: Task, deliveries: int) -> None:
        if task.deliveries != deliveries or not task.held or task.consumer is not self:
            return
        if self._loop.time() < task.until_s:
            self._loop.call_at(task.until_s, self._expire, task, deliveries)
        else:
            self.give_back(task, deliveries, 0.0)

    def keep_alive(self, task: Task, deliveries: int) -> None:
        """A delivery is still worked on."""
        if task.deliveries == deliveries:
            task.until_s = self._loop.time() + self.ack_wait_s

    def give_back(self, task: Task, deliveries: int, delay_s: float) -> None:
        """A delivery ends without an ack; the task waits again after ``delay_s``."""
        if task.deliveries == deliveries and task.held:
            task.held = False
            if delay_s > 0:
                self._loop.call_later(delay_s, self._offer_again, task)
            else:
                self._offer_again(task)

    def _offer_again(self, task: Task) -> None:
        if task.consumer is self:
            self.offer(task)


class WorkQueue:
    """All tasks and consumers."""

    def __init__(self, carry: Carry) -> None:
        self._carry = carry
        self._tasks: dict[int, Task] = {}
        self._consumers: dict[str, Consumer] = {}
        self._sequence = 0

    def add(self, subject: str, payload: bytes, headers: Headers | None, *, once: bool = False) -> None:
        """Store a task; with ``once`` only if no task has this subject."""
        if once and any(task.subject == subject for task in self._tasks.values()):
            return
        self._sequence += 1
        task = self._tasks[self._sequence] = Task(self._sequence, subject, payload, headers)
        for consumer in self._consumers.values():
            if compiled(consumer.pattern).fullmatch(subject):
                self._assign(task, consumer)

    def consumer(self, name: str, pattern: str, ack_wait_s: float, most: int | None = None) -> Consumer:
        """The consumer of a name; created if it does not exist.

        Raises:
            BrokerError: it has another pattern, or the pattern overlaps with another consumer's.
        """
        consumer = self._consumers.get(name)
        if consumer is None:
            for other_name, other in self._consumers.items():
                if overlap(pattern, other.pattern):
                    raise BrokerError(
                        f"the broker refuses the consumer {name} of {pattern!r}: {other_name} takes "
                        f"{other.pattern!r} already; consumers' patterns must not overlap"
                    )
            consumer = self._consumers[name] = Consumer(pattern, ack_wait_s, self._carry)
            for task in self._tasks.values():
                if compiled(pattern).fullmatch(task.subject):
                    self._assign(task, consumer)
        elif consumer.pattern != pattern:
            raise BrokerError(
                f"the broker refuses the consumer {name} of {pattern!r}: it exists for {consumer.pattern!r}"
            )
        consumer.ack_wait_s, consumer.most = ack_wait_s, most or 0
        consumer.dispatch()
        return consumer

    def close(self, name: str) -> None:
        """Forget a consumer that has no workers."""
        consumer = self._consumers.get(name)
        if consumer is not None and not consumer.served:
            del self._consumers[name]

    def _assign(self, task: Task, consumer: Consumer) -> None:
        task.consumer = consumer
        consumer.offer(task)

    def finish(self, task: Task) -> None:
        """A task is done; not an error if it was already."""
        if self._tasks.pop(task.sequence, None) is not None and task.consumer is not None:
            consumer, task.consumer = task.consumer, None
            if not task.held:
                consumer.drop(lambda waiting: waiting is task)
            consumer.forget(task)

    def forget(self, pattern: str) -> int:
        """Delete the tasks of a pattern, held ones too; returns how many."""
        matches = compiled(pattern).fullmatch
        gone = [task for task in self._tasks.values() if matches(task.subject)]
        freed = [(task, task.consumer) for task in gone]
        for task in gone:
            del self._tasks[task.sequence]
            task.consumer = None
        for consumer in self._consumers.values():
            consumer.drop(lambda task: task.consumer is None)
        for task, consumer in freed:
            if consumer is not None:
                consumer.forget(task)
        return len(gone)

    def counts(self, pattern: str) -> dict[str, int]:
        """How many tasks there are under each subject of a pattern."""
        matches = compiled(pattern).fullmatch
        found: dict[str, int] = {}
        for task in self._tasks.values():
            if matches(task.subject):
                found[task.subject] = found.get(task.subject, 0) + 1
        return found

    def depth(self, name: str) -> QueueDepth:
        """A task that was delivered and given back counts as in flight until it is done."""
        consumer = self._consumers.get(name)
        if consumer is None:
            return QueueDepth(waiting=0, in_flight=0)
        waiting = consumer.waiting
        total = sum(task.consumer is consumer for task in self._tasks.values())
        return QueueDepth(waiting=waiting, in_flight=total - waiting)


# -- one call of `Bus.pull` ---------------------------------------------------------------------------


class MemoryDelivery:
    """A `gym_runtime.bus.interface.Delivery`."""

    def __init__(self, queue: WorkQueue, carry: Carry, line: Line, task: Task, deliveries: int) -> None:
        self._queue = queue
        self._carry = carry
        self._line = line
        self._task = task
        self.subject = task.subject
        self.payload = task.payload
        self.headers: Headers | None = None if task.headers is None else dict(task.headers)
        self.deliveries = deliveries
        self.stored_s = task.stored_s
        self.settled = False

    async def ack(self) -> None:
        await self._line.room()
        if not self.settled:
            self.settled = True
            self._tell("ack", partial(self._queue.finish, self._task))

    async def release(self, delay_s: float = 0.0) -> None:
        await self._line.room()
        if not self.settled:
            self.give_back(delay_s)

    def abandon(self) -> None:
        self.settled = True

    def give_back(self, delay_s: float) -> None:
        """`release`, for places that cannot wait."""
        self.settled = True
        consumer = self._task.consumer
        if consumer is not None:
            self._tell("ack", partial(consumer.give_back, self._task, self.deliveries, delay_s))

    def keep_alive(self) -> None:
        """Restart the broker's wait for an ack."""
        consumer = self._task.consumer
        if consumer is not None and not self.settled:
            self._tell("beat", partial(consumer.keep_alive, self._task, self.deliveries))

    def _tell(self, kind: Kind, action: Action) -> None:
        self._line.send(partial(self._carry, kind, self.subject, self._line, None, action))


class Puller:
    """Takes as many deliveries as it has slots, and keeps them alive."""

    def __init__(
        self,
        queue: WorkQueue,
        carry: Carry,
        line: Line,
        consumer: Consumer,
        *,
        slots: Slots,
        handle: Callable[[Delivery], Awaitable[None]],
        rank: Rank | None = None,
    ) -> None:
        self.line = line
        self._queue = queue
        self._carry = carry
        self._consumer = consumer
        self._slots = slots
        self._share = slots.join(consumer.dispatch, rank, lambda: self._open and consumer.wants)
        self._handle = handle
        self._open, self._share.is_open = False, True
        self._in_flight: dict[MemoryDelivery, None] = {}
        self._changed = anyio.Event()
        self._tasks: TaskGroup
        self._pool: TaskPool

    @property
    def free(self) -> int:
        """Free slots as the broker counts them: a slot is taken from dispatch until the broker learns that it
        is free again."""
        part = self._share.part(0.0)
        return self._slots.free if part is None else min(self._slots.free, part - self._share.held)

    async def run(self, stop: anyio.Event | None) -> None:
        """Work until cancelled, or until ``stop`` is set and everything in flight is finished.

        Raises:
            ConnectionLost: The connection was closed.
        """
        unwatch = self.line.watch(self._on_line)
        try:
            async with anyio.create_task_group() as self._tasks:
                self._pool = TaskPool(self._tasks)
                self._tasks.start_soon(self._keep_alive)
                if stop is not None:
                    self._tasks.start_soon(self._until_stopped, stop)
                self._open = True
                if self.line.up:
                    self._consumer.join(self)
                try:
                    while not self.line.closed and (self._open or self._in_flight):
                        self._changed = anyio.Event()
                        await self._changed.wait()
                finally:
                    self._leave()
                self._tasks.cancel_scope.cancel()
        finally:
            unwatch()
            self._share.leave()
        self.line.check()

    def expect(self) -> None:
        """A delivery is on its way."""
        self._share.busy += 1

    def receive(self, task: Task, deliveries: int) -> None:
        """A delivery arrived."""
        delivery = MemoryDelivery(self._queue, self._carry, self.line, task, deliveries)
        if self._open:
            self._in_flight[delivery] = None
            self._pool.start_soon(self._work, delivery)
        else:
            delivery.give_back(0.0)

    def _on_line(self, up: bool) -> None:
        if up and self._open:
            self._consumer.join(self)
        elif not up:
            # Deliveries on their way are lost; the broker repeats them after the ack wait.
            self._share.busy = len(self._in_flight)
            self._consumer.leave(self)
        self._changed.set()

    def _freed(self, cuts: int) -> None:
        # After a cut the slots were counted again, including those that had become free before.
        if cuts == self.line.cuts:
            self._share.busy -= 1
            self._share.released()
            self._consumer.dispatch()

    def _leave(self) -> None:
        self._open = False
        self._consumer.leave(self)
        self._changed.set()

    async def _until_stopped(self, stop: anyio.Event) -> None:
        await stop.wait()
        self._leave()

    async def _keep_alive(self) -> None:
        while True:
            await anyio.sleep(self._consumer.ack_wait_s / BEATS)
            if self.line.open:
                for delivery in self._in_flight:
                    delivery.keep_alive()

    async def _work(self, delivery: MemoryDelivery) -> None:
        pause_s = RELEASE_S[min(delivery.deliveries, len(RELEASE_S)) - 1]
        try:
            async with contained(RuntimeFault, "agent"):
                await self._handle(delivery)
        except Exception:
            # The boundary to the handler: its bug must give back one task, not all.
            log.exception("handling failed", subject=delivery.subject, deliveries=delivery.deliveries)
        except BaseException:
            # The pull is cancelled. It leaves first, so that the tasks it gives back do not come back to it.
            pause_s = 0.0
            self._leave()
            raise
        finally:
            if not delivery.settled:
                delivery.give_back(pause_s)
            del self._in_flight[delivery]
            self._changed.set()
            self.line.send(partial(self._freed, self.line.cuts))

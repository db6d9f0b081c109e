"""One call of `gym_runtime.bus.interface.Bus.pull` on the in-memory bus."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import anyio
import structlog
from anyio.abc import TaskGroup
from gym_runtime.bus import Delivery, Headers, Slots, TaskPool
from gym_runtime.cancellation import contained
from gym_runtime.errors import RuntimeFault
from gym_runtime.timing import RELEASE_S

from gym_testing.memory.faults import Kind
from gym_testing.memory.line import Action, Line
from gym_testing.memory.work_queue import Carry, Consumer, Task, WorkQueue

log = structlog.get_logger(__name__)

BEATS = 3
"""How often a delivery is kept alive within the time after which it would be given up."""


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
    ) -> None:
        self.line = line
        self._queue = queue
        self._carry = carry
        self._consumer = consumer
        self._slots = slots
        self._share = slots.join(consumer.dispatch)
        self._handle = handle
        self._open = False
        self._in_flight: dict[MemoryDelivery, None] = {}
        self._changed = anyio.Event()
        self._tasks: TaskGroup
        self._pool: TaskPool

    @property
    def free(self) -> int:
        """Free slots as the broker counts them: a slot is taken from dispatch until the broker learns that it
        is free again."""
        return self._slots.free

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
        self._share.busy += 1

    def receive(self, task: Task, deliveries: int) -> None:
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

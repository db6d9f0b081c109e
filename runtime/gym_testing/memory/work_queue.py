"""The work queue: tasks, and the workers that have them.

A task waits, or belongs to one delivery. The task's count of deliveries identifies the delivery: one with an
older count may still ack, but can no longer release the task or keep it alive.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from typing import Protocol

from gym_runtime import clock
from gym_runtime.bus import Headers, QueueDepth
from gym_runtime.errors import BrokerError

from gym_testing.memory.faults import Kind
from gym_testing.memory.line import Action, Line
from gym_testing.memory.subject_patterns import compiled, overlap


class Carry(Protocol):
    """Transmits a message; False if it is lost. None is the broker."""

    def __call__(
        self, kind: Kind, subject: str, sender: Line | None, receiver: Line | None, action: Action, /
    ) -> bool: ...


class Worker(Protocol):
    """A puller of tasks."""

    line: Line

    @property
    def free(self) -> int:
        """How many more tasks it takes."""
        ...

    def expect(self) -> None:
        """A delivery is on its way."""
        ...

    def receive(self, task: Task, deliveries: int) -> None:
        """A delivery arrived."""
        ...


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
        self._carry = carry
        self._waiting: list[Task] = []
        self._workers: deque[Worker] = deque()
        self._loop = asyncio.get_running_loop()

    def join(self, worker: Worker) -> None:
        """Give a worker tasks from now on."""
        self._workers.append(worker)
        self.dispatch()

    def leave(self, worker: Worker) -> None:
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
    def waiting(self) -> int:
        return sum(task.deliveries == 0 for task in self._waiting)

    def dispatch(self) -> None:
        """Deliver waiting tasks to workers with free slots, round robin."""
        while self._waiting and (worker := self._next()) is not None:
            task = heapq.heappop(self._waiting)
            task.deliveries += 1
            task.held = True
            task.until_s = self._loop.time() + self.ack_wait_s
            deliveries = task.deliveries
            self._loop.call_at(task.until_s, self._expire, task, deliveries)

            def receive(worker: Worker = worker, task: Task = task, deliveries: int = deliveries) -> None:
                worker.receive(task, deliveries)

            if self._carry("delivery", task.subject, None, worker.line, receive):
                worker.expect()

    def _next(self) -> Worker | None:
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

    def consumer(self, name: str, pattern: str, ack_wait_s: float) -> Consumer:
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
        consumer.ack_wait_s = ack_wait_s
        return consumer

    def _assign(self, task: Task, consumer: Consumer) -> None:
        task.consumer = consumer
        consumer.offer(task)

    def finish(self, task: Task) -> None:
        """A task is done; not an error if it was already."""
        if self._tasks.pop(task.sequence, None) is not None and task.consumer is not None:
            consumer, task.consumer = task.consumer, None
            if not task.held:
                consumer.drop(lambda waiting: waiting is task)

    def forget(self, pattern: str) -> int:
        """Delete the tasks of a pattern, held ones too; returns how many."""
        matches = compiled(pattern).fullmatch
        gone = [task for task in self._tasks.values() if matches(task.subject)]
        for task in gone:
            del self._tasks[task.sequence]
            task.consumer = None
        for consumer in self._consumers.values():
            consumer.drop(lambda task: task.consumer is None)
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

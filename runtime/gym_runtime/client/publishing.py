"""Rollouts are put on the queues of their agents."""

from __future__ import annotations

from collections.abc import Iterable

import anyio
from anyio.abc import TaskGroup

from gym_runtime import tracing
from gym_runtime.bus.interface import Bus, Headers
from gym_runtime.bus.task_pool import TaskPool
from gym_runtime.client.runs import Runs
from gym_runtime.client.streaming import background
from gym_runtime.client.window import Window
from gym_runtime.errors import BrokerError
from gym_runtime.logs import logger
from gym_runtime.messages.names import token
from gym_runtime.messages.rollout_spec import RolloutSpec, encode_spec

# At the same time, because one after the other would cost a round trip to the broker each.
PUBLISHERS = 64


class Publishing(Runs):
    """Publishes rollouts."""

    def __init__(self, bus: Bus | None = None, tasks: TaskGroup | None = None) -> None:
        super().__init__(bus, tasks)
        self._queues: set[str] = set()

    async def publish(self, tasks: Iterable[RolloutSpec], *, window: Window | None = None) -> int:
        """Put rollouts on the queue; returns how many. With ``window`` each takes one place first.

        Raises:
            UsageError: the name of a run, an agent, an environment or a model cannot be one.
        """
        limit = anyio.Semaphore(PUBLISHERS, fast_acquire=True)
        count = 0
        # Read here: the jobs below run in tasks of the crew, which may have an older context.
        inherited = tracing.inherited()

        async def one(task: RolloutSpec) -> None:
            try:
                await self._enqueue(task, inherited)
            finally:
                limit.release()

        # `cancel=False`: it ends when all are stored.
        async with background(cancel=False) as group:
            crew = TaskPool(group)
            for task in tasks:
                if task.agent not in self._queues:
                    await self._open_queue(task.agent)
                if window is not None:
                    await window.take()
                # Acquired here and released there, so that no more jobs are begun than may run.
                await limit.acquire()
                # In the order of the tasks, and before their results can come.
                self._note_journal(task)
                crew.start_soon(one, task)
                count += 1
            crew.close()
        return count

    async def publish_one(self, task: RolloutSpec) -> None:
        """As `publish`, for a caller who waits for this rollout anyway.

        Raises:
            UsageError: as `publish`.
        """
        self._note_journal(task)
        await self._enqueue(task)

    async def _enqueue(self, task: RolloutSpec, inherited: Headers | None = None) -> None:
        await self.bus.enqueue(queue_of(task), encode_spec(task), headers=tracing.headers() or inherited)

    def _note_journal(self, task: RolloutSpec) -> None:
        if task.durability == "turn":
            self._sweep(task.run).published(task.task_index)

    async def _open_queue(self, agent: str) -> None:
        """Make an agent's queue, so that an autoscaler sees what waits before the first worker is there."""
        # Before the await, so that another publisher does not make it, too.
        self._queues.add(agent)
        name = token(agent, "agent")
        try:
            await self.bus.open_queue(f"task.{name}.>", consumer=f"agent-{name}")
        # Some brokers do not let clients make consumers; the first worker makes it then.
        except BrokerError as error:
            logger().info("a queue is left to its first worker", agent=agent, reason=str(error))


def queue_of(task: RolloutSpec) -> str:
    """The subject under which a rollout waits for its agent."""
    # Only for its error: the caller should meet it, not the worker.
    token(task.model, "model")
    agent, environment = token(task.agent, "agent"), token(task.environment, "environment")
    return f"task.{agent}.{environment}.{token(task.run, 'run')}"

"""Many short jobs in a task group, in tasks that are used again.

For every task that it starts anyio creates a handle, an event, a cancel scope and a state. With anyio 4.16
that costs 11 µs (3 µs with 4.13), and a rollout needs eight tasks. Handing a job to a task that has finished
its last one costs 2 µs. Plain asyncio tasks would be as cheap, but are cancelled once instead of until they
end, and within shielded scopes too. These are tasks of the group, with anyio's cancellation, shields and
errors.

A job that ends as cancelled, though no scope was cancelled, ends alone; otherwise the group would end all
other jobs (`gym_runtime.cancellation`).

A job leaves nothing to the next one: a task whose context variables were changed is not used again, nor is a
task whose scope, which its job may use, was cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any

from anyio import CancelScope
from anyio.abc import TaskGroup

from gym_runtime import logs
from gym_runtime.cancellation import asked_for, own, uncancel

MOST_IDLE = 256
"""The most tasks that wait for a job, of 3 KB each."""

Work = Callable[..., Coroutine[Any, Any, object]]
_Job = tuple[Work, tuple[Any, ...], bool]


class TaskPool:
    """The tasks. They belong to the group; a job's exception ends the group, as a task's would."""

    def __init__(self, tasks: TaskGroup) -> None:
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._idle: list[asyncio.Future[_Job | None]] = []
        self._closed = False

    def start_soon(self, work: Work, *arguments: Any) -> None:
        """Do ``work(*arguments)`` concurrently. As with its own task, a cancellation before its first
        step leaves it undone.
        """
        self._start((work, arguments, False))

    def start_in_scope(self, work: Work, *arguments: Any) -> None:
        """As `start_soon`, with a scope as the first argument: to cancel it ends this job and no other."""
        self._start((work, arguments, True))

    def _start(self, job: _Job) -> None:
        while self._idle:
            waiting = self._idle.pop()
            if not waiting.done():  # else its task was cancelled
                waiting.set_result(job)
                return
        self._tasks.start_soon(self._member, job)

    def close(self) -> None:
        """Let the tasks end when their jobs are done, so that the group can be left without cancelling it."""
        self._closed = True
        while self._idle:
            waiting = self._idle.pop()
            if not waiting.done():
                waiting.set_result(None)

    async def _member(self, job: _Job | None) -> None:
        task = asyncio.current_task()
        assert task is not None
        own(task)
        # Before the copy is taken, and again after each job: only then are the two contexts comparable.
        logs.set_rollout("", 0)
        context = copy_context()
        work: Work | None = None
        try:
            with CancelScope() as scope:
                while job is not None:
                    work, arguments, in_scope = job
                    await (work(scope, *arguments) if in_scope else work(*arguments))
                    logs.set_rollout("", 0)
                    # A job may have swallowed a cancellation; the next job must not inherit it.
                    cancelled = scope.cancel_called or task.cancelling()
                    if self._closed or len(self._idle) >= MOST_IDLE or cancelled or copy_context() != context:
                        break
                    # A waiting task must not keep the last job's payload in memory.
                    del job, arguments
                    work = None
                    waiting: asyncio.Future[_Job | None] = self._loop.create_future()
                    self._idle.append(waiting)
                    job = await waiting
                    del waiting
        except asyncio.CancelledError:
            if asked_for():
                raise
            if work is not None:
                logs.logger().error("a job was cancelled by code that it ran, and not by the runtime")
        if task.cancelling() and not asked_for():
            await uncancel(task)  # else the task would end as cancelled

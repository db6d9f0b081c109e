"""A child whose descendants and itself have common limits: the number of processes, and their memory.

Where control groups can be made, the child has one (`cgroups`): the kernel stops it at its limits however
fast it grows, and killing the group ends all descendants. Elsewhere the tree is read from `/proc`. In both
cases it is checked while a caller waits for it (`Bounded.watch`), and killed if it exceeds a limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import anyio
import anyio.to_thread

from gym_sandbox.processes import cgroups, tree
from gym_sandbox.processes.child import KILL_LIMIT_S, Child, EndOfProcess, Process
from gym_sandbox.processes.disturbances import DOUBT
from gym_sandbox.sandbox_errors import Interrupted

REMOVAL_PAUSE_S = 0.005
"""The pause between two tries to remove a control group whose processes are ending."""

WATCH_S = 0.25
"""How often `Bounded.watch` looks. Not more often: a look costs the event loop up to half a millisecond."""

LAST_S = 1.0
"""How long the end of a process is awaited whose pipes have ended."""

TASKS_EACH = 16  # threads of a process, on average; a numerical library starts one per CPU


class Bounds(NamedTuple):
    """Limits of a child and all its descendants together.

    Attributes:
        processes: how many there may be at a time; `Bounded.find_excess` finds more. With control groups, the
            kernel also allows at most `TASKS_EACH` times as many processes and threads.
        memory_bytes: the memory of all of them together.
        files_bytes: additional memory for files in memory, which only control groups count.
    """

    processes: int
    memory_bytes: int
    files_bytes: int = 0

    def group(self) -> cgroups.ControlGroup | None:
        """A control group for one child, or None where this process cannot make one.

        The kernel makes and removes one group after the other, and takes up to half a second for each on a
        busy machine: call it in a thread where that is possible.
        """
        memory_bytes = self.memory_bytes + self.files_bytes
        return cgroups.group(memory_bytes=memory_bytes, tasks=TASKS_EACH * self.processes)


class Bounded(Child):
    """A child with limits on its whole tree.

    Args:
        bounds: of its whole tree.
        group: made for it with these bounds (`Bounds.group`), and its own once it has started.

    Attributes:
        excess: the limit for which it was killed, in words, or None.

    Raises:
        OSError: it cannot be started.
    """

    excess: str | None = None
    _killed_here = False

    def __init__(
        self,
        arguments: Sequence[str] | Process,
        *,
        bounds: Bounds,
        group: cgroups.ControlGroup | None,
        environment: Mapping[str, str] | None = None,
        directory: str | None = None,
        keep_open: Sequence[int] = (),
        with_errors: bool = False,
    ) -> None:
        self._bounds, self._group = bounds, group
        super().__init__(
            group.joining(arguments) if group and isinstance(arguments, Sequence) else arguments,
            environment=environment,
            directory=directory,
            keep_open=keep_open,
            with_errors=with_errors,
        )

    @property
    def kept_by_kernel(self) -> bool:
        """Whether it has a control group."""
        return self._group is not None

    def find_excess(self) -> str | None:
        """Which limit it exceeds, or for which the kernel has killed a part of it, in words; or None.

        The second is known also after its end, until it is closed.
        """
        if self._group is None:
            running = self.exit_code is None
            return (
                tree.excess(self.pid, self._bounds.processes, self._bounds.memory_bytes) if running else None
            )
        return tree.crowd(len(self._group.members()), self._bounds.processes) or self._group.excess()

    def find_kill(self) -> str | None:
        """The limit for which the kernel has killed a part of it, in words; or None."""
        return self._group.excess() if self._group else None

    @property
    def killed_outside(self) -> bool:
        """Whether something else has killed it than this process, its limits and what runs in it.

        Known after its end and before `close`; False where that cannot be told.
        """
        return self._ended_by is False and self._not_ours()

    @property
    def doubtful(self) -> bool:
        """Whether something else may have killed it, or what runs in it. Known as `killed_outside` is."""
        return self._ended_by is None and self._not_ours()

    @property
    def _ended_by(self) -> bool | None:
        """Whether what runs in it has ended it, if it has ended and was not killed here; None: in doubt."""
        return True

    def _not_ours(self) -> bool:
        return not self._killed_here and not (self.excess or self.find_excess())

    async def require_own_end(self) -> None:
        """Return if it has not ended, or ended by what it does and may.

        Raises:
            Interrupted: something outside has killed it (`killed_outside`).
        """
        with anyio.move_on_after(LAST_S):
            await self.wait()
            if self.killed_outside:
                raise Interrupted("something outside has killed the sandbox")

    async def watch(self) -> None:
        """Kill it when all its processes together exceed its limits; cancel to stop watching.

        The limits that the shell sets apply to each process alone, and in the weak mode they do not limit the
        number of processes.
        """
        while self.excess is None:
            await anyio.sleep(WATCH_S)
            self.excess = self.find_excess()
        await self.end()

    async def send(self, message: bytes) -> None:
        """As `Child.send`.

        Raises:
            EndOfProcess: it no longer reads.
            Interrupted: something outside has killed it.
        """
        try:
            await super().send(message)
        except EndOfProcess:
            await self.require_own_end()
            raise

    async def receive(self, at_most_bytes: int) -> bytes:
        """As `Child.receive`, while its limits are checked. It ends when its first process ends.

        Raises:
            EndOfProcess: as `Child.receive`, or it exceeded a limit and was killed.
            Interrupted: something outside has killed it. In doubt it is an `EndOfProcess` with `DOUBT`.
        """
        received: list[bytes | EndOfProcess] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._end_with_the_program)
            tasks.start_soon(self.watch)
            try:
                received.append(await super().receive(at_most_bytes))
            # Not through the task group, which would wrap it.
            except EndOfProcess as error:
                received.append(error)
            tasks.cancel_scope.cancel()
        if isinstance(received[0], EndOfProcess):
            self.excess = self.excess or self.find_excess()
            if not self.excess:
                await self.require_own_end()
                if self.doubtful:
                    raise EndOfProcess(DOUBT)
            raise EndOfProcess(f"killed: {self.excess}") if self.excess else received[0]
        return received[0]

    async def _end_with_the_program(self) -> None:
        """End it when the program ends: processes that it has left would keep the pipes open."""
        await self.wait()
        await self.end()

    def kill(self) -> None:
        self._killed_here = self._killed_here or self.exit_code is None
        super().kill()

    async def end(self) -> None:
        # Asked before the kill: afterwards nothing is left to be measured.
        self.excess = self.excess or self.find_excess()
        await super().end()
        if self._group:
            # Daemons have left the tree, but not the group.
            self._group.kill()

    async def close(self) -> None:
        await super().close()
        if self._group:
            with anyio.move_on_after(KILL_LIMIT_S, shield=True):
                # In a thread: on a busy machine the kernel takes half a second to remove a group.
                while not await anyio.to_thread.run_sync(self._group.remove):  # noqa: ASYNC110 - no event
                    await anyio.sleep(REMOVAL_PAUSE_S)

    def abandon(self) -> None:
        super().abandon()
        if self._group:
            self._group.remove()

"""A sandboxed process whose limits are checked while it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import anyio

from gym_sandbox.limits import Limits
from gym_sandbox.processes.bounded import Bounded, Bounds
from gym_sandbox.processes.cgroups import ControlGroup
from gym_sandbox.processes.child import EndOfProcess

# Not more often: a look costs the event loop up to half a millisecond.
WATCH_S = 0.25
OF_ITS_OWN = 3  # bubblewrap's processes, and a shell that has not become the program yet


def bounds(limits: Limits) -> Bounds:
    """The limits of a program and of what starts it, together."""
    return Bounds(limits.processes + OF_ITS_OWN, limits.memory_bytes, 2 * limits.disk_bytes)


class Watched(Bounded):
    """A process whose limits are checked while a caller waits for it.

    Attributes:
        excess: the limit for which it was killed, in words, or None.
    """

    excess: str | None = None

    def __init__(
        self,
        arguments: Sequence[str],
        limits: Limits,
        group: ControlGroup | None,
        *,
        environment: Mapping[str, str],
        directory: str | None = None,
        keep_open: Sequence[int] = (),
        with_errors: bool,
    ) -> None:
        super().__init__(
            arguments,
            bounds=bounds(limits),
            group=group,
            environment=environment,
            directory=directory,
            keep_open=keep_open,
            with_errors=with_errors,
        )

    async def watch(self) -> None:
        """Kill it when all its processes together exceed its limits; cancel to stop watching.

        The limits that the shell sets apply to each process alone, and in the weak mode they do not limit the
        number of processes.
        """
        while self.excess is None:
            await anyio.sleep(WATCH_S)
            self.excess = self.find_excess()
        await self.end()

    async def end(self) -> None:
        # Asked before the kill: afterwards nothing is left to be measured.
        self.excess = self.excess or self.find_excess()
        await super().end()

    async def receive(self, at_most_bytes: int) -> bytes:
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
            raise EndOfProcess(f"killed: {self.excess}") if self.excess else received[0]
        return received[0]

    async def _end_with_the_program(self) -> None:
        """End it when the program ends: processes that it has left would keep the pipes open."""
        await self.wait()
        await self.end()

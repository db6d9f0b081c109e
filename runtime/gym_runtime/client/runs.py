"""The runs that a broker knows: open one, look it up, cancel it, end it and free what was stored for it."""

from __future__ import annotations

import msgspec

from gym_runtime.bus.interface import Bus
from gym_runtime.environment import catalogue
from gym_runtime.errors import UsageError
from gym_runtime.messages.names import token
from gym_runtime.messages.run_info import RunInfo, decode_run, encode_run
from gym_runtime.rollout.journal import Sweep


class Runs:
    """What is known of runs to everybody on one bus."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self._sweeps: dict[str, Sweep] = {}

    async def open_run(self, run: RunInfo) -> None:
        """Make a run known, so that others can collect, list and cancel it.

        Raises:
            UsageError: the name of the run, of an agent or of an environment cannot be one.
        """
        for agent in run.agents:
            token(agent, "agent")
        for environment in run.environments:
            token(environment, "environment")
        await self.bus.append(f"runs.{token(run.run, 'run')}", encode_run(run))

    async def run(self, run: str) -> RunInfo:
        """What is known of a run.

        Raises:
            UsageError: there is no such run, or this cannot be the name of one.
        """
        found = await self.bus.latest(f"runs.{token(run, 'run')}")
        if not found:
            known = [info.run for info in await self.runs()]
            raise UsageError(f"there is no run '{run}'{catalogue.suggest(run, known, 'runs')}")
        return decode_run(found[0].payload)

    async def runs(self) -> list[RunInfo]:
        """All runs that the broker remembers, oldest first."""
        return [decode_run(record.payload) for record in await self.bus.latest("runs.*")]

    async def cancel(self, run: str, task_index: int | None = None, rollout_index: int | None = None) -> None:
        """Stop a run, one of its groups, or one rollout: what is waiting is dropped, what runs is stopped.

        Raises:
            UsageError: there is no such run, or a rollout is named without its task.
        """
        if rollout_index is not None and task_index is None:
            raise UsageError("a rollout is named by its task and its index: say which task")
        run = token(run, "run")
        parts = "".join(f".{part:d}" for part in (task_index, rollout_index) if part is not None)
        info = await self.run(run)
        if parts:
            await self.bus.append(f"runs.{run}.cancelled{parts}", b"")
        else:
            await self.bus.forget(f"task.*.*.{run}")
            await self.bus.append(f"runs.{run}", encode_run(msgspec.structs.replace(info, state="cancelled")))
        await self.bus.publish(f"cancel.{run}{parts}", b"")

    async def finish_run(self, run: RunInfo) -> None:
        """Say that a run is complete. Its records stay for other collectors until the broker drops them."""
        name = token(run.run, "run")
        await self.bus.append(f"runs.{name}", encode_run(msgspec.structs.replace(run, state="finished")))
        await self.bus.forget(f"journal.{name}.>")
        await self.bus.forget(f"runs.{name}.cancelled.>")

    async def close_run(self, run: RunInfo, *, state: str = "finished") -> None:
        """Say that a run is over and free what the broker stored for it."""
        name = token(run.run, "run")
        await self.bus.forget(f"task.*.*.{name}")
        await self.bus.append(f"runs.{name}", encode_run(msgspec.structs.replace(run, state=state)))
        await self.bus.forget(f"rollout.{name}.>")
        await self.bus.forget(f"journal.{name}.>")
        await self.bus.forget(f"runs.{name}.cancelled.>")
        self._sweeps.pop(name, None)

    def _sweep(self, run: str) -> Sweep:
        return self._sweeps.setdefault(run, Sweep(run))

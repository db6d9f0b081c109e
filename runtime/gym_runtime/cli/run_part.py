"""One part of a run: a system runs the rollouts; the results are collected and written until all are done.

It stops before that at a signal, when a budget is used up, when the engine answers only errors, or when the
broker stores nothing.

What is collected is on disk within moments. Ctrl-C stops the part and keeps what there is; a second one ends
everything at once.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, nullcontext
from dataclasses import dataclass, field

import anyio

from gym_runtime.cli.budget import BudgetOptions
from gym_runtime.cli.display import Display
from gym_runtime.cli.interruption import INTERRUPTED, RESUME
from gym_runtime.cli.options import BrokerOptions
from gym_runtime.cli.run_models import RunModels
from gym_runtime.client import Client, Tracker, connect
from gym_runtime.client.status import dead_engine
from gym_runtime.errors import UsageError
from gym_runtime.files.recorded_run import RecordedRun
from gym_runtime.plugins import load_plugin
from gym_runtime.system.spec import Event
from gym_runtime.system.starting import Patience, received
from gym_runtime.system.system import System
from gym_runtime.timing import PATIENCE_S

ENGINE_LOOK_S = 2.0
"""How often `run` asks whether the engine returns only errors."""
START_NOTE_S = 2.0
"""After how long `run` prints that it is still starting."""


@dataclass(kw_only=True)
class RunPart:
    """What one call of ``run`` makes, and with what.

    Attributes:
        keep_going: do not stop when the engine returns only errors.
        over_budget: which limit was reached; empty if none was.
    """

    broker: BrokerOptions
    keep_going: bool
    models: RunModels
    recorded: RecordedRun
    budget: BudgetOptions
    display: Display
    system: System
    tracking: Tracker | None
    over_budget: str = ""
    _making: anyio.CancelScope = field(init=False)

    async def make(self, noted: Sequence[int] = ()) -> bool:
        """Make the rollouts and stop the system; whether a signal ended it.

        Args:
            noted: signals that came before this could handle them.
        """
        self._making = anyio.CancelScope()
        with received(signal.SIGINT, signal.SIGTERM) as signals:
            async with anyio.create_task_group() as listening:
                listening.start_soon(self._watch_interrupts, signals)
                if noted:
                    self._making.cancel()
                with self._making:
                    async with anyio.create_task_group() as group:
                        await self._ready()
                        group.start_soon(self._watch_system)
                        with self.display:
                            try:
                                await self._collect()
                            finally:
                                self.display.tally.catch_up(self.recorded.metrics)
                        group.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await self.system.stop(drain=not self._making.cancelled_caught)
                listening.cancel_scope.cancel()
        return self._making.cancelled_caught

    async def _ready(self) -> None:
        """Wait until the workers are up; say so when that takes a while."""

        async def explain() -> None:
            await anyio.sleep(START_NOTE_S)
            self.display.note("starting the workers …")

        async with anyio.create_task_group() as group:
            group.start_soon(explain)
            await self.system.until("all_ready", self._note_waiting)
            group.cancel_scope.cancel()

    def _note_waiting(self, event: Event) -> None:
        if event.event == "waiting":
            self._say_waiting(event.reason)

    def _say_waiting(self, reason: str) -> None:
        self.display.note(f"waiting up to {PATIENCE_S:.0f} s: {reason}")

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[Client]:
        """The system's client. The workers have just reached the broker: a silent one comes back."""
        patience = Patience(PATIENCE_S, self._say_waiting)
        async with AsyncExitStack() as stack:
            yield await patience.enter(stack, lambda: connect(self.system.url, prefix=self.broker.prefix))

    async def _collect(self) -> None:
        display, metrics = self.display, self.recorded.metrics
        async with (
            self._connected() as client,
            # A system that others share is pushed by 'gym-runtime metrics', or it would count twice.
            nullcontext() if self.broker.urls else load_plugin("metrics", "pushing")(client.driver.bus),
            anyio.create_task_group() as group,
            aclosing(
                client.recorded(self.recorded, in_flight=self.models.concurrency * 2 + 64, note=display.note)
            ) as records,
        ):
            if not self.keep_going:
                group.start_soon(self._watch_engine, client)
            async for record in records:
                display.add(record)
                if self.tracking is not None:
                    self.tracking.add(record)
                if metrics.rollouts < display.tally.total:
                    self.over_budget = self.budget.reached(metrics)
                    if self.over_budget:
                        self._making.cancel()
                        break
            group.cancel_scope.cancel()

    async def _watch_interrupts(self, signals: AsyncIterator[signal.Signals]) -> None:
        async for _ in signals:
            if self._making.cancel_called:
                self.system.kill()
                print(RESUME, file=sys.stderr, flush=True)
                os._exit(INTERRUPTED)
            self._making.cancel()

    async def _watch_engine(self, client: Client) -> None:
        """Stop a run early if its engine returns only errors."""
        while True:
            await anyio.sleep(ENGINE_LOOK_S)
            said = await dead_engine(client.driver.bus, client.workers, self.models.settings.model_pool)
            if said:
                raise UsageError(
                    f"the engine of {self.models.name} has returned only errors: {said}. Repair it and use "
                    "--resume, or continue all the same with --keep-going"
                )

    async def _watch_system(self) -> None:
        async for event in self.system.events():
            if event.event == "restarted":
                self.display.note(f"{event.reason}; it is started again, and what it had goes on")
        raise UsageError("the workers are gone; what is written is complete, go on with --resume")

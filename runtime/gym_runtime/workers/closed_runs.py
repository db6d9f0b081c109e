"""Runs that are closed: nothing more is stored for them, and what was stored too late is freed."""

from __future__ import annotations

from contextlib import suppress

import anyio

from gym_runtime import clock
from gym_runtime.bus.interface import Bus
from gym_runtime.errors import GymError
from gym_runtime.logs import logger
from gym_runtime.messages.names import token
from gym_runtime.messages.stored_records import RUNS, RunInfo
from gym_runtime.rollout.account import Account
from gym_runtime.timing import GIVE_BACK_S, JOURNAL_FRESH_S
from gym_runtime.workers.cancellations import Cancellations


class ClosedRuns:
    """What the signals and the broker say of runs that have ended."""

    def __init__(self, bus: Bus, cancellations: Cancellations) -> None:
        self._bus = bus
        self._cancellations = cancellations

    async def over(self, run: str) -> bool:
        """Whether a run has ended, so that its records may be gone."""
        info = await self._info(run)
        return info is not None and info.state != "active"

    async def surely_over(self, run: str) -> bool:
        """As `over`; False if the broker does not answer."""
        with suppress(GymError):
            return await self.over(run)
        return False

    async def closed(self, run: str, since_s: float) -> bool:
        """Whether nothing more is to be stored for a run.

        A signal announces it. A worker that was frozen or disconnected may miss the signal, so an attempt
        that took long asks the broker.
        """
        if not self._may_be_closed(run, since_s):
            return False
        info = await self._info(run)
        return info is not None and info.closed

    def _may_be_closed(self, run: str, since_s: float) -> bool:
        # Nearly no attempt asks the broker: most are short, and hear the signal.
        return self._cancellations.closed(run) or clock.monotonic() >= since_s + JOURNAL_FRESH_S

    async def _info(self, run: str) -> RunInfo | None:
        found = await self._bus.latest(f"runs.{token(run, 'run')}")
        return RUNS.read(found[0]) if found else None

    async def free(self, run: str, journal_at: str, account: Account, since_s: float) -> None:
        """Free what a delivery stored after its run was closed, when this worker was cut off or frozen."""
        # A note may have come to the broker after the run was closed, however young the attempt is.
        if not account.noted and not self._may_be_closed(run, since_s):
            return
        try:
            with anyio.move_on_after(GIVE_BACK_S, shield=True):
                # A note that is still on its way would be stored after all was freed.
                await account.settled()
                info = await self._info(run)
                if info is not None and info.closed:
                    # A pattern with `>` does not cover the subject before it.
                    for pattern in (journal_at, f"{journal_at}.>"):
                        await self._bus.forget(pattern)
        except GymError as error:
            logger().info("what was stored for a closed run was not freed", error=str(error))

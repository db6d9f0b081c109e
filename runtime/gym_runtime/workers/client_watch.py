"""Whether the client of a run is there.

The client of an attached run answers on ``client.<run>`` for as long as it lives. When its process ends,
however it went, the broker says at once that nobody serves that subject; an agent worker that hears so
`MISSES` times in a row stops the run's rollouts and gives their tasks back. So a client that only had to
reconnect costs a repetition, and loses nothing; one that stays away for `DROP_S` has left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import anyio

from gym_runtime import clock
from gym_runtime.bus.interface import Bus
from gym_runtime.errors import GymError, NoWorker
from gym_runtime.messages.names import token

LOOK_S = 0.4
MISSES = 4
ANSWER_S = 2.0
RETURN_S = 5.0
DROP_S = 30.0


class ClientWatch:
    """The clients of the runs that one agent worker works on."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._missed: dict[str, int] = {}
        self._gone_since_s: dict[str, float] = {}

    async def watch(self, runs: Callable[[], Iterable[str]], gone: Callable[[str], None]) -> None:
        """Look after the clients of ``runs()`` until cancelled; ``gone`` is called when one is gone."""
        while True:
            await anyio.sleep(LOOK_S)
            async with anyio.create_task_group() as tasks:
                for run in list(runs()):
                    tasks.start_soon(self._look, run, gone)

    async def here(self, run: str) -> bool:
        """Whether the client is there, as far as is known; one that was gone is asked anew."""
        return run not in self._gone_since_s or await self._answers(run)

    def gone_s(self, run: str) -> float:
        """For how long a client has been gone, in seconds."""
        return clock.now() - self._gone_since_s.get(run, clock.now())

    async def _look(self, run: str, gone: Callable[[str], None]) -> None:
        if await self._answers(run):
            return
        self._missed[run] = self._missed.get(run, 0) + 1
        if self._missed[run] >= MISSES:
            self._gone_since_s.setdefault(run, clock.now())
            gone(run)

    async def _answers(self, run: str) -> bool:
        """False only if the broker says that nobody is there."""
        try:
            await self._bus.request(f"client.{token(run, 'run')}", b"", deadline_s=clock.now() + ANSWER_S)
        except NoWorker:
            return False
        except GymError:
            pass
        self._missed.pop(run, None)
        self._gone_since_s.pop(run, None)
        return True

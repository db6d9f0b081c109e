"""Whether the client of an attached run is there.

The client is a member of the system for as long as the run lasts (`gym_runtime.rpc.members`). When its
process ends, for whatever reason, its watchers hear so from the broker and declare it gone. The agent workers
then stop the run's rollouts and give their tasks back. So a client that only had to reconnect costs a
repetition, and loses nothing; one that stays away for `CLIENT_DROPPED_S` has left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from gym_runtime import clock
from gym_runtime.bus.interface import Bus
from gym_runtime.errors import GymError, NoWorker
from gym_runtime.messages.names import token
from gym_runtime.rpc.members import Members
from gym_runtime.rpc.registry import decode_heartbeat
from gym_runtime.timing import MEMBER_ANSWER_S


class ClientWatch:
    """The clients of the runs that one agent worker works on."""

    def __init__(self, bus: Bus, members: Members) -> None:
        self._bus = bus
        self._members = members
        self._view = members.views["client"]
        self._gone_since_s: dict[str, float] = {}

    async def watch(self, runs: Callable[[], Iterable[str]], gone: Callable[[str], None]) -> None:
        """Look after the clients of ``runs()`` until cancelled; ``gone`` is called when one is gone."""
        while True:
            change = self._view.change()
            for run in list(runs()):
                if not await self.here(run):
                    gone(run)
            await change.wait()

    async def here(self, run: str) -> bool:
        """Whether the client is there. One that is not known is asked: it may just have come."""
        if not self._view.knows(run) and not await self._answers(run):
            self._gone_since_s.setdefault(run, clock.now())
            return False
        self._gone_since_s.pop(run, None)
        return True

    def gone_s(self, run: str) -> float:
        """For how long a client has been gone, in seconds."""
        return clock.now() - self._gone_since_s.get(run, clock.now())

    async def _answers(self, run: str) -> bool:
        """False only if the broker says that nobody is there."""
        try:
            name = token(run, "run")
            deadline_s = clock.now() + MEMBER_ANSWER_S
            data = await self._bus.request(f"alive.client.{name}", b"", deadline_s=deadline_s)
            self._members.learn(decode_heartbeat(data))
        except NoWorker:
            return False
        except (GymError, msgspec.DecodeError):
            pass
        return True

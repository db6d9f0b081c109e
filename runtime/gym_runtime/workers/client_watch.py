"""Whether the client of an attached run is alive.

The client is a member of the system for as long as the run lasts (`gym_runtime.rpc.members`). When its
process ends, for any reason, the broker tells its watcher that the client does not listen, and the watcher
declares it gone. The agent workers then stop the run's rollouts and give their tasks back. So a client that
only had to reconnect loses nothing but some repeated work. The tasks of a client that is gone for
`CLIENT_DROPPED_S` are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gym_runtime import clock
from gym_runtime.bus.interface import Bus
from gym_runtime.errors import UNREADABLE, GymError, NoWorker
from gym_runtime.messages.names import token
from gym_runtime.rpc.members import Members
from gym_runtime.rpc.registry import decode_heartbeat
from gym_runtime.timing import MEMBER_ANSWER_S


class ClientWatch:
    """The clients of the runs that one agent worker works on."""

    def __init__(self, bus: Bus, members: Members) -> None:
        self._bus = bus
        self._members = members
        self._clients = members.views["client"]
        self._gone_since_s: dict[str, float] = {}

    async def watch(self, runs: Callable[[], Iterable[str]], gone: Callable[[str], None]) -> None:
        """Watch the clients of ``runs()`` until cancelled; ``gone`` is called when one is gone."""
        while True:
            # Taken before the check, so that a change during the check is not missed.
            change = self._clients.change()
            for run in list(runs()):
                if not await self.here(run):
                    gone(run)
            await change.wait()

    async def here(self, run: str) -> bool:
        """Whether the client is alive. An unknown one is asked: its announcement may not have arrived yet."""
        if not self._clients.knows(run) and not await self._answers(run):
            # `setdefault`: the time counts from when it was first missed.
            self._gone_since_s.setdefault(run, clock.monotonic())
            return False
        self._gone_since_s.pop(run, None)
        return True

    def gone_s(self, run: str) -> float:
        """For how long a client has been gone, in seconds."""
        return clock.monotonic() - self._gone_since_s.get(run, clock.monotonic())

    async def _answers(self, run: str) -> bool:
        """Whether the client may be alive: False only if the broker reports that it does not listen."""
        try:
            name = token(run, "run")
            deadline_s = clock.monotonic() + MEMBER_ANSWER_S
            data = await self._bus.request(f"alive.client.{name}", b"", deadline_s=deadline_s)
            self._members.learn(decode_heartbeat(data))
        except NoWorker:
            return False
        except (GymError, *UNREADABLE):
            # Silence may be a client that blocks its loop, or our own connection: then it counts as alive.
            pass
        return True

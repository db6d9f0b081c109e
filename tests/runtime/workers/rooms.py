"""Sessions that count what is done to them."""

from __future__ import annotations

import anyio
from gym_runtime import Session, Task
from gym_runtime.messages.responses import CreateParams
from gym_runtime.workers.sessions import HeldSession

TASK = Task(responses_create_params=CreateParams())


class Room(Session[Task]):
    """A session that counts its closings; closing takes a while."""

    def __init__(self, *, closing_s: float = 0.0) -> None:
        super().__init__(TASK)
        self.closed = 0
        self._closing_s = closing_s

    async def close(self) -> None:
        await anyio.sleep(self._closing_s)
        self.closed += 1


def entry() -> HeldSession:
    return HeldSession(Room(), 100)

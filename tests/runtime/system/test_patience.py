"""What a start waits for, and what it does not."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import pytest
from gym_runtime.errors import BrokerError, ConnectionLost, GymError, NotThereYet, UsageError
from gym_runtime.system.starting import WAIT_PAUSE_S, Patience

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


class Opening:
    """A context that can be entered after some tries."""

    def __init__(self, error: Exception, tries: int) -> None:
        self._error, self._left = error, tries

    @asynccontextmanager
    async def __call__(self) -> AsyncGenerator[str]:
        self._left -= 1
        if self._left:
            raise self._error
        yield "entered"


@pytest.mark.parametrize(
    "error",
    [
        NotThereYet("no engine"),
        BrokerError("no broker", silent=True),
        ConnectionLost("broke in the handshake"),
        ExceptionGroup("of a task group", [ConnectionLost("broke in the handshake")]),
    ],
)
async def test_what_may_come_is_waited_for_and_said_once(error: Exception) -> None:
    said: list[str] = []
    async with AsyncExitStack() as stack:
        patience = Patience(60.0, said.append)
        assert await patience.enter(stack, Opening(error, tries=4)) == "entered"
    assert anyio.current_time() == 3 * WAIT_PAUSE_S
    assert len(said) == 1


@pytest.mark.parametrize("error", [BrokerError("refuses the credentials"), UsageError("no such model")])
async def test_what_cannot_come_by_waiting_ends_it_at_once(error: GymError) -> None:
    async with AsyncExitStack() as stack:
        with pytest.raises(type(error)):
            await Patience(60.0, lambda _: None).enter(stack, Opening(error, tries=2))
    assert anyio.current_time() == 0


async def test_the_limit_ends_it_with_the_last_reason() -> None:
    async with AsyncExitStack() as stack:
        with pytest.raises(BrokerError, match="no broker"):
            opening = Opening(BrokerError("no broker", silent=True), tries=1000)
            await Patience(60.0, lambda _: None).enter(stack, opening)
    assert 60 <= anyio.current_time() <= 60 + WAIT_PAUSE_S

"""Waiting at the start for what is not there yet: a broker, its streams, an engine that loads its weights.

What cannot come by waiting (refused credentials, a model that the engine does not have) ends the wait at
once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TypeVar

import anyio

from gym_runtime.errors import BrokerError, ConnectionLost, GymError, NotThereYet, leaf

WAIT_PAUSE_S = 1.0
"""The pause before a broker or an engine that is awaited (`--wait`) is tried again."""


T = TypeVar("T")


class Patience:
    """One limit for all that a starting worker waits for.

    Args:
        wait_s: in seconds; 0 for none, infinite for ever.
        waiting: called with what is awaited, when that changes.
    """

    def __init__(self, wait_s: float, waiting: Callable[[str], None]) -> None:
        self._wait_s = wait_s
        self._waiting = waiting
        self._began_s = anyio.current_time()
        self._said = ""

    async def enter(self, stack: AsyncExitStack, make: Callable[[], AbstractAsyncContextManager[T]]) -> T:
        """Enter a context on the stack, again and again until it can be entered.

        Raises:
            GymError: why it could not, the last time.
        """
        while True:
            try:
                return await stack.enter_async_context(make())
            # What a context with a task group raises comes as a group.
            except (GymError, BaseExceptionGroup) as raised:
                error = leaf(raised)
                if not _may_come(error) or anyio.current_time() >= self._began_s + self._wait_s:
                    raise
                self._say(str(error))
            await anyio.sleep(WAIT_PAUSE_S)

    def _say(self, why: str) -> None:
        if why != self._said:
            self._said = why
            self._waiting(why)


def _may_come(error: BaseException) -> bool:
    # A connection breaks when the broker is restarted between the handshake and its first answer.
    passing = isinstance(error, NotThereYet | ConnectionLost)
    return passing or (isinstance(error, BrokerError) and error.silent)

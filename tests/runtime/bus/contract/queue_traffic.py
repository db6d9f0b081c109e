"""What tests of the queue wait for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    pass
from runtime.bus.contract.traffic import SOON_S


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something holds that only the broker knows, so that nobody can tell."""
    with anyio.fail_after(SOON_S):
        while not await holds():
            await anyio.sleep(0.005)

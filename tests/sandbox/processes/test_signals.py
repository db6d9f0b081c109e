"""Each signal counts once, also where the event loop reports it twice."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator

import anyio
import pytest
from gym_runtime.system.starting import SAME_S, once, received

pytestmark = pytest.mark.anyio


async def test_what_is_reported_twice_atonce_countsonce_and_a_later_one_again() -> None:
    async def reported() -> AsyncGenerator[signal.Signals]:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGINT, signal.SIGTERM):
            yield number
        await anyio.sleep(2 * SAME_S)
        yield signal.SIGINT

    found = [number async for number in once(reported())]
    assert found == [signal.SIGTERM, signal.SIGINT, signal.SIGINT]


async def test_signals_that_come_together_are_each_received() -> None:
    with received(signal.SIGUSR1, signal.SIGUSR2) as signals:
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGUSR1):
            os.kill(os.getpid(), number)
        with anyio.fail_after(5):
            assert {await anext(signals), await anext(signals)} == {signal.SIGUSR1, signal.SIGUSR2}
        with anyio.move_on_after(4 * SAME_S) as waiting:
            await anext(signals)
        assert waiting.cancelled_caught

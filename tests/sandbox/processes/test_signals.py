"""Each signal counts once, also where the event loop reports it twice."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator

import anyio
import pytest
from gym_runtime.system import starting
from gym_runtime.system.starting import once, received
from time_limits import busy

pytestmark = pytest.mark.anyio
SAME_S = 0.4


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take longer than 50 ms from one signal to the next."""
    assert starting.SAME_S == 0.05
    monkeypatch.setattr(starting, "SAME_S", SAME_S)


async def test_what_is_reported_twice_at_once_counts_once_and_a_later_one_again() -> None:
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
        with anyio.fail_after(5 * busy()):
            assert {await anext(signals), await anext(signals)} == {signal.SIGUSR1, signal.SIGUSR2}
        with anyio.move_on_after(1.5 * SAME_S) as waiting:
            await anext(signals)
        assert waiting.cancelled_caught

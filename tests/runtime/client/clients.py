"""Clients for the tests."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from gym_runtime.messages.outcomes import RolloutRecord
from runtime.client.running_client import RunningClient


async def left_early(here: RunningClient, records: AsyncGenerator[RolloutRecord], *, after: int) -> None:
    count = 0
    async for _ in records:
        count += 1
        if count == after:
            break
    await records.aclose()

"""The contract's tests run on every bus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from gym_runtime.bus.interface import (
    Bus,
)
from gym_testing.virtual_clock import BACKEND

if TYPE_CHECKING:
    from runtime.bus.conftest import Fragile, System


@pytest.fixture
def anyio_backend(kind: str) -> tuple[str, dict[str, Any]]:
    return BACKEND if kind == "memory" else ("asyncio", {"use_uvloop": True})


@pytest.fixture
async def bus(system: System) -> Bus:
    return await system.connect()


@pytest.fixture
async def other(system: System) -> Bus:
    return await system.connect()


@pytest.fixture
async def fragile(system: System) -> Fragile:
    return await system.connect_fragile()

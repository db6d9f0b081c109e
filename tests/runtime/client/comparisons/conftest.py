"""An environment that compares, on a small system."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
from gym_testing.small_system import (
    small_system,
)
from runtime.client.comparisons.compared_groups import Here


@pytest.fixture
async def here() -> AsyncGenerator[Here]:
    async with small_system() as system:
        yield Here(system)

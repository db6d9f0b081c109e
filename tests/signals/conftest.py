"""The clock of these tests is simulated."""

from __future__ import annotations

from typing import Any

import pytest
from gym_testing.virtual_clock import BACKEND


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return BACKEND

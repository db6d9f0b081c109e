"""Its own broker and a prefix for each test."""

from __future__ import annotations

import pytest
from runtime.bus.nats.links import _numbers


@pytest.fixture
def prefix() -> str:
    return f"nats{next(_numbers)}"

"""What all tests share."""

from __future__ import annotations

import pytest


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """The loop that workers run on."""
    return "asyncio", {"use_uvloop": True}

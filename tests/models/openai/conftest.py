"""The adapter before a stub engine."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["responses", "chat", "auto"])
def api(request: pytest.FixtureRequest) -> str:
    return request.param

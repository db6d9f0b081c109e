"""What the adapters' tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from gym_runtime.testing import stub_engine
from gym_runtime.testing.stub_engine import StubEngine


@pytest.fixture(scope="session")
def stub() -> Iterator[StubEngine]:
    """A stub engine with both dialects that answers at once."""
    with stub_engine.running("--models", "stub,vendor/other") as engine:
        yield engine

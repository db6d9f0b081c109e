"""What the adapters' tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from stubs import stub_engine
from stubs.stub_engine import StubEngine


@pytest.fixture(scope="session")
def stub() -> Iterator[StubEngine]:
    """A stub engine with both dialects that answers at once."""
    with stub_engine.running("--models", "stub,vendor/other") as engine:
        yield engine

"""Several engines behind one adapter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from stubs import stub_engine
from stubs.stub_engine import StubEngine


@pytest.fixture
def stubs() -> Iterator[Callable[..., StubEngine]]:
    with ExitStack() as stack:
        yield lambda *flags: stack.enter_context(stub_engine.running(*flags))

"""A broker of its own and a prefix for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from gym_runtime.system.private_broker import Broker
from runtime.bus.nats.links import _numbers


@pytest.fixture
def prefix() -> str:
    return f"nats{next(_numbers)}"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker to kill, freeze and restart."""
    broker = Broker(tmp_path / "broker")
    broker.start()
    yield broker
    broker.stop()

"""`gym-runtime run` as a process, and brokers to trouble it with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.broker.broker_runs import Command


@pytest.fixture(autouse=True)
def no_broker_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GYM_NATS_URL", raising=False)


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    command = Command(tmp_path)
    yield command
    command.end()

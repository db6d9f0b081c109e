"""These systems have no follower of agents, so that every client calls the roll: here it need not be long."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from gym_runtime.environment import catalogue


@pytest.fixture(autouse=True)
def short_roll_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gym_runtime.rpc.members.ROLL_CALL_S", 0.05)
    monkeypatch.setattr("gym_runtime.rpc.members.CALLS_ANSWERED_S", 0.0)


@pytest.fixture(autouse=True)
def guests_unnamed() -> Iterator[None]:
    yield
    catalogue._guests.clear()

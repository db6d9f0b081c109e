"""These systems have no follower of agents, so that every client calls the roll: here it need not be long."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def short_roll_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gym_runtime.rpc.members.ROLL_CALL_S", 0.05)
    monkeypatch.setattr("gym_runtime.rpc.members.CALLS_ANSWERED_S", 0.0)

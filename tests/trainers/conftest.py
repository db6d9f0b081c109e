"""A system without a model: the trainers' adapters bring their own engines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from gym_runtime.client import SyncClient, connect_sync
from gym_trainers import rollout_source
from trainers.trainers_engine import COUNTER

COIN = str(Path(__file__).with_name("coin.py"))


@pytest.fixture(scope="package")
def started() -> Iterator[SyncClient]:
    """It runs as long as the tests of this folder."""
    environments = [COUNTER, "mcqa", COIN]
    with connect_sync(model="scripted/tool-then-message", environments=environments) as gym:
        yield gym
        if rollout_source._client.cache_info().currsize:
            rollout_source._client().close()


@pytest.fixture
def system(started: SyncClient, monkeypatch: pytest.MonkeyPatch) -> SyncClient:
    """The system, which ``GYM_NATS_URL`` names during a test: what it names later, `view` would join."""
    monkeypatch.setenv("GYM_NATS_URL", started.urls[0])
    return started

"""A system without a model: the trainers' adapters bring their own engines."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from gym_runtime.client import SyncClient, connect_sync
from gym_trainers import rollout_source
from trainers.trainers_engine import COUNTER


@pytest.fixture(scope="package")
def system() -> Iterator[SyncClient]:
    """It runs as long as the tests of this folder; ``GYM_NATS_URL`` names it."""
    with connect_sync(model="scripted/tool-then-message", environments=[COUNTER, "mcqa"]) as gym:
        os.environ["GYM_NATS_URL"] = gym.urls[0]
        yield gym
        if rollout_source._client.cache_info().currsize:
            rollout_source._client().close()
        del os.environ["GYM_NATS_URL"]

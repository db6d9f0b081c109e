"""What a DataLoader's worker process does with a client that it was given; spawned processes import this."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from gym_runtime.client import SyncClient


def make_rollouts(gym: SyncClient, rows: Iterable[Any], environment: str, found: Any) -> None:
    """One rollout of each row; the process, the row's number and the reward."""
    for row in rows:
        (record,) = gym.rollouts([row], environment=environment)
        found.put((os.getpid(), row["n"], record.reward))

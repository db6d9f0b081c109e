"""One replica as its worker sees it."""

from __future__ import annotations

from typing import Generic, TypeVar

import anyio

from gym_models.wire.engine import Engine
from gym_models.wire.routing import ReplicaState

E = TypeVar("E", bound=Engine)


class Replica(Generic[E]):
    """One engine, its state, and the event that has it looked at before its time."""

    def __init__(self, engine: E) -> None:
        self.engine = engine
        self.state = ReplicaState(url=engine.endpoint.url)
        self.reason = "it has not been asked yet"
        self.has_metrics = engine.endpoint.private
        self.look = anyio.Event()

"""How long a rollout's model calls, tools and verification took, as its row reports it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from gym_runtime import clock
from gym_runtime.messages.metric_names import HOP_DURATION
from gym_runtime.rpc.meter import Meter


class RolloutTimes:
    """Seconds, by turn; ``meter`` counts them, too.

    ``queue_s`` is how long the rollout waited for an agent. A model's time includes waiting for a worker and
    every retry.
    """

    def __init__(self, meter: Meter, environment: str) -> None:
        self._meter = meter
        self._environment = environment
        self._turns: list[dict[str, float]] = []
        self._verify_s = 0.0
        self.queue_s = 0.0

    @contextmanager
    def model(self) -> Generator[None]:
        """Time a turn, whose model call is made within the block. A block that raises adds no turn."""
        start_s = clock.now()
        yield
        self._turns.append({"model_s": self._noted("model", start_s)})

    @contextmanager
    def tools(self) -> Generator[None]:
        """Time the tool calls, or the step, of the latest turn."""
        start_s = clock.now()
        yield
        took_s = self._noted("tool", start_s)
        if self._turns:
            turn = self._turns[-1]
            turn["tool_s"] = round(turn.get("tool_s", 0.0) + took_s, 4)

    @contextmanager
    def verification(self) -> Generator[None]:
        """Time the verification."""
        start_s = clock.now()
        yield
        self._verify_s = self._noted("verify", start_s)

    def fields(self) -> dict[str, Any]:
        """``turns``, a list of ``model_s`` and ``tool_s``; ``queue_s`` and ``verify_s``, where known."""
        around = {"queue_s": round(self.queue_s, 4), "verify_s": self._verify_s}
        return {"turns": self._turns, **{name: seconds for name, seconds in around.items() if seconds}}

    def _noted(self, hop: str, start_s: float) -> float:
        took_s = round(max(0.0, clock.now() - start_s), 4)  # the time of day may be set back
        self._meter.observe(HOP_DURATION, took_s, hop, self._environment)
        return took_s

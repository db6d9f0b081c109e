"""How long a rollout's model calls, tools and verification took, as its row reports it."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
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

    def model(self) -> _Timed:
        """Time a turn, whose model call is made within the block. A block that raises adds no turn."""
        return _Timed(self._model)

    def _model(self, took_s: float) -> None:
        self._observe("model", took_s)
        self._turns.append({"model_s": took_s})

    def tools(self) -> _Timed:
        """Time the tool calls, or the step, of the latest turn."""
        return _Timed(self._tools)

    def _tools(self, took_s: float) -> None:
        self._observe("tool", took_s)
        # The first observation of a step-by-step environment comes before any turn.
        if self._turns:
            turn = self._turns[-1]
            turn["tool_s"] = round(turn.get("tool_s", 0.0) + took_s, 4)

    def verification(self) -> _Timed:
        """Time the verification."""
        return _Timed(self._verification)

    def _verification(self, took_s: float) -> None:
        self._observe("verify", took_s)
        self._verify_s = took_s

    def _observe(self, hop: str, took_s: float) -> None:
        self._meter.observe(HOP_DURATION, took_s, hop, self._environment)

    def fields(self) -> dict[str, Any]:
        """``turns``, a list of ``model_s`` and ``tool_s``; ``queue_s`` and ``verify_s``, where known."""
        around = {"queue_s": round(self.queue_s, 4), "verify_s": self._verify_s}
        return {"turns": self._turns, **{name: seconds for name, seconds in around.items() if seconds}}


class _Timed:
    """A block whose seconds are noted, unless it raises. Contextlib's generators cost three times as much."""

    __slots__ = ("_note", "_start_s")

    def __init__(self, note: Callable[[float], None]) -> None:
        self._note = note
        self._start_s = 0.0

    def __enter__(self) -> None:
        self._start_s = clock.monotonic()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._note(round(clock.monotonic() - self._start_s, 4))

"""The scripted engine, which also writes when each of its calls began and ended: for ``trainer.py``.

A control command has it write; the file is the one that ``BENCH_CALLS`` names. It works on as many calls at a
time as ``max_concurrent_requests`` says; the others wait, and begin when it works on them.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import nullcontext
from pathlib import Path

import anyio
from gym_models import scripted
from gym_runtime.adapters import CallContext, Control, ControlAnswer, ModelAnswer, ModelCall, ModelSettings


class Adapter(scripted.Adapter):
    """As `gym_models.scripted.Adapter`."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__(settings)
        self._calls: list[tuple[float, float]] = []
        limit = settings.max_concurrent_requests
        self._gate = anyio.Semaphore(limit, fast_acquire=True) if limit else nullcontext()

    async def respond(self, call: ModelCall, context: CallContext) -> ModelAnswer:
        async with self._gate:
            began_s = time.time()
            answer = await super().respond(call, context)
            self._calls.append((began_s, time.time()))
            return answer

    async def control(self, command: Control) -> ControlAnswer:
        self._write()
        return await super().control(command)

    def _write(self) -> None:
        Path(os.environ["BENCH_CALLS"]).write_text(json.dumps(self._calls))


def calls_since(file: Path, began_s: float) -> list[tuple[float, float]]:
    """When the calls from a moment on began and ended."""
    return [(start_s, end_s) for start_s, end_s in json.loads(file.read_text()) if start_s >= began_s]


def busy_s(file: Path, began_s: float, ended_s: float) -> float:
    """For how long within a stretch of time at least one call was in progress."""
    total, until_s = 0.0, began_s
    for start_s, end_s in sorted(json.loads(file.read_text())):
        start_s, end_s = max(start_s, until_s), min(end_s, ended_s)
        if end_s > start_s:
            total, until_s = total + end_s - start_s, end_s
    return total


def work_s(file: Path, began_s: float, ended_s: float) -> float:
    """The time that all calls together were in progress within a stretch of time."""
    calls = json.loads(file.read_text())
    return sum(max(0.0, min(end_s, ended_s) - max(start_s, began_s)) for start_s, end_s in calls)

"""A call of an engine that hangs is aborted and asked again; a long generation is not."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
import pytest
from gym_runtime import clock
from gym_runtime.bus.interface import Bus
from gym_runtime.messages import calls
from gym_runtime.messages.responses import Response, Usage
from gym_runtime.workers.adapter import CallContext
from gym_runtime.workers.call_limits import LEARNED_FROM, SHORTEST_S, TIMES_SLOWEST
from gym_runtime.workers.model_worker import ModelWorker
from gym_testing.memory import MemoryBroker
from gym_testing.small_system import Engine
from msgspec import Raw
from runtime.workers.hosting import at_work, call, request

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


class Slow(Engine):
    """An engine whose n-th answer takes as long as a test says, in seconds."""

    def __init__(self, takes_s: Callable[[int], float], tokens: int = 100) -> None:
        super().__init__()
        self.tokens = tokens
        self.took: list[float] = []
        self._takes_s = takes_s

    async def respond(self, call: calls.ModelCall, context: CallContext) -> calls.ModelAnswer:
        self.asked_s.append(clock.monotonic())
        try:
            await anyio.sleep(self._takes_s(len(self.asked_s)))
        finally:
            self.took.append(clock.monotonic() - self.asked_s[-1])
        usage = Usage(input_tokens=1, output_tokens=self.tokens, total_tokens=1 + self.tokens)
        return calls.ModelAnswer(response=Raw(msgspec.json.encode(Response(usage=usage))))


@asynccontextmanager
async def working(
    engine: Slow, call_timeout_s: float | None = None
) -> AsyncGenerator[tuple[Bus, ModelWorker]]:
    async with MemoryBroker().connect() as bus:
        worker = ModelWorker(
            bus, worker="one", pools=["policy"], adapter=engine, capacity=100, call_timeout_s=call_timeout_s
        )
        async with at_work(worker):
            yield bus, worker


async def asked(bus: Bus, within_s: float = 1800.0, params: bytes = b"{}", **more: Any) -> str:
    """The name of the error; empty for an answer."""
    body = calls.ModelCall(params=Raw(params), input=[])
    reply = await call(bus, "model.policy", request(body, within_s=within_s, **more))
    return reply.fault.name if reply.fault else ""


async def test_a_call_that_hangs_is_aborted_at_its_runs_limit_and_asked_again() -> None:
    engine = Slow(lambda number: 1e6 if number == 1 else 1.0)
    async with working(engine) as (bus, _):
        assert await asked(bus, call_timeout_s=30.0) == ""
    assert len(engine.took) == 2
    assert engine.took[0] == pytest.approx(30, abs=0.5)


async def test_a_worker_has_a_limit_of_its_own_where_the_run_has_none() -> None:
    engine = Slow(lambda number: 1e6 if number % 2 else 1.0)
    async with working(engine, call_timeout_s=30.0) as (bus, _):
        assert await asked(bus) == ""
        assert await asked(bus, call_timeout_s=60.0) == ""
    assert engine.took == pytest.approx([30, 1, 60, 1], abs=0.5)


async def test_an_engine_that_only_hangs_fails_its_calls_with_the_remedy() -> None:
    engine = Slow(lambda number: 1e6)
    async with working(engine) as (bus, worker):
        assert await asked(bus, call_timeout_s=5.0) == "ModelUnavailable"
        assert "--call-timeout" in worker.only_errors


async def test_by_default_the_limit_is_learned_from_the_engines_answers() -> None:
    engine = Slow(lambda number: 1e6 if number == LEARNED_FROM + 1 else 20.0)
    async with working(engine) as (bus, _):
        for _ in range(LEARNED_FROM + 1):
            assert await asked(bus) == ""
    assert engine.took[LEARNED_FROM] == pytest.approx(TIMES_SLOWEST * 20, abs=0.5)


@pytest.mark.parametrize(
    ("answers", "more", "params"),
    [
        (LEARNED_FROM, {"call_timeout_s": 0.0}, b"{}"),  # switched off
        (LEARNED_FROM - 1, {}, b"{}"),  # too little is known
        (LEARNED_FROM, {}, b'{"max_output_tokens":100000}'),  # 0.01 s a token: it may take 1,000 s
    ],
)
async def test_a_long_generation_is_left_alone(answers: int, more: dict[str, Any], params: bytes) -> None:
    engine = Slow(lambda number: 1000.0 if number == answers + 1 else 1.0)
    async with working(engine) as (bus, _):
        for _ in range(answers):
            await asked(bus)
        assert await asked(bus, params=params, **more) == ""
    assert len(engine.took) == answers + 1


async def test_a_long_generation_of_which_nothing_was_known_is_answered_at_last() -> None:
    engine = Slow(lambda number: 1.0 if number <= LEARNED_FROM else 3 * SHORTEST_S)
    async with working(engine) as (bus, _):
        for _ in range(LEARNED_FROM):
            await asked(bus)
        assert await asked(bus) == ""
    assert engine.took[LEARNED_FROM:] == pytest.approx([SHORTEST_S, 2 * SHORTEST_S, 3 * SHORTEST_S], abs=0.5)


async def test_while_an_engine_is_paused_no_call_counts_as_hanging() -> None:
    engine = Slow(lambda number: 500.0)
    async with working(engine) as (bus, worker):
        worker.paused = True
        assert await asked(bus, call_timeout_s=30.0) == ""
    assert len(engine.took) == 1

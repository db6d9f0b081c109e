"""Calls between actors of one process: which they are, and that they keep the laws of `rpc.actors`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest
from gym_runtime import clock
from gym_runtime.errors import ModelRefused, ModelUnavailable
from gym_runtime.messages import calls
from gym_runtime.messages.calls import RoleUse
from gym_runtime.rpc.answer import Service
from gym_runtime.rpc.ask import Router
from gym_runtime.rpc.retry_budget import RetryBudget
from gym_testing.background import Mailbox, background, settled
from gym_testing.memory import MemoryBroker, MemoryBus
from msgspec import Raw
from runtime.workers.hosting import at_work, serving

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


class Process:
    """One process with a model; a second one, ``far``, serves the same pool elsewhere.

    Attributes:
        bodies: what the near model was asked, as it came.
        error: what the near model raises.
        gate: the near model answers once this is set.
    """

    def __init__(self, bus: MemoryBus) -> None:
        self.bodies: Mailbox[object] = Mailbox()
        self.error: Exception | None = None
        self.gate = anyio.Event()
        self.gate.set()
        self.service = Service(
            bus, kind="model", worker="near", pools=["policy"], capacity=2, handle=self._handle
        )
        self.router = Router(bus, services=[self.service])

    async def _handle(self, pool: str, request: calls.Request[Any], budget: RetryBudget) -> Raw:
        self.bodies.put(request.body)
        budget.take(1)
        budget.role_use = {"judge": RoleUse(calls=2)}
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return Raw(b'"near"')

    async def ask(self, body: object = "hi", *, budget: RetryBudget | None = None, prefer: str = "") -> str:
        request = calls.Request(body=body, deadline_s=clock.monotonic() + 60, key="k")
        asked = set[str]()
        budget = budget or RetryBudget()
        reply = await self.router.ask("model", "policy", request, budget, asked=asked, prefer=prefer)
        assert reply.worker in asked
        assert bytes(reply.body) == f'"{reply.worker}"'.encode()
        return reply.worker


@pytest.fixture
async def process() -> AsyncGenerator[Process]:
    async def far(pool: str, request: calls.Request[Any], budget: RetryBudget) -> Raw:
        return Raw(b'"far"')

    async with AsyncExitStack() as stack:
        broker = MemoryBroker()
        process = Process(await stack.enter_async_context(broker.connect("near")))
        await stack.enter_async_context(at_work(process.service))
        elsewhere = await stack.enter_async_context(broker.connect("far"))
        await stack.enter_async_context(serving(elsewhere, far, worker="far"))
        await stack.enter_async_context(background(process.router.run))
        await settled(lambda: process.router.views["model"].knows("far"))
        yield process


async def test_an_actor_of_the_process_is_called_with_the_body_itself(process: Process) -> None:
    body = {"not": "encoded"}
    assert await process.ask(body) == "near"
    assert process.bodies.items[-1] is body
    assert process.service.in_use == 0
    assert not process.router.waiting


async def test_retries_and_roles_count_in_the_callers_budget_also_if_the_call_fails(process: Process) -> None:
    budget = RetryBudget(5)
    process.error = ModelRefused("no")
    with pytest.raises(ModelRefused, match="no"):
        await process.ask(budget=budget)
    assert (budget.left, budget.spent) == (4, 1)
    assert budget.role_use == {"judge": RoleUse(calls=2)}


@pytest.mark.parametrize(
    ("error", "stage"),
    [(ModelUnavailable("later", stage="engine"), "engine"), (ValueError("a bug"), "model")],
)
async def test_an_error_reaches_the_caller_with_its_stage(
    process: Process, error: Exception, stage: str
) -> None:
    process.error = error
    with pytest.raises(Exception, match=str(error)) as raised:
        await process.ask()
    assert raised.value.stage == stage  # type: ignore[attr-defined]


async def test_a_full_worker_passes_calls_on(process: Process) -> None:
    process.gate = anyio.Event()
    async with anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(process.ask)
        await settled(lambda: process.service.in_use == 2)
        assert await process.ask() == "far"
        process.gate.set()


async def test_a_call_goes_where_its_conversation_is(process: Process) -> None:
    assert await process.ask(prefer="far") == "far"
    assert await process.ask(prefer="near") == "near"


async def test_a_suspected_call_goes_over_the_bus(process: Process) -> None:
    budget = RetryBudget()
    budget.died("another", "model.k")
    await process.ask(budget=budget)
    assert all(isinstance(body, Raw) for body in process.bodies.items)


async def test_a_cancelled_caller_ends_the_work_and_knows_what_it_waited_for(process: Process) -> None:
    process.gate = anyio.Event()
    budget = RetryBudget()
    with anyio.move_on_after(3):
        await process.ask(budget=budget)
    assert process.service.in_use == 0
    assert budget.waited_for is not None
    assert budget.waited_for.name == "model 'policy' (worker near)"


async def test_code_that_cancels_the_task_is_an_error_and_the_task_goes_on(process: Process) -> None:
    # As an adapter's library may: the caller's task is the one that it cancels.
    process.error = anyio.get_cancelled_exc_class()()  # type: ignore[assignment]
    with pytest.raises(Exception, match="the runtime had cancelled nothing"):
        await process.ask()
    process.error = None
    assert await process.ask() == "near"

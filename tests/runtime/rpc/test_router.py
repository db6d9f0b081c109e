"""The caller's side of a hop: whom it asks, when it asks again, and what ends its patience."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup
from gym_runtime import clock
from gym_runtime.errors import (
    ConnectionLost,
    DeadlineExceeded,
    GymError,
    ModelRefused,
    NoWorker,
    SessionLost,
)
from gym_runtime.messages import calls
from gym_runtime.rpc.announcing import announce
from gym_runtime.rpc.registry import Heartbeat
from gym_runtime.rpc.retry_budget import RetryBudget
from gym_runtime.rpc.router import RoutedReply, Router
from gym_runtime.rpc.service import Handle, Service
from gym_runtime.testing.background import background, hosting, settled
from gym_runtime.testing.memory import MemoryBroker, MemoryBus
from gym_runtime.testing.virtual_clock import BACKEND
from gym_runtime.timing import MEMBER_GONE_S, NO_WORKER_GRACE_S, SESSION_GRACE_S
from msgspec import Raw
from runtime.workers.hosting import Gate, announced, request, serving

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return BACKEND


class Cluster:
    """A router, and workers with connections of their own."""

    def __init__(
        self,
        broker: MemoryBroker,
        connections: AsyncExitStack,
        tasks: TaskGroup,
        bus: MemoryBus,
        router: Router,
    ) -> None:
        self.broker = broker
        self.bus = bus
        self.router = router
        self._connections = connections
        self._tasks = tasks

    async def add(
        self, name: str, handle: Handle, *, capacity: int = 8, kind: str = "model", known: bool = True
    ) -> MemoryBus:
        """A worker that the router knows."""
        bus = await self._connections.enter_async_context(self.broker.connect(name))
        service = Service(bus, kind=kind, worker=name, pools=["policy"], capacity=capacity, handle=handle)
        ready = anyio.Event()
        self._tasks.start_soon(lambda: service.run(ready=ready.set))
        await ready.wait()
        if known:
            presence = Heartbeat(worker=name, kind=kind, pools=["policy"], capacity=capacity)
            self._tasks.start_soon(announce, bus, lambda: presence)
            await settled(lambda: self.router.views[kind].knows(name))
        return bus

    async def ask(
        self, budget: RetryBudget | None = None, *, kind: str = "model", **more: Any
    ) -> RoutedReply:
        return await self.router.ask(kind, "policy", request(**more), budget or RetryBudget())

    async def ask_session(self, worker: str, budget: RetryBudget | None = None, **more: Any) -> RoutedReply:
        return await self.router.ask_session("policy", worker, request(**more), budget or RetryBudget())


@pytest.fixture
async def cluster() -> AsyncGenerator[Cluster]:
    broker = MemoryBroker()
    async with AsyncExitStack() as connections, broker.connect("caller") as bus, hosting() as tasks:
        router = Router(bus)
        tasks.start_soon(router.run)
        yield Cluster(broker, connections, tasks, bus, router)


def naming(worker: str) -> Handle:
    """A handler that answers at once."""

    async def handle(pool: str, asked: calls.Request, budget: RetryBudget) -> Raw:
        return calls.pack(worker)

    return handle


def raising(error: GymError) -> Handle:
    async def handle(pool: str, asked: calls.Request, budget: RetryBudget) -> Raw:
        raise error

    return handle


# -- whom it asks -------------------------------------------------------------------------------------


async def test_an_answer_comes_with_its_worker(cluster: Cluster) -> None:
    await cluster.add("a", naming("a"))
    assert await cluster.ask() == RoutedReply(Raw(b'"a"'), "a")


async def test_requests_at_once_are_spread_over_the_workers(cluster: Cluster) -> None:
    gates = {name: Gate(name) for name in "abc"}
    for name, gate in gates.items():
        await cluster.add(name, gate.handle, capacity=100)
    async with anyio.create_task_group() as tasks:
        for _ in range(60):
            tasks.start_soon(cluster.ask)
        await settled(lambda: sum(len(gate.calls.items) for gate in gates.values()) == 60)
        assert all(12 <= len(gate.calls.items) <= 28 for gate in gates.values())
        for gate in gates.values():
            gate.open()


async def test_before_it_knows_anybody_the_pool_is_asked(cluster: Cluster) -> None:
    await cluster.add("a", naming("a"), known=False)
    assert (await cluster.ask()).worker == "a"


async def test_a_workers_own_fault_is_raised_as_it_is_and_not_asked_again(cluster: Cluster) -> None:
    asked = 0

    async def refuse(pool: str, request: calls.Request, budget: RetryBudget) -> Raw:
        nonlocal asked
        asked += 1
        raise ModelRefused("no such model")

    await cluster.add("a", refuse)
    budget = RetryBudget(3)
    with pytest.raises(ModelRefused, match="no such model") as raised:
        await cluster.ask(budget)
    assert (raised.value.stage, raised.value.retryable) == ("model", False)
    assert (asked, budget.left) == (1, 3)


# -- busy and gone ------------------------------------------------------------------------------------


async def test_a_full_worker_makes_it_ask_another_at_once(cluster: Cluster) -> None:
    gate = Gate("a")
    await cluster.add("a", gate.handle, capacity=1)
    async with background(cluster.ask):
        await gate.calls.until(1)
        await cluster.add("b", naming("b"), capacity=1)
        cluster.router.views["model"].report("b", 1.0)
        cluster.router.views["model"].report("a", 0.0)
        started_s = clock.now()
        answers = Counter([(await cluster.ask()).worker for _ in range(10)])
        assert answers == {"b": 10}
        assert clock.now() == started_s


async def test_when_all_are_full_it_waits_until_one_is_free(cluster: Cluster) -> None:
    gates = {name: Gate(name) for name in "ab"}
    budget = RetryBudget(0)
    for name, gate in gates.items():
        await cluster.add(name, gate.handle, capacity=1)
    async with anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(cluster.ask)
        for gate in gates.values():
            await gate.calls.until(1)
        free_s = clock.now() + 20

        async def free_later() -> None:
            await anyio.sleep(20)
            gates["b"].open()

        tasks.start_soon(free_later)
        assert (await cluster.ask(budget)).worker == "b"
        assert free_s <= clock.now() < free_s + 3.5
        gates["a"].open()


async def test_waiting_for_full_workers_ends_at_the_deadline_with_the_reason(cluster: Cluster) -> None:
    gate = Gate("a")
    await cluster.add("a", gate.handle, capacity=1)
    async with background(cluster.ask):
        await gate.calls.until(1)
        started_s = clock.now()
        with pytest.raises(DeadlineExceeded, match="worker a is at its capacity of 1"):
            await cluster.ask(within_s=5)
        assert clock.now() - started_s <= 5.01


async def test_a_worker_that_does_not_answer_any_more_makes_it_ask_another_at_once(cluster: Cluster) -> None:
    first = await cluster.add("a", naming("a"))
    await cluster.add("b", naming("b"))
    first.cut()
    started_s = clock.now()
    assert {(await cluster.ask()).worker for _ in range(10)} == {"b"}
    assert clock.now() == started_s
    assert not cluster.router.views["model"].knows("a")


async def test_a_worker_that_freezes_while_a_request_waits_loses_it_to_another(cluster: Cluster) -> None:
    gate = Gate("a")
    first = await cluster.add("a", gate.handle)
    answers: list[RoutedReply] = []

    async def ask() -> None:
        answers.append(await cluster.ask(RetryBudget(0), key="run.1"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await gate.calls.until(1)
        await cluster.add("b", naming("b"))
        first.freeze()
        frozen_s = clock.now()
        await settled(lambda: answers)
        assert answers[0].worker == "b"
        assert clock.now() - frozen_s <= MEMBER_GONE_S + 0.1
        gate.open()
        first.thaw()
    assert len(answers) == 1


async def test_without_any_worker_it_gives_up_after_a_grace_and_names_the_remedy(cluster: Cluster) -> None:
    started_s = clock.now()
    with pytest.raises(NoWorker, match=r"no worker serves model 'policy'.*gym-runtime start model") as raised:
        await cluster.ask(within_s=3600)
    assert raised.value.stage == "model"
    assert NO_WORKER_GRACE_S <= clock.now() - started_s < NO_WORKER_GRACE_S + 1


async def test_a_worker_that_arrives_within_the_grace_is_asked_soon(cluster: Cluster) -> None:
    arrived_s = clock.now() + 20

    async def arrive() -> None:
        await anyio.sleep(20)
        await cluster.add("late", naming("late"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(arrive)
        assert (await cluster.ask(within_s=3600)).worker == "late"
        assert arrived_s <= clock.now() <= arrived_s + 0.5


async def test_without_any_worker_a_nearer_deadline_ends_it(cluster: Cluster) -> None:
    with pytest.raises(DeadlineExceeded):
        await cluster.ask(within_s=3)


async def test_a_draining_worker_is_not_asked_while_there_is_another(cluster: Cluster) -> None:
    await cluster.add("a", naming("a"))
    bus = await cluster.add("b", naming("b"), known=False)
    async with announced(bus, "model", "b", ["policy"], draining=True):
        await settled(lambda: cluster.router.views["model"].knows("b"))
        assert {(await cluster.ask()).worker for _ in range(20)} == {"a"}


# -- a broken connection ------------------------------------------------------------------------------


async def test_a_broken_connection_costs_the_budget_a_retry(cluster: Cluster) -> None:
    gate = Gate("a")
    await cluster.add("a", gate.handle)
    budget = RetryBudget(5)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cluster.ask, budget)
        for asked in range(1, 4):
            await gate.calls.until(asked)
            cluster.bus.cut()
            cluster.bus.mend()
        await gate.calls.until(4)
        gate.open()
    assert budget.left == 2


async def test_when_the_budget_is_used_up_the_last_error_is_raised(cluster: Cluster) -> None:
    gate = Gate("a")
    await cluster.add("a", gate.handle)
    budget = RetryBudget(1)
    async with anyio.create_task_group() as tasks:

        async def ask() -> None:
            with pytest.raises(ConnectionLost):
                await cluster.ask(budget)

        tasks.start_soon(ask)
        for asked in (1, 2):
            await gate.calls.until(asked)
            cluster.bus.cut()
            cluster.bus.mend()
    assert budget.left == 0


# -- sessions -----------------------------------------------------------------------------------------


async def test_a_session_is_asked_at_its_worker_and_nowhere_else(cluster: Cluster) -> None:
    for name in "ab":
        await cluster.add(name, naming(name), kind="resource")
    assert [(await cluster.ask_session(name)).worker for name in "abab"] == list("abab")


async def test_a_session_is_lost_at_once_with_a_worker_that_left(cluster: Cluster) -> None:
    async with cluster.broker.connect() as bus:
        async with serving(bus, naming("a"), kind="resource", worker="a", pools=["policy"]):
            await settled(lambda: cluster.router.views["resource"].knows("a"))
            await cluster.ask_session("a")
        await settled(lambda: not cluster.router.views["resource"].knows("a"))
        await cluster.add("b", naming("b"), kind="resource")
        started_s = clock.now()
        with pytest.raises(SessionLost, match="worker a of resource 'policy' is gone") as raised:
            await cluster.ask_session("a")
    assert clock.now() == started_s
    assert (raised.value.retryable, raised.value.stage) == (True, "resource")


async def test_a_session_is_lost_soon_with_a_worker_that_died(cluster: Cluster) -> None:
    first = await cluster.add("a", naming("a"), kind="resource")
    first.cut()
    started_s = clock.now()
    with pytest.raises(SessionLost):
        await cluster.ask_session("a")
    assert clock.now() - started_s <= SESSION_GRACE_S + 0.25


async def test_a_session_survives_a_worker_that_is_back_in_a_moment(cluster: Cluster) -> None:
    first = await cluster.add("a", naming("a"), kind="resource")
    first.cut()
    async with anyio.create_task_group() as tasks:

        async def mend() -> None:
            await anyio.sleep(SESSION_GRACE_S / 2)
            first.mend()

        tasks.start_soon(mend)
        assert (await cluster.ask_session("a")).worker == "a"


async def test_a_session_is_lost_when_its_worker_freezes_while_a_call_waits(cluster: Cluster) -> None:
    gate = Gate("a")
    first = await cluster.add("a", gate.handle, kind="resource")
    frozen_s = 0.0
    async with anyio.create_task_group() as tasks:

        async def ask() -> None:
            with pytest.raises(SessionLost):
                await cluster.ask_session("a")

        tasks.start_soon(ask)
        await gate.calls.until(1)
        frozen_s = clock.now()
        first.freeze()
    assert clock.now() - frozen_s <= MEMBER_GONE_S + SESSION_GRACE_S + 0.5


async def test_a_session_waits_for_its_full_worker(cluster: Cluster) -> None:
    gate = Gate("a")
    await cluster.add("a", gate.handle, kind="resource", capacity=1)
    async with anyio.create_task_group() as tasks:

        async def free_later() -> None:
            await anyio.sleep(7)
            gate.open()

        tasks.start_soon(cluster.ask_session, "a")
        await gate.calls.until(1)
        tasks.start_soon(free_later)
        assert (await cluster.ask_session("a")).worker == "a"


# -- the end of patience ------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
async def test_a_cancelled_call_is_cancelled_at_its_worker_at_once(cluster: Cluster, known: bool) -> None:
    gate = Gate("a")
    await cluster.add("a", gate.handle, known=known)
    cancelled_s = 0.0
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: cluster.ask(key="run.1"))
        await gate.calls.until(1)
        cancelled_s = clock.now()
        tasks.cancel_scope.cancel()
    assert [asked.key for asked in await gate.cancelled.until(1)] == ["run.1"]
    assert clock.now() - cancelled_s < 0.1


async def test_a_cancelled_session_call_is_cancelled_at_its_worker_at_once(cluster: Cluster) -> None:
    gate = Gate("a")
    await cluster.add("a", gate.handle, kind="resource")
    cancelled_s = 0.0
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: cluster.ask_session("a", key="run.1"))
        await gate.calls.until(1)
        cancelled_s = clock.now()
        tasks.cancel_scope.cancel()
    await gate.cancelled.until(1)
    assert clock.now() - cancelled_s < 0.1


async def test_cancelling_stays_cancelling_when_the_connection_is_closed(cluster: Cluster) -> None:
    gate = Gate("a")
    await cluster.add("a", gate.handle)
    ended: list[str] = []
    async with cluster.broker.connect("other") as bus, anyio.create_task_group() as tasks:

        async def ask() -> None:
            try:
                await Router(bus).ask("model", "policy", request(key="run.1"), RetryBudget())
            except anyio.get_cancelled_exc_class():
                ended.append("cancelled")
                raise
            except GymError as error:
                ended.append(type(error).__name__)

        tasks.start_soon(ask)
        await gate.calls.until(1)
        tasks.cancel_scope.cancel()
        await bus.aclose()
    assert ended == ["cancelled"]


async def test_the_deadline_ends_a_call_here_and_at_its_worker(cluster: Cluster) -> None:
    gate = Gate("a")
    await cluster.add("a", gate.handle)
    started_s = clock.now()
    with pytest.raises(DeadlineExceeded, match=r"while waiting for model 'policy' \(worker a\)") as raised:
        await cluster.ask(within_s=5, key="run.1")
    assert (raised.value.stage, raised.value.retryable) == ("model", False)
    assert clock.now() - started_s == pytest.approx(5, abs=0.1)
    await gate.cancelled.until(1)

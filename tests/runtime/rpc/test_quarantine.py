"""Which call ends its workers: it is found, asked no more, and the others never fail for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest
from gym_runtime import clock
from gym_runtime.errors import GymError, ResourceError
from gym_runtime.messages import calls
from gym_runtime.rpc.answer import Service
from gym_runtime.rpc.ask import Router
from gym_runtime.rpc.members import Heartbeat, announce
from gym_runtime.rpc.quarantine import ALONE_AT, MAX_DEATHS, MAX_KILLED
from gym_runtime.rpc.retry_budget import RetryBudget
from gym_testing.background import hosting
from gym_testing.memory import MemoryBroker
from msgspec import Raw

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


class Pool:
    """Workers of which some calls end one; its slot is filled again each time.

    Attributes:
        deaths: how many workers ended.
        most: by how many deaths they had, the most calls that one worker executed at once.
        beside: the most others that a worker executed beside a call that is to be alone.
        killed: so many deaths are said to have come from outside, by the next worker of the slot.
        most_deaths: the calls end no more workers than that.
    """

    killed = 0
    most_deaths = 1_000_000

    def __init__(self, broker: MemoryBroker, poison: set[str], takes_s: float) -> None:
        self.deaths = 0
        self.most: Counter[int] = Counter()
        self.beside = 0
        self._broker = broker
        self._poison = poison
        self._takes_s = takes_s

    async def fill(self, slot: str) -> None:
        number = 0
        while True:
            number += 1
            from_outside = 0 < self.deaths <= self.killed
            await self._live(f"{slot}-{number}", f"{slot}-{number - 1}" if from_outside else "")
            await anyio.sleep(0.2)

    async def _live(self, name: str, killed: str) -> None:
        at_once: Counter[int] = Counter()

        async def handle(pool: str, asked: calls.Request, budget: RetryBudget) -> Raw:
            at_once[asked.deaths] += 1
            self.most[asked.deaths] = max(self.most[asked.deaths], at_once[asked.deaths])
            if any(at_once[deaths] for deaths in range(ALONE_AT, MAX_DEATHS + 1)):
                self.beside = max(self.beside, at_once.total() - 1)
            try:
                await anyio.sleep(self._takes_s)
                if asked.rollout in self._poison and self.deaths < self.most_deaths:
                    self.deaths += 1
                    bus.cut()
                    scope.cancel()
                    await anyio.sleep_forever()
            finally:
                at_once[asked.deaths] -= 1
            return calls.pack(name)

        with anyio.CancelScope() as scope:
            async with self._broker.connect(name) as bus, hosting() as tasks:
                service = Service(
                    bus, kind="resource", worker=name, pools=["shop"], capacity=1000, handle=handle
                )
                presence = Heartbeat(
                    worker=name, kind="resource", pools=["shop"], capacity=1000, places=True, killed=killed
                )
                tasks.start_soon(announce, bus, lambda: presence)
                await service.run(ready=lambda: None)


class Callers:
    """Callers with a router each, and a pool of two."""

    def __init__(self, pool: Pool, routers: list[Router]) -> None:
        self.pool = pool
        self.routers = routers

    async def ask_all(self, rollouts: int, limit_s: float = 600.0) -> dict[str, GymError | None]:
        """Each rollout's call, all at once; how it ended."""
        ends: dict[str, GymError | None] = {}

        async def one(number: int) -> None:
            name = f"r.{number}"
            request = calls.Request(
                body=Raw(b"{}"), deadline_s=clock.monotonic() + limit_s, key=f"{name}.1.x.1", rollout=name
            )
            try:
                await self.routers[number % 2].ask("resource", "shop", request, RetryBudget())
                ends[name] = None
            except GymError as error:
                ends[name] = error

        async with anyio.create_task_group() as tasks:
            for number in range(rollouts):
                tasks.start_soon(one, number)
        return ends


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture(params=[0.01, 2.0], ids=["short calls", "long calls"])
async def make(request: pytest.FixtureRequest, broker: MemoryBroker) -> AsyncGenerator[Any]:
    async with AsyncExitStack() as connections, hosting() as tasks:

        async def make(*poison: str, known: bool = True) -> Callers:
            pool = Pool(broker, set(poison), request.param)
            tasks.start_soon(pool.fill, "a")
            tasks.start_soon(pool.fill, "b")
            await anyio.sleep(3)
            routers: list[Router] = []
            for number in range(2):
                bus = await connections.enter_async_context(broker.connect(f"caller-{number}"))
                routers.append(Router(bus))
                tasks.start_soon(routers[-1].run)
            if known:
                # Until their roll call is answered.
                await anyio.sleep(3)
            return Callers(pool, routers)

        yield make


@pytest.mark.slow
async def test_one_call_that_ends_its_workers_ends_three_of_them_and_no_other_fails(make: Any) -> None:
    callers = await make("r.7")
    ends = await callers.ask_all(400)
    error = ends.pop("r.7")
    assert isinstance(error, ResourceError)
    assert not error.retryable
    assert "3 workers of resource 'shop' ended one after the other" in str(error)
    assert {name: error for name, error in ends.items() if error is not None} == {}
    assert callers.pool.deaths == MAX_DEATHS == 3
    assert callers.pool.most[2] <= 1
    assert callers.pool.beside == 0


@pytest.mark.slow
async def test_the_end_of_a_worker_counts_that_its_caller_did_not_know_before(make: Any) -> None:
    """The first calls of a new agent worker come before it has heard of the others."""
    callers = await make("r.0", known=False)
    assert not callers.routers[0].views["resource"].alive()
    ends = await callers.ask_all(400)
    assert {name for name, error in ends.items() if error is not None} == {"r.0"}
    assert callers.pool.deaths == MAX_DEATHS


@pytest.mark.slow
@pytest.mark.parametrize(
    ("deaths", "killed", "fails_at"),
    [(MAX_KILLED - 1, MAX_KILLED, 0), (MAX_KILLED, MAX_KILLED, MAX_KILLED), (MAX_KILLED, 3, 4)],
)
async def test_a_call_whose_workers_are_ended_from_outside_goes_on_for_longer(
    make: Any, deaths: int, killed: int, fails_at: int
) -> None:
    """Workers of a pool are taken away every few seconds, and one call is hit each time."""
    callers = await make("r.7")
    callers.pool.most_deaths, callers.pool.killed = deaths, killed
    ends = await callers.ask_all(20)
    error = ends.pop("r.7")
    assert (error is not None) == bool(fails_at)
    assert not error or f"{fails_at} workers of resource 'shop' ended one after the other" in str(error)
    assert callers.pool.deaths == (fails_at or deaths)
    assert {name: error for name, error in ends.items() if error is not None} == {}


async def test_a_call_that_was_not_alone_is_not_the_cause_though_its_rollout_is_suspected(make: Any) -> None:
    callers = await make("r.0")

    async def ask(number: int) -> None:
        budget = RetryBudget()
        for worker in ("earlier", "later"):
            budget.died(worker, "resource.2")
        limit_s = clock.monotonic() + 600
        request = calls.Request(body=Raw(b"{}"), deadline_s=limit_s, key=f"s.{number}.1.x.1", rollout="s")
        # Some of these are at the workers that the other rollout ends.
        await callers.routers[number % 2].ask("resource", "shop", request, budget)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(callers.ask_all, 1)
        for number in range(20):
            tasks.start_soon(ask, number)


async def test_a_call_that_an_outage_of_the_broker_cuts_off_is_suspected_of_nothing(
    make: Any, broker: MemoryBroker
) -> None:
    """The callers connect again before the workers do, and take that for their end."""
    callers = await make()
    workers, others = ("a-1", "b-1"), ("caller-0", "caller-1")

    async def outage() -> None:
        await anyio.sleep(0.005)
        for name in (*workers, *others):
            broker[name].cut()
        await anyio.sleep(30)
        for name in (*others, *workers):
            broker[name].mend()
            await anyio.sleep(1.5)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(outage)
        ends = await callers.ask_all(100)
    assert set(ends.values()) == {None}
    assert set(callers.pool.most) == {0}, "calls were sent as such that may have ended a worker"


@pytest.mark.slow
async def test_several_such_calls_cost_four_workers_each_at_most(make: Any) -> None:
    poison = [f"r.{number}" for number in range(0, 200, 47)]
    callers = await make(*poison)
    ends = await callers.ask_all(200)
    assert sorted(name for name, error in ends.items() if error is not None) == sorted(poison)
    # One that is found clears others, which may then end one more.
    assert callers.pool.deaths <= (MAX_DEATHS + 1) * len(poison)
    assert callers.pool.most[2] <= 1
    assert callers.pool.beside == 0


async def test_an_answer_clears_a_call_and_only_that_one() -> None:
    budget = RetryBudget()
    budget.died("a", "resource.1")
    budget.died("a", "resource.2")
    assert (budget.dead, budget.deaths_of("resource.1"), budget.deaths_of("resource.3")) == (["a"], 1, 0)
    await anyio.sleep(60)
    assert budget.died("b", "resource.1") == 2
    budget.answered("resource.2")
    budget.answered("model.m1")
    assert (budget.dead, budget.deaths_of("resource.2")) == (["a", "b"], 0)
    budget.answered("resource.1")
    assert (budget.dead, budget.deaths_of("resource.1")) == ([], 0)

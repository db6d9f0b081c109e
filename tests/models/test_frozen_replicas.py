"""Engines that accept connections and answer nothing: whose calls go elsewhere, and whose stay."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager

import anyio
import pytest
from gym_faces.dialects.chat_request import ChatVariant
from gym_models.wire.endpoint import Endpoint
from gym_models.wire.engine import Engine
from gym_models.wire.replica import Replica
from gym_models.wire.replicas import Replicas
from gym_models.wire.routing import MISSED_CHECKS, ReplicaState, choose
from gym_runtime.errors import ModelUnavailable
from gym_runtime.workers.adapter import ModelSettings
from gym_testing.proxy import Proxy
from models.model_calls import context, model_call, output
from stubs import stub_engine
from stubs.stub_engine import StubEngine

pytestmark = pytest.mark.anyio
LOOK_S = 0.02
HEALTH_LIMIT_S = 0.2
BOUND_S = 10 * MISSED_CHECKS * (LOOK_S + HEALTH_LIMIT_S)
"""Ten times as long as it should take: the machine may be busy."""


class Caller:
    """Asks as a model worker does: again, when told that it may help.

    Attributes:
        ended: calls that were ended; answered: calls that were answered.
    """

    def __init__(self, replicas: Replicas[Engine]) -> None:
        self.ended: list[str] = []
        self.answered = 0
        self._replicas = replicas

    async def ask(self, rollout: str) -> None:
        where = context(rollout=rollout, limit_s=60)
        while True:
            try:
                answer = await self._replicas.ask(where, lambda engine: engine.respond(model_call(), where))
            except ModelUnavailable as error:
                self.ended.append(error.message)
            else:
                assert output(answer)
                self.answered += 1
                return


def fleet(*urls: str) -> Replicas[Engine]:
    def engine(endpoint: Endpoint) -> Engine:
        return Engine(endpoint, model="stub", api="responses", dialect=ChatVariant())

    settings = ModelSettings(provider="openai", name="stub", urls=urls)
    return Replicas(settings, engine, look_s=LOOK_S, health_limit_s=HEALTH_LIMIT_S)


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(BOUND_S):
        while not condition():
            await anyio.sleep(0.005)


def state(replicas: Replicas[Engine], url: str) -> ReplicaState:
    return next(one for one in replicas.states() if one.url == url)


def homes(replicas: Replicas[Engine], url: str) -> str:
    """A rollout whose home is that replica when all are up."""
    everybody = [ReplicaState(url=one.url, up=True) for one in replicas.states()]
    names = (f"r.{number}.0" for number in range(1000))
    return next(name for name in names if (found := choose(name, everybody)) and found.url == url)


@asynccontextmanager
async def calling(caller: Caller, rollout: str, count: int, stub: StubEngine) -> AsyncGenerator[None]:
    """So many calls, which have reached the stub; leaves when all are answered."""
    async with anyio.create_task_group() as tasks:
        for _ in range(count):
            tasks.start_soon(caller.ask, rollout)
        await until(lambda: stub.stats().in_flight == count)
        yield


@pytest.fixture
def stubs() -> Iterator[Callable[..., StubEngine]]:
    with ExitStack() as stack:
        yield lambda *flags: stack.enter_context(stub_engine.running(*flags))


@pytest.mark.slow
async def test_calls_at_a_frozen_replica_go_to_the_other_and_it_is_used_again_when_thawed(
    stubs: Callable[..., StubEngine],
) -> None:
    freezes, stays = stubs("--latency-s", "1"), stubs()
    async with fleet(freezes.url, stays.url) as replicas:
        rollout, caller = homes(replicas, freezes.url), Caller(replicas)
        with anyio.fail_after(BOUND_S):
            with ExitStack() as held:
                async with calling(caller, rollout, 8, freezes):
                    held.enter_context(freezes.frozen())
                assert caller.answered == len(caller.ended) == 8
                assert stays.stats().requests == 8
                assert "health checks in a row without an answer" in caller.ended[0]
                await caller.ask(rollout)  # a new call does not even try
                assert (caller.answered, len(caller.ended)) == (9, 8)
                assert not state(replicas, freezes.url).up
            await until(lambda: state(replicas, freezes.url).up)
            before = freezes.stats().requests
            await caller.ask(rollout)
        assert freezes.stats().requests == before + 1
        assert len(caller.ended) == 8
        assert {one.in_flight for one in replicas.states()} == {0}


@pytest.mark.slow
async def test_a_network_that_swallows_everything_is_the_same(stubs: Callable[..., StubEngine]) -> None:
    behind, stays = stubs("--latency-s", "1"), stubs()
    port = int(behind.url.removesuffix("/v1").rpartition(":")[2])
    network = Proxy("127.0.0.1", port)
    async with network.listening() as entrance:
        url = f"http://127.0.0.1:{entrance}/v1"
        async with fleet(url, stays.url) as replicas:
            rollout, caller = homes(replicas, url), Caller(replicas)
            with anyio.fail_after(BOUND_S):
                async with calling(caller, rollout, 8, behind):
                    network.freeze()
                assert caller.answered == len(caller.ended) == 8
                network.thaw()
                await until(lambda: state(replicas, url).up)
                await caller.ask(rollout)
            assert len(caller.ended) == 8
            assert stays.stats().requests == 8


@pytest.mark.slow
async def test_alone_it_keeps_its_calls_and_answers_them_when_thawed(
    stubs: Callable[..., StubEngine],
) -> None:
    stub = stubs("--latency-s", "0.5")
    async with fleet(stub.url) as replicas:
        caller = Caller(replicas)
        async with calling(caller, "r.0.0", 8, stub):
            with stub.frozen():
                await until(lambda: state(replicas, stub.url).missed >= MISSED_CHECKS)
                await until(lambda: not state(replicas, stub.url).up)
                assert state(replicas, stub.url).in_flight == 8
        assert (caller.answered, caller.ended) == (8, [])
        assert stub.stats().aborted == 0


@pytest.mark.slow
async def test_where_all_are_frozen_calls_stay_until_one_is_thawed(stubs: Callable[..., StubEngine]) -> None:
    longer, thaws = stubs("--latency-s", "3"), stubs("--latency-s", "1")
    async with fleet(longer.url, thaws.url) as replicas:
        rollout, caller = homes(replicas, longer.url), Caller(replicas)
        with ExitStack() as held, anyio.fail_after(BOUND_S):
            async with calling(caller, rollout, 4, longer):
                held.enter_context(longer.frozen())
                with thaws.frozen():
                    await until(lambda: not any(one.up for one in replicas.states()))
                    assert min(one.missed for one in replicas.states()) >= MISSED_CHECKS
                    assert state(replicas, longer.url).in_flight == 4
                    assert caller.ended == []
        assert caller.answered == len(caller.ended) == 4
        assert thaws.stats().requests == 4


@pytest.mark.slow
async def test_a_replica_that_answers_calls_is_not_frozen_whatever_its_health_checks_say(
    stubs: Callable[..., StubEngine],
) -> None:
    busy, idle = stubs("--silent-health", "--latency-s", "0.05"), stubs()
    async with fleet(busy.url, idle.url) as replicas:
        rollout, caller = homes(replicas, busy.url), Caller(replicas)
        with anyio.fail_after(BOUND_S):
            while busy.stats().health < MISSED_CHECKS + 3:
                await caller.ask(rollout)
            assert state(replicas, busy.url).up
            assert idle.stats().requests == 0
            await until(lambda: not state(replicas, busy.url).up)  # nobody asks it any more


@pytest.mark.parametrize("first", ["ended", "cancelled"])
async def test_a_call_that_is_ended_and_cancelled_at_once_is_cancelled(first: str) -> None:
    endpoint = Endpoint(url="http://127.0.0.1:9/v1", headers={}, private=True)
    replica = Replica(Engine(endpoint, model="stub", api="responses", dialect=ChatVariant()))

    async def question(_: Engine) -> None:
        await asyncio.get_running_loop().create_future()

    call = asyncio.create_task(replica.ask(question))
    await asyncio.sleep(0)
    for act in (replica.end_calls, call.cancel)[:: 1 if first == "ended" else -1]:
        act()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert replica.end_calls() == 0

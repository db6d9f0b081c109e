"""Requests to sessions, cancellations and deadlines."""

from __future__ import annotations

import anyio
import pytest
from gym_runtime import clock
from gym_runtime.errors import (
    DeadlineExceeded,
    GymError,
    SessionLost,
)
from gym_runtime.rpc.ask import SESSION_GRACE_S, Router
from gym_runtime.rpc.retry_budget import RetryBudget
from gym_runtime.timing import MEMBER_GONE_S
from gym_testing.background import settled
from runtime.rpc.router.router_cluster import Cluster, naming
from runtime.workers.hosting import Gate, request, serving

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


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
        started_s = clock.monotonic()
        with pytest.raises(SessionLost, match="worker a of resource 'policy' is gone") as raised:
            await cluster.ask_session("a")
    assert clock.monotonic() == started_s
    assert (raised.value.retryable, raised.value.stage) == (True, "resource")


async def test_a_session_is_lost_soon_with_a_worker_that_died(cluster: Cluster) -> None:
    first = await cluster.add("a", naming("a"), kind="resource")
    first.cut()
    started_s = clock.monotonic()
    with pytest.raises(SessionLost):
        await cluster.ask_session("a")
    assert clock.monotonic() - started_s <= SESSION_GRACE_S + 0.25


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
        frozen_s = clock.monotonic()
        first.freeze()
    assert clock.monotonic() - frozen_s <= MEMBER_GONE_S + SESSION_GRACE_S + 0.5


async def test_a_worker_that_is_gone_and_still_takes_messages_is_not_asked_and_did_not_die_of_it(
    cluster: Cluster,
) -> None:
    first = await cluster.add("a", naming("a"), kind="resource")
    budget = RetryBudget()
    # Its calls reach it and are not answered, as at a worker that only its watchdog can end.
    first.freeze()
    await settled(lambda: not cluster.router.views["resource"].knows("a"), within_s=MEMBER_GONE_S + 1)
    started_s = clock.monotonic()
    with pytest.raises(SessionLost):
        await cluster.ask_session("a", budget)
    assert clock.monotonic() == started_s
    assert not budget.suspects
    # It answers again, and so it is asked again.
    first.thaw()
    await settled(lambda: cluster.router.views["resource"].knows("a"))
    assert (await cluster.ask_session("a", budget)).worker == "a"


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


@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
async def test_a_cancelled_call_is_cancelled_at_its_worker_at_once(cluster: Cluster, known: bool) -> None:
    gate = Gate("a")
    await cluster.add("a", gate.handle, known=known)
    cancelled_s = 0.0
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: cluster.ask(key="run.1"))
        await gate.calls.until(1)
        cancelled_s = clock.monotonic()
        tasks.cancel_scope.cancel()
    assert [asked.key for asked in await gate.cancelled.until(1)] == ["run.1"]
    assert clock.monotonic() - cancelled_s < 0.1


async def test_a_cancelled_session_call_is_cancelled_at_its_worker_at_once(cluster: Cluster) -> None:
    gate = Gate("a")
    await cluster.add("a", gate.handle, kind="resource")
    cancelled_s = 0.0
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: cluster.ask_session("a", key="run.1"))
        await gate.calls.until(1)
        cancelled_s = clock.monotonic()
        tasks.cancel_scope.cancel()
    await gate.cancelled.until(1)
    assert clock.monotonic() - cancelled_s < 0.1


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
    started_s = clock.monotonic()
    with pytest.raises(DeadlineExceeded, match=r"while waiting for model 'policy' \(worker a\)") as raised:
        await cluster.ask(within_s=5, key="run.1")
    assert (raised.value.stage, raised.value.retryable) == ("model", False)
    assert clock.monotonic() - started_s == pytest.approx(5, abs=0.1)
    await gate.cancelled.until(1)

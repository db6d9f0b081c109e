"""One request: which worker is asked, and what happens when it is busy or gone."""

from __future__ import annotations

from collections import Counter
from functools import partial

import anyio
import pytest
from gym_runtime import clock
from gym_runtime.bus.interface import Incoming
from gym_runtime.errors import (
    ConnectionLost,
    DeadlineExceeded,
    ModelRefused,
    NoWorker,
)
from gym_runtime.messages import calls
from gym_runtime.rpc.actors import RoutedReply
from gym_runtime.rpc.ask import NO_WORKER_GRACE_S
from gym_runtime.rpc.members import Heartbeat
from gym_runtime.rpc.retry_budget import RetryBudget
from gym_runtime.timing import MEMBER_GONE_S
from gym_testing.background import background, hosting, settled
from msgspec import Raw
from runtime.rpc.router.router_cluster import Cluster, naming
from runtime.workers.hosting import Gate, announced

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


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


@pytest.mark.parametrize("told", [True, False])
async def test_the_end_of_a_worker_is_noticed_that_the_caller_had_not_heard_of(
    cluster: Cluster, told: bool
) -> None:
    """Told by its watcher, or asked about by the caller itself."""
    gate, other = Gate("a"), Gate("b")
    worker = await cluster.add("a", gate.handle, known=False)
    async with background(cluster.ask):
        await gate.calls.until(1)
        await cluster.add("b", other.handle, known=False)
        worker.cut()
        began_s = clock.monotonic()
        if told:
            await cluster.bus.publish("gone.model.a", b"")
        (again,) = await other.calls.until(1)
        assert again.deaths == 1
        assert clock.monotonic() - began_s < (1.0 if told else 4.0)


async def test_a_frozen_worker_does_not_hold_a_caller_that_knows_no_other(cluster: Cluster) -> None:
    asked = anyio.Event()
    async with (
        cluster.broker.connect("frozen") as frozen,
        frozen.serve("model.policy", lambda _: asked.set(), queue="model.policy"),
        anyio.create_task_group() as tasks,
    ):
        began_s = clock.monotonic()

        async def ask() -> None:
            assert (await cluster.ask()).worker == "a"
            assert clock.monotonic() - began_s < 10.0

        tasks.start_soon(ask)
        await asked.wait()
        await anyio.sleep(5)
        await cluster.add("a", naming("a"))


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


async def test_a_full_worker_makes_it_ask_another_at_once(cluster: Cluster) -> None:
    gate = Gate("a")
    await cluster.add("a", gate.handle, capacity=1)
    async with background(cluster.ask):
        await gate.calls.until(1)
        await cluster.add("b", naming("b"), capacity=1)
        cluster.router.views["model"].report("b", 1.0)
        cluster.router.views["model"].report("a", 0.0)
        started_s = clock.monotonic()
        answers = Counter([(await cluster.ask()).worker for _ in range(10)])
        assert answers == {"b": 10}
        assert clock.monotonic() == started_s


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
        free_s = clock.monotonic() + 20

        async def free_later() -> None:
            await anyio.sleep(20)
            gates["b"].open()

        tasks.start_soon(free_later)
        assert (await cluster.ask(budget)).worker == "b"
        assert free_s <= clock.monotonic() < free_s + 3.5
        gates["a"].open()


async def test_waiting_for_full_workers_ends_at_the_deadline_with_the_reason(cluster: Cluster) -> None:
    gate = Gate("a")
    await cluster.add("a", gate.handle, capacity=1)
    async with background(cluster.ask):
        await gate.calls.until(1)
        started_s = clock.monotonic()
        with pytest.raises(DeadlineExceeded, match="worker a is at its capacity of 1"):
            await cluster.ask(within_s=5)
        assert clock.monotonic() - started_s <= 5.01


async def test_a_worker_that_does_not_answer_any_more_makes_it_ask_another_at_once(cluster: Cluster) -> None:
    first = await cluster.add("a", naming("a"))
    await cluster.add("b", naming("b"))
    first.cut()
    started_s = clock.monotonic()
    assert {(await cluster.ask()).worker for _ in range(10)} == {"b"}
    assert clock.monotonic() == started_s
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
        frozen_s = clock.monotonic()
        await settled(lambda: answers)
        assert answers[0].worker == "b"
        assert clock.monotonic() - frozen_s <= MEMBER_GONE_S + 0.1
        gate.open()
        first.thaw()
    assert len(answers) == 1


async def test_a_request_whose_caller_is_gone_is_waited_for_no_longer(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its deadline passed, or it was cancelled, and nothing says that its rollout has ended."""
    gate = Gate("a")
    await cluster.add("a", gate.handle)
    with pytest.raises(DeadlineExceeded, match=r"while waiting for model 'policy' \(worker a\)"):
        await cluster.ask(key="run.1", rollout="run", within_s=5)
    assert cluster.router.waiting == {}
    with anyio.move_on_after(5) as scope:
        await cluster.ask(budget := RetryBudget(), key="run.2", rollout="run", within_s=1000)
    assert scope.cancelled_caught
    assert cluster.router.waiting == {}
    assert budget.waited_for is not None
    assert budget.waited_for.name == "model 'policy' (worker a)"
    await anyio.sleep(1000)
    assert "answers were lost" not in capsys.readouterr().err


@pytest.mark.slow
async def test_without_any_worker_it_gives_up_after_a_grace_and_names_the_remedy(cluster: Cluster) -> None:
    started_s = clock.monotonic()
    with pytest.raises(NoWorker, match=r"no worker serves model 'policy'.*start model:policy$") as raised:
        await cluster.ask(within_s=3600)
    assert raised.value.stage == "model"
    assert NO_WORKER_GRACE_S <= clock.monotonic() - started_s < NO_WORKER_GRACE_S + 1


async def test_the_grace_begins_again_with_each_worker_that_was_there(cluster: Cluster) -> None:
    """A worker that is lost and started again, for another call's sake, is not missing."""
    gate = Gate("a")

    async def come_and_go() -> None:
        await anyio.sleep(0.7 * NO_WORKER_GRACE_S)
        first = await cluster.add("a", gate.handle)
        await gate.calls.until(1)
        first.cut()
        await anyio.sleep(0.7 * NO_WORKER_GRACE_S)
        await cluster.add("b", naming("b"))

    async with background(come_and_go):
        assert (await cluster.ask(within_s=3600)).worker == "b"


@pytest.mark.slow
async def test_an_outage_of_the_broker_does_not_count_as_time_without_workers(cluster: Cluster) -> None:
    """The workers have left before it, as when a job with both is queued again."""

    async def return_later() -> None:
        for _ in range(3):
            cluster.bus.cut()
            await anyio.sleep(2 * NO_WORKER_GRACE_S)
            cluster.bus.mend()
            await anyio.sleep(NO_WORKER_GRACE_S / 2)
        await cluster.add("late", naming("late"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(return_later)
        assert (await cluster.ask(within_s=3600)).worker == "late"


@pytest.mark.slow
async def test_a_pool_whose_last_worker_was_blocked_names_the_line(cluster: Cluster) -> None:
    detail = {"blocked": "blocked at own.py:7 in verify"}
    cluster.router.members.learn(Heartbeat(worker="a", kind="model", pools=["policy"], detail=detail))
    cluster.router.views["model"].forget("a")
    with pytest.raises(NoWorker, match=r"since 30 s; the last was blocked at own\.py:7 in verify$"):
        await cluster.ask(within_s=3600)


async def test_a_worker_that_arrives_within_the_grace_is_asked_soon(cluster: Cluster) -> None:
    arrived_s = clock.monotonic() + 20

    async def arrive() -> None:
        await anyio.sleep(20)
        await cluster.add("late", naming("late"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(arrive)
        assert (await cluster.ask(within_s=3600)).worker == "late"
        assert arrived_s <= clock.monotonic() <= arrived_s + 0.5


async def test_without_any_worker_a_nearer_deadline_ends_it(cluster: Cluster) -> None:
    with pytest.raises(DeadlineExceeded):
        await cluster.ask(within_s=3)


async def test_a_draining_worker_is_not_asked_while_there_is_another(cluster: Cluster) -> None:
    await cluster.add("a", naming("a"))
    bus = await cluster.add("b", naming("b"), known=False)
    async with announced(bus, "model", "b", ["policy"], draining=True):
        await settled(lambda: cluster.router.views["model"].knows("b"))
        assert {(await cluster.ask()).worker for _ in range(20)} == {"a"}


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


async def test_an_answer_that_cannot_be_read_is_asked_for_again(cluster: Cluster) -> None:
    texts = [b"", b"[1]", b'{"worker":', calls.encode(calls.RpcReply(body=Raw(b"1"), worker="a"))]

    async def answer(incoming: Incoming) -> None:
        await cluster.bus.publish(incoming.reply, texts.pop(0))

    async with hosting() as tasks, announced(cluster.bus, "model", "a", ["policy"]):
        await settled(lambda: cluster.router.views["model"].knows("a"))
        receive = partial(tasks.start_soon, answer)
        async with cluster.bus.serve("model.policy.a", receive):
            budget = RetryBudget(3)
            assert await cluster.ask(budget) == RoutedReply(Raw(b"1"), "a")
            assert budget.left == 0
            texts.append(b"junk")
            with pytest.raises(ConnectionLost, match=r"the answer of model 'policy' .* cannot be read"):
                await cluster.ask(RetryBudget(0))


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

"""The serving side of a hop: admission, deadline, cancellation, answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import suppress
from functools import partial

import anyio
import pytest
from gym_runtime import clock
from gym_runtime.bus.interface import Bus
from gym_runtime.errors import DeadlineExceeded, GymError, ModelRefused, ModelUnavailable, ResourceError
from gym_runtime.messages import calls, stored_records
from gym_runtime.rpc.retry_budget import RetryBudget
from gym_testing.background import Mailbox, background
from gym_testing.memory import MemoryBroker
from msgspec import Raw
from runtime.workers.hosting import Gate, call, request, serving

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


@pytest.fixture
async def bus() -> AsyncGenerator[Bus]:
    async with MemoryBroker().connect() as bus:
        yield bus


async def echo(pool: str, asked: calls.Request, budget: RetryBudget) -> Raw:
    return asked.body


# -- answers ------------------------------------------------------------------------------------------


async def test_an_answer_names_its_worker_and_how_full_it_is(bus: Bus) -> None:
    async with serving(bus, echo, worker="one", capacity=4):
        reply = await call(bus, "model.policy", request([1, 2]))
    assert (bytes(reply.body), reply.worker, reply.fault) == (b"[1,2]", "one", None)
    assert reply.load == 0.25


async def test_it_answers_for_each_of_its_pools_and_under_its_own_subject(bus: Bus) -> None:
    pools: list[str] = []

    async def handle(pool: str, asked: calls.Request, budget: RetryBudget) -> Raw:
        pools.append(pool)
        return asked.body

    async with serving(bus, handle, worker="one", pools=("policy", "judge")):
        for subject in ("model.policy", "model.judge", "model.judge.one"):
            await call(bus, subject)
    assert pools == ["policy", "judge", "judge"]


@pytest.mark.parametrize(
    ("error", "kind", "stage", "retryable"),
    [
        (ModelRefused("no"), "model", "model", False),
        (ModelUnavailable("later"), "model", "model", True),
        (ResourceError("broken", stage="verify"), "resource", "verify", False),
        (ValueError("a bug"), "runtime", "model", False),
    ],
)
async def test_what_a_handler_raises_is_answered_as_a_typed_fault_and_ends_nothing(
    bus: Bus, error: Exception, kind: str, stage: str, retryable: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    async def handle(pool: str, asked: calls.Request, budget: RetryBudget) -> Raw:
        if bytes(asked.body) == b"0":
            raise error
        return asked.body

    async with serving(bus, handle) as service:
        fault = (await call(bus, "model.policy", request(0))).fault
        assert fault is not None
        assert (fault.kind, fault.stage, fault.retryable) == (kind, stage, retryable)
        assert str(error) in fault.message
        assert service.in_use == 0
        assert (await call(bus, "model.policy", request(1))).fault is None


async def test_requests_that_cannot_be_read_end_nothing_and_are_one_line(
    bus: Bus, capsys: pytest.CaptureFixture[str]
) -> None:
    stored_records._named.clear()
    async with serving(bus, echo):
        for _ in range(20):
            await bus.publish("model.policy", b"not a request")
        assert (await call(bus, "model.policy")).fault is None
    assert "".join(capsys.readouterr()).count("a request cannot be decoded") == 1


async def test_an_answer_that_is_too_large_is_a_fault_and_not_silence() -> None:
    async def handle(pool: str, asked: calls.Request, budget: RetryBudget) -> Raw:
        return calls.pack("x" * 5000)

    async with MemoryBroker(max_bytes=2000).connect() as bus, serving(bus, handle):
        started_s = clock.monotonic()
        fault = (await call(bus, "model.policy")).fault
        assert fault is not None
        assert fault.name == "PayloadTooLarge"
        assert not fault.retryable
        assert clock.monotonic() - started_s < 1


# -- admission ----------------------------------------------------------------------------------------


async def test_above_its_capacity_it_says_busy_at_once_and_takes_work_again_later(bus: Bus) -> None:
    gate = Gate()
    async with serving(bus, gate.handle, capacity=2) as service, anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(call, bus, "model.policy")
        await gate.calls.until(2)
        started_s = clock.monotonic()
        reply = await call(bus, "model.policy")
        assert reply.fault is not None
        assert (reply.fault.name, reply.fault.retryable, reply.load) == ("Busy", True, 1)
        assert clock.monotonic() == started_s
        assert len(gate.calls.items) == service.in_use == 2
        gate.open()
        with anyio.fail_after(1):
            await service.drained()
        assert (await call(bus, "model.policy")).fault is None


async def test_what_nobody_waits_for_is_never_refused(bus: Bus) -> None:
    gate = Gate()
    async with serving(bus, gate.handle, capacity=1), background(lambda: call(bus, "model.policy")):
        await gate.calls.until(1)
        await bus.publish("model.policy.one", calls.encode_request(request("close")))
        assert bytes((await gate.calls.until(2))[1].body) == b'"close"'
        gate.open()


async def test_drained_waits_for_what_is_in_progress_only(bus: Bus) -> None:
    gate = Gate()
    drained: Mailbox[float] = Mailbox()
    async with serving(bus, gate.handle) as service, anyio.create_task_group() as tasks:
        with anyio.fail_after(1):
            await service.drained()

        async def drain() -> None:
            await service.drained()
            drained.put(clock.monotonic())

        tasks.start_soon(call, bus, "model.policy")
        await gate.calls.until(1)
        tasks.start_soon(drain)
        await anyio.wait_all_tasks_blocked()
        assert not drained.items
        gate.open()
        await drained.until(1)


# -- deadlines and cancellation -----------------------------------------------------------------------


async def test_a_request_that_comes_after_its_deadline_is_not_worked_on(bus: Bus) -> None:
    worked: list[calls.Request] = []

    async def handle(pool: str, asked: calls.Request, budget: RetryBudget) -> Raw:
        worked.append(asked)
        return asked.body

    async with serving(bus, handle) as service:
        late = request(within_s=-0.001)
        await bus.publish("model.policy.one", calls.encode_request(late))
        await call(bus, "model.policy")
        assert [asked.deadline_s for asked in worked] != [late.deadline_s]
        assert len(worked) == 1
        assert service.in_use == 0


@pytest.mark.parametrize("off_s", [-60.0, 60.0])
async def test_what_is_left_counts_and_not_the_senders_clock(bus: Bus, off_s: float) -> None:
    gate = Gate()
    async with serving(bus, gate.handle):
        asked = calls.Request(body=calls.pack(0), deadline_s=clock.now() + off_s, left_s=5.0)
        began_s = clock.monotonic()
        answer = await bus.request("model.policy", calls.encode(asked), deadline_s=began_s + 10)
        fault = calls.decode_reply(answer).fault
        assert fault is not None
        assert fault.name == "DeadlineExceeded"
        assert clock.monotonic() == pytest.approx(began_s + 5, abs=0.01)


async def test_work_ends_at_its_deadline_and_who_still_waits_hears_it(bus: Bus) -> None:
    gate = Gate()
    async with serving(bus, gate.handle) as service:
        asked = request(within_s=5)
        answer = await bus.request(
            "model.policy", calls.encode_request(asked), deadline_s=asked.deadline_s + 5
        )
        fault = calls.decode_reply(answer).fault
        assert fault is not None
        assert fault.name == "DeadlineExceeded"
        assert len(gate.cancelled.items) == 1
        assert service.in_use == 0
        assert clock.monotonic() == pytest.approx(asked.deadline_s, abs=0.01)


async def test_an_abort_cancels_the_request_of_its_key_and_no_other(bus: Bus) -> None:
    gate = Gate()
    answered: list[str] = []

    async def ask(key: str) -> None:
        try:
            await call(bus, "model.policy", request(key=key, within_s=30))
            answered.append(key)
        except DeadlineExceeded:
            answered.append("none")

    async with serving(bus, gate.handle) as service, anyio.create_task_group() as tasks:
        tasks.start_soon(ask, "run.1")
        tasks.start_soon(ask, "run.2")
        await gate.calls.until(2)
        await bus.publish("abort.one", b"nobody")
        await bus.publish("abort.two", b"run.2")
        await bus.publish("abort.one", b"run.1")
        assert [asked.key for asked in await gate.cancelled.until(1)] == ["run.1"]
        assert service.in_use == 1
        gate.open()
        await anyio.wait_all_tasks_blocked()
        assert answered == ["run.2"]
    assert answered == ["run.2", "none"]


async def test_a_handler_that_goes_on_after_an_abort_is_answered(bus: Bus) -> None:
    at_work = anyio.Event()

    async def handle(pool: str, asked: calls.Request, budget: RetryBudget) -> Raw:
        if bytes(asked.body) == b'"stubborn"':
            at_work.set()
            with suppress(anyio.get_cancelled_exc_class()):
                await anyio.sleep_forever()
        return asked.body

    async def abort() -> None:
        await at_work.wait()
        await bus.publish("abort.one", b"run.1")

    async with serving(bus, handle, worker="one") as service, background(abort):
        reply = await call(bus, "model.policy", request("stubborn", key="run.1", within_s=30))
        assert bytes(reply.body) == b'"stubborn"'
        for number in range(3):
            assert (
                bytes((await call(bus, "model.policy", request(number, within_s=1))).body) == b"%d" % number
            )
        await anyio.sleep(5)
        assert service.in_use == 0


async def test_the_deadline_of_one_request_ends_no_later_one(bus: Bus) -> None:
    """They are worked on in the same task."""

    async def handle(pool: str, asked: calls.Request, budget: RetryBudget) -> Raw:
        await anyio.sleep(float(bytes(asked.body)))
        return asked.body

    async with serving(bus, handle):
        assert bytes((await call(bus, "model.policy", request(0.5, within_s=1))).body) == b"0.5"
        assert bytes((await call(bus, "model.policy", request(20, within_s=30))).body) == b"20"


async def test_stopping_cancels_what_is_in_progress(bus: Bus) -> None:
    gate = Gate()
    async with anyio.create_task_group() as tasks:

        async def ask() -> None:
            try:
                await call(bus, "model.policy", request(within_s=1))
            except GymError:
                return

        async with serving(bus, gate.handle):
            tasks.start_soon(ask)
            await gate.calls.until(1)
        assert len(gate.cancelled.items) == 1


async def test_capacity_is_given_back_whatever_happens(bus: Bus) -> None:
    gate = Gate()

    async def ask(within_s: float) -> None:
        try:
            await call(bus, "model.policy", request(within_s=within_s, key=str(within_s)))
        except DeadlineExceeded:
            return

    async with (
        serving(bus, gate.handle, capacity=3) as service,
        background(*[partial(ask, within_s) for within_s in (1.0, 2.0, 30.0)]),
    ):
        await gate.calls.until(3)
        await bus.publish("abort.one", b"30.0")
        await anyio.sleep(3)
        assert service.in_use == 0

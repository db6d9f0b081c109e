"""An answer that is lost on its way is asked for again; one that takes long is waited for."""

from __future__ import annotations

import random

import anyio
import pytest
from gym_runtime import clock
from gym_runtime.bus.interface import Incoming
from gym_runtime.messages.outcomes import Completed, Failed
from gym_runtime.rpc.lost import IN_FLIGHT_LOOK_S, IN_FLIGHT_MISSES, InFlightRequest, LostAnswers
from gym_runtime.timing import IN_FLIGHT_FIRST_S
from gym_testing.memory import Fate, MemoryBroker, Passing
from gym_testing.small_system import Hang, answer
from runtime.client.running_client import CALL, running_client

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]

SOON_S = IN_FLIGHT_FIRST_S + (IN_FLIGHT_MISSES + 1) * IN_FLIGHT_LOOK_S


class LoseAnswers:
    """The first answers of one worker to requests of its kind never arrive."""

    def __init__(self, sender: str, count: int) -> None:
        self.left = count
        self._sender = sender
        self._asked = 0

    def fate(self, passing: Passing, dice: random.Random) -> Fate:
        if passing.kind == "request" and passing.receiver == self._sender:
            self._asked += passing.subject.startswith(("model.", "resource.", "holds."))
        if passing.kind == "answer" and passing.sender == self._sender and self.left and self._asked:
            self.left -= 1
            self._asked -= 1
            return Fate(drop=True)
        return Fate()


@pytest.mark.parametrize(("sender", "asked"), [("model-1", 2), ("resource-1", 1)])
async def test_a_lost_answer_is_asked_for_again_within_seconds(sender: str, asked: int) -> None:
    faults = LoseAnswers(sender, 1)
    async with running_client(*[answer(CALL)] * asked, answer("done"), faults=faults) as here:
        start_s = clock.monotonic()
        (record,) = [record async for record in here.rollouts(1)]
        assert record.outcome == Completed()
        assert record.reward == 1.0
        assert faults.left == 0
        assert clock.monotonic() - start_s < SOON_S + 5


@pytest.mark.slow
async def test_an_answer_that_takes_long_is_waited_for_and_asked_for_once() -> None:
    async with running_client(answer(CALL), Hang()) as here:
        await here.gym.driver.publish(here.tasks("one", 3))
        await here.engine.calls.until(6)
        await anyio.sleep(1000)
        assert len(here.engine.calls.items) == 6
        assert not here.engine.cancelled.items


@pytest.mark.slow
async def test_a_worker_of_whom_nothing_is_heard_is_waited_for_up_to_the_deadline() -> None:
    async with running_client(answer(CALL), answer("done"), faults=LoseAnswers("model-1", 10_000)) as here:
        (record,) = [record async for record in here.rollouts(1, timeout_s=600)]
    assert record.reward is None
    assert isinstance(record.outcome, Failed)
    assert "s for model 'policy' (worker model-1)" in record.outcome.fault.message


async def test_what_a_worker_holds_is_unknown_where_its_answer_cannot_be_read() -> None:
    broker = MemoryBroker()
    async with broker.connect("agent") as bus, broker.connect("one") as worker:
        request = InFlightRequest("model", "policy", "one", "key")

        def receive(incoming: Incoming) -> None:
            tasks.start_soon(worker.publish, incoming.reply, b"{")

        async with worker.serve("holds.one", receive), anyio.create_task_group() as tasks:
            lost = LostAnswers(bus, [request])
            await anyio.sleep(SOON_S)
            for _ in range(IN_FLIGHT_MISSES + 1):
                await lost.look()
        assert not request.lost

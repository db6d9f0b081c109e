"""Unfinished rollouts are carried over from one step to the next."""

from __future__ import annotations

from collections import Counter

import anyio
import msgspec
import pytest
from gym_runtime import Environment, Reply, Session, Task, Verdict, tool
from gym_runtime.adapters import CallContext, ModelAnswer, ModelCall
from gym_signal import signal_batches
from gym_testing.small_system import Engine, answer, environment, function_call, small_system

pytestmark = pytest.mark.anyio


class PlanTask(Task):
    number: int


class Planning(Session[PlanTask]):
    @tool
    def think(self) -> str:
        return "thought"

    async def verify(self, reply: Reply) -> Verdict:
        return Verdict(float(reply.text == "right"))


class Policy(Engine):
    """The second rollout of each row is right, and needs ten turns; others need one.

    Attributes:
        asked: how often each rollout was asked for each turn.
    """

    def __init__(self) -> None:
        super().__init__()
        self.asked = Counter[tuple[str, int]]()

    async def respond(self, call: ModelCall, context: CallContext) -> ModelAnswer:
        turn = sum(b"function_call_output" in bytes(item) for item in call.input)
        self.asked[context.rollout, turn] += 1
        try:
            await anyio.sleep(1 + int(context.rollout.split(".")[1]) % 5)
        except anyio.get_cancelled_exc_class():
            self.cancelled.put(context)
            raise
        second = context.rollout.endswith(".1")
        if second and turn < 9:
            return answer(function_call("think", call_id=f"c{turn}"))
        return answer("right" if second else "wrong")


@pytest.mark.slow
async def test_unfinished_rollouts_stop_at_a_turn_between_two_steps() -> None:
    rows = [{"responses_create_params": {"input": str(n)}, "number": n} for n in range(40)]
    policy = Policy()
    async with small_system() as system:
        await system.add_resource(environment(Environment(resource=Planning, description="Plan."), "plan"))
        await system.add_model(policy, capacity=1000)
        await system.add_agent(slots=200)
        async with signal_batches(
            system.client, rows, want=3, repeats=2, environment="plan", curriculum="uniform", partial=True
        ) as batches:
            resumed = 0
            for _ in range(6):
                groups = await batches.next()
                rows_ = [msgspec.json.decode(one.row) for group in groups for one in group.rollouts]
                resumed += sum(row["_gym"].get("resumed_turns", 0) > 0 for row in rows_)
                await anyio.sleep(10)  # a turn takes at most five
                asked = policy.asked.total()
                await anyio.sleep(60)  # the trainer's step
                assert policy.asked.total() == asked
            assert resumed, "some were carried over"
            assert not policy.cancelled.items
            assert set(policy.asked.values()) == {1}, "no turn is asked twice"
            batches.installed()
            await anyio.sleep(20)
            assert policy.asked.total() > asked


@pytest.mark.parametrize("moment", ["pause", "resume"])
async def test_a_batch_that_is_not_waited_for_comes_with_the_next_call(
    monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    rows = [{"responses_create_params": {"input": str(n)}, "number": n} for n in range(40)]
    async with small_system() as system:
        await system.add_resource(environment(Environment(resource=Planning, description="Plan."), "plan"))
        await system.add_model(Policy(), capacity=1000)
        await system.add_agent(slots=200)
        async with signal_batches(
            system.client, rows, want=3, repeats=2, environment="plan", curriculum="uniform", partial=True
        ) as batches:
            if moment == "resume":
                await batches.next()
            with anyio.CancelScope() as scope, monkeypatch.context() as patch:

                async def given_up(run: str) -> None:
                    scope.cancel()
                    await anyio.sleep_forever()

                patch.setattr(system.client, moment, given_up)
                await batches.next()
            assert scope.cancelled_caught
            with anyio.fail_after(600):
                numbers = {group.key for _ in range(3) for group in await batches.next()}
            assert len(numbers) == 9
            # No batch was taken of the plan that did not come.
            taken = 4 if moment == "resume" else 3
            assert batches._plan.deadlines.taken == taken

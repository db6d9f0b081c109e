"""Agent workers are killed while groups are refilled, stopped early and parked: every batch comes whole."""

from __future__ import annotations

import random
from typing import Any

import anyio
import pytest
from gym_runtime import Environment
from gym_signal import Bet, signal_batches
from gym_testing.small_system import environment, small_system
from signals.test_partial import Planning, Policy

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.anyio, pytest.mark.timeout(120)]

REPEATS, WANT, BATCHES = 4, 3, 6


class Mixed(Policy):
    """Every third row has signal: its second rollout is right, after ten turns; of the others none is."""

    async def respond(self, call: Any, context: Any) -> Any:
        row = int(bytes(call.input[0]).decode().split('"content":"')[1].split('"')[0])
        if row % 3:
            # The last part of the name decides: it is not the second rollout of its group.
            context = type(context)(
                **{name: getattr(context, name) for name in context.__struct_fields__}
                | {"rollout": f"{context.rollout}0"}
            )
        return await super().respond(call, context)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"curriculum": "uniform"}, marks=pytest.mark.soak),
        {"curriculum": "posterior", "waves": (2, 2), "bet": Bet(below=1.0, keep=0.5)},
        pytest.param({"curriculum": "uniform", "partial": True}, marks=pytest.mark.soak),
        pytest.param({"curriculum": "uniform", "staleness": 1}, marks=pytest.mark.soak),
    ],
    ids=["refilled", "stopped", "parked", "paced"],
)
async def test_batches_come_whole_while_agent_workers_are_killed(options: dict[str, Any]) -> None:
    rows = [{"responses_create_params": {"input": str(n)}, "number": n} for n in range(40)]
    policy, chance, kills = Mixed(), random.Random(3), 0
    async with small_system() as system:
        await system.add_resource(environment(Environment(resource=Planning, description="Plan."), "plan"))
        await system.add_model(policy, capacity=1000)
        await system.add_agent(name="agent-0", slots=200)

        async def kill() -> None:
            nonlocal kills
            while True:
                await anyio.sleep(12 + 16 * chance.random())
                system.kill(f"agent-{kills}")
                kills += 1
                await system.add_agent(name=f"agent-{kills}", slots=200)

        async with (
            signal_batches(
                system.client, rows, want=WANT, repeats=REPEATS, environment="plan", **options
            ) as batches,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(kill)
            for _ in range(BATCHES):
                for group in await batches.next():
                    assert len(group.rewards) == REPEATS
                    assert set(group.rewards) == {0.0, 1.0}
                    assert not group.failures
                await anyio.sleep(5)  # the trainer's step; kills go on meanwhile
            tasks.cancel_scope.cancel()
            useful = batches.useful
            assert useful.failed == 0
            assert (useful.stopped > 0) == ("waves" in options)
            assert useful.flat > 0
    assert kills >= 2

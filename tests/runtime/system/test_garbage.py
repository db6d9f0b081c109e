"""What a rollout leaves behind: nothing that only the collector of cycles could free.

Workers have thousands of rollouts in flight, so their collector runs seldom, and what it alone frees grows
with every rollout.
"""

from __future__ import annotations

import gc
from collections import Counter

import anyio
import pytest
from gym_agents.step_loop import Agent as StepLoop
from gym_agents.tool_loop import Agent as ToolLoop
from gym_testing.background import hosting
from gym_testing.memory import MemoryBroker
from gym_testing.small_system import SmallSystem, rollout_spec, row
from gym_testing.virtual_clock import run
from runtime.workers.sample_environments import AGENTS, Thinker, environments

ROLLOUTS = 50


@pytest.mark.parametrize("name", sorted(AGENTS))
@pytest.mark.slow
def test_a_rollout_leaves_no_cycles(name: str) -> None:
    async def main() -> Counter[str]:
        broker = MemoryBroker()
        async with broker.connect("client") as bus, hosting() as tasks:
            system = SmallSystem(broker, bus, tasks)
            await system.add_resource(*environments().values())
            await system.add_model(Thinker())
            await system.add_agent({"tool_loop": ToolLoop(), "step_loop": StepLoop()})
            more = {"environment": name, "agent": AGENTS[name], "replayable": name != "once"}

            async def make(part: str) -> None:
                todo = [rollout_spec(row(), run=part, task=task, **more) for task in range(ROLLOUTS)]
                await system.make(*todo)
                await anyio.sleep(5)

            await make("warm")
            gc.collect()
            gc.disable()
            gc.set_debug(gc.DEBUG_SAVEALL)
            await make("measured")
            gc.collect()
            return Counter(type(thing).__qualname__ for thing in gc.garbage)

    try:
        left = run(main)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert left.total() < ROLLOUTS, f"per {ROLLOUTS} rollouts: {left.most_common(12)}"

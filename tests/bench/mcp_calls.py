"""Tools of an environment over MCP: ``python -m bench.mcp_calls`` in ``tests``.

Programs of `black_box` make calls one after the other, each over a kept connection. All of the runtime is in
this process, the programs are not, and what a rollout takes without calls is subtracted. It fails where an
answer is another rollout's, or where a call takes 2 ms of CPU or more.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import anyio
from agents.black_box.test_offered_tools import MANY_CALLS, Counting
from bench.measure import print_table
from gym_agents.black_box import Agent as BlackBox
from gym_runtime import Environment
from gym_runtime.messages.outcomes import Completed
from gym_testing.small_system import Engine, answer, environment, rollout_spec, row, small_system

CPU_MS = 2.0


async def played(rollouts: int, calls: int, folder: Path) -> tuple[float, list[list[float]]]:
    """Seconds of CPU; of each program how many answers were wrong, and its calls' median in seconds."""
    program = folder / f"{calls}.py"
    program.write_text(
        MANY_CALLS.replace("range(200)", f"range({calls})").replace("[100]", f"[{calls} // 2]")
    )
    fields: dict[str, Any] = {"command": (sys.executable, str(program))}
    counting = environment(Environment(resource=Counting, description=""), "counting")
    engine = Engine(answer("done"))
    async with small_system() as system:
        await system.add_resource(counting)
        await system.add_model(engine)
        await system.add_agent({"black_box": type("Agent", (BlackBox,), fields)()}, slots=rollouts)
        tools = [one.definition() for one in counting.resource.tools.values()]
        line = row(responses_create_params={"input": "count", "tools": tools})
        since_s = time.process_time()
        specs = [
            rollout_spec(line, agent="black_box", environment="counting", task=n) for n in range(rollouts)
        ]
        records = await system.make(*specs)
        used_s = time.process_time() - since_s
    assert {(one.outcome, one.tool_calls) for one in records} == {(Completed(), calls)}
    return used_s, [json.loads(json.loads(bytes(call.input[0]))["content"]) for call, _ in engine.calls.items]


async def measure(rollouts: int, calls: int) -> bool:
    rows: list[list[object]] = []
    fine = True
    with tempfile.TemporaryDirectory() as folder:
        await played(1, 1, Path(folder))  # imports
        for many in (1, rollouts):
            without_s, _ = await played(many, 1, Path(folder))
            used_s, found = await played(many, calls, Path(folder))
            wrong = sum(int(one[0]) for one in found)
            cpu_ms = 1000 * (used_s - without_s) / (many * (calls - 1))
            rows.append(
                [
                    many,
                    many * calls,
                    wrong,
                    f"{1000 * statistics.median(t for _, t in found):.2f}",
                    f"{cpu_ms:.2f}",
                ]
            )
            fine = fine and not wrong and cpu_ms < CPU_MS
    header = ["rollouts at a time", "calls", "wrong answers", "ms of a call (median)", "CPU ms of a call"]
    print_table("Tools over MCP", header, rows)
    return fine


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=16)
    parser.add_argument("--calls", type=int, default=200)
    given = parser.parse_args()
    sys.exit(not anyio.run(measure, given.rollouts, given.calls))

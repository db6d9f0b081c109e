"""Many runs one after another on one system, a third of them cancelled: nothing grows, and nothing is left.

Afterwards the broker holds the summaries of the runs and nothing else, the processes are the ones that were
there at the start, and none of them has grown.
"""

from __future__ import annotations

import anyio
import psutil
import pytest
from faults.faulty_system import stored_of_runs
from gym_runtime import connect
from gym_runtime.client import Client, RunInfo, make_pools
from gym_runtime.environment import catalogue, examples
from gym_runtime.files.rows import expand
from gym_runtime.messages.outcomes import Completed
from gym_runtime.system.spec import SystemSpec
from gym_runtime.system.system import running
from gym_runtime.workers.adapter import ModelSettings

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.anyio]

MIB = 1 << 20
ENVIRONMENTS = ("example_session_state_mgmt", "structured_outputs")
"""The second one is verified in sandboxed forks."""
ROLLOUTS = 24
WARM_RUNS = 50
GROWTH_BYTES = 4 * MIB
"""What a process may hold more after run 200 than after run 50."""
BROKER_GROWTH_BYTES = 32 * MIB
"""Its garbage comes and goes."""


def rows(environment: str) -> list[bytes]:
    found = [example.row for example in examples.read(catalogue.environment(environment))]
    return [found[number % len(found)] for number in range(ROLLOUTS)]


async def make(gym: Client, number: int) -> None:
    """One run; each third one is cancelled while it is made."""
    environment = ENVIRONMENTS[number % len(ENVIRONMENTS)]
    if number % 3 < 2:
        records = [record async for record in gym.rollouts(rows(environment), environment=environment)]
        assert [type(record.outcome) for record in records] == [Completed] * ROLLOUTS
        return
    run = f"cancelled-{number}"
    info = RunInfo(run=run, total=ROLLOUTS, environments=[environment], agents=["tool_loop"])
    await gym.driver.open_run(info)
    await gym.driver.publish(list(expand(rows(environment), run=run, environment=environment)))
    await gym.cancel(run)


def processes() -> dict[int, psutil.Process]:
    """All that the system has started, but not the forks that judge."""
    return {one.pid: one for one in psutil.Process().children(recursive=True)}


def held_bytes(present: dict[int, psutil.Process]) -> dict[int, int]:
    return {pid: one.memory_info().rss for pid, one in present.items()}


@pytest.mark.parametrize(
    "runs", [9, pytest.param(200, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])], ids=str
)
async def test_after_many_runs_nothing_is_left_and_no_process_has_grown(runs: int) -> None:
    for name in ENVIRONMENTS:
        catalogue.environment(name)
    model = ModelSettings(provider="scripted", name="message")
    pools = make_pools(list(ENVIRONMENTS), model, workers=1, concurrency=16)
    async with running(SystemSpec(pools=pools)) as system, connect(nats=system.url) as gym:
        workers = {event.pid for event in system.workers.values()}
        warm: dict[int, int] = {}
        for number in range(runs):
            await make(gym, number)
            if number + 1 == WARM_RUNS:
                warm = held_bytes(processes())
        present = processes()
        end = held_bytes(present)
        left: dict[str, int] = {}
        with anyio.move_on_after(10):
            while left := await stored_of_runs(gym.driver.bus):
                await anyio.sleep(0.05)
        assert not left
        known = await gym.runs()
        assert len(known) == runs
        assert {info.state for info in known} == {"finished", "cancelled"}
        assert workers == {event.pid for event in system.workers.values()}
        assert workers <= present.keys()
        grown = {
            " ".join(present[pid].cmdline()): f"{(end[pid] - held) / MIB:.1f} MiB"
            for pid, held in warm.items()
            if pid in end
            and end[pid] - held > (BROKER_GROWTH_BYTES if "nats" in present[pid].name() else GROWTH_BYTES)
        }
        assert not grown
        assert not warm or len(end) <= len(warm) + 2

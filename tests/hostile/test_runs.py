"""Many runs one after another on one system, a third of them cancelled: nothing grows, and nothing is left.

Afterwards the broker holds the summaries of the runs and nothing else, the processes are the ones that were
there at the start, and none of them has grown.
"""

from __future__ import annotations

from collections.abc import Collection

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
from gym_runtime.workers.conversations import CONVERSATION_IDLE_S
from gym_sandbox.pool import Pool
from time_limits import busy

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.anyio]

MIB = 1 << 20
ENVIRONMENTS = ("example_session_state_mgmt", "structured_outputs")
"""The second one is verified in sandboxed forks."""
ROLLOUTS = 24
WARM_RUNS, WARM_S = 50, CONVERSATION_IDLE_S + 5.0
"""So many runs, for so long: until workers drop as many conversations as come."""
GROWTH_BYTES = 4 * MIB
"""What a process may hold more after 200 runs than when they began."""
SANDBOXED_EACH = 3
"""Of a process that judges: itself, and two of bubblewrap."""
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


def processes(earlier: Collection[int] = ()) -> dict[int, psutil.Process]:
    """All that this process has started, but not the forks that judge, nor ``earlier`` ones."""
    children = psutil.Process().children(recursive=True)
    return {one.pid: one for one in children if one.pid not in earlier}


def is_sandboxed(process: psutil.Process) -> bool:
    try:
        return any(one.name() == "bwrap" for one in (process, *process.parents()))
    except psutil.NoSuchProcess:  # only sandboxes come and go
        return True


def held_bytes(present: dict[int, psutil.Process]) -> dict[int, int]:
    return {pid: one.memory_info().rss for pid, one in present.items()}


@pytest.mark.parametrize(
    ("runs", "measured"),
    [(9, False), pytest.param(200, True, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])],
    ids=["9", "200"],
)
async def test_after_many_runs_nothing_is_left_and_no_process_has_grown(runs: int, measured: bool) -> None:
    for name in ENVIRONMENTS:
        catalogue.environment(name)
    model = ModelSettings(provider="scripted", name="message")
    pools = make_pools(list(ENVIRONMENTS), model, workers=1, concurrency=16)
    earlier = set(processes())  # such as a template of another test's sandboxes
    async with running(SystemSpec(pools=pools)) as system, connect(nats=system.url) as gym:
        workers = {event.pid for event in system.workers.values()}
        warm: dict[int, int] = {}
        sandboxed_before: set[int] = set()
        first = 0
        if measured:
            began_s = anyio.current_time()
            while first < WARM_RUNS or anyio.current_time() < began_s + WARM_S:
                await make(gym, first)
                first += 1
            warm = held_bytes(processes(earlier))
            sandboxed_before = {pid for pid, one in processes(earlier).items() if is_sandboxed(one)}
        for number in range(first, first + runs):
            await make(gym, number)
        present = processes(earlier)
        end = held_bytes(present)
        left: dict[str, int] = {}
        with anyio.move_on_after(10 * busy()):
            while left := await stored_of_runs(gym.driver.bus):
                await anyio.sleep(0.05)
        assert not left
        known = await gym.runs()
        assert len(known) == first + runs
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
        sandboxed = [pid for pid, one in present.items() if is_sandboxed(one)]
        # A template of the environments that run programs, too.
        most = SANDBOXED_EACH * (Pool().slots + 3)
        # One that has just ended its work may still be there.
        with anyio.move_on_after(10 * busy()):
            while len([one for one in processes(earlier).values() if is_sandboxed(one)]) > most:
                await anyio.sleep(0.05)
        assert len([one for one in processes(earlier).values() if is_sandboxed(one)]) <= most
        assert not warm or present.keys() - sandboxed == warm.keys() - sandboxed_before

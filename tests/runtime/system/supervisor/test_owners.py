"""No process outlives its owner."""

from __future__ import annotations

import json
import os
import signal
import sys
import textwrap
from pathlib import Path

import anyio
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream
from gym_runtime.errors import UsageError
from gym_runtime.system.private_broker import Broker
from gym_runtime.system.system import launch, running
from gym_testing.background import settled
from runtime.system.supervisor.supervised import (
    alive,
    draining,
    gone,
    in_the_middle,
    is_empty,
    processes_of,
    spec,
)

pytestmark = [pytest.mark.slow, pytest.mark.anyio, pytest.mark.timeout(60)]


OWNER = """
    import json
    import anyio
    from gym_runtime.client import make_pools
    from gym_runtime.system.system import running
    from gym_runtime.system.spec import SystemSpec

    async def main():
        async with running(SystemSpec(pools=make_pools(["mcqa"], "scripted/echo"))) as system:
            pids = [event.pid for event in system.workers.values()]
            print(json.dumps([system.pid, system.broker_pid, *pids]), flush=True)
            await anyio.sleep_forever()

    anyio.run(main)
"""


async def test_when_the_owner_is_killed_everything_ends_within_seconds(temporary: Path) -> None:
    async with await anyio.open_process([sys.executable, "-c", textwrap.dedent(OWNER)]) as owner:
        assert owner.stdout is not None
        printed = BufferedByteReceiveStream(owner.stdout)  # a pipe gives a line in pieces as well
        pids = set(json.loads(await printed.receive_until(b"\n", 1_000)))
        assert len(alive(pids)) == 5
        owner.kill()
        await owner.wait()
        await gone(pids, within_s=8)
        await settled(lambda: is_empty(temporary))


async def test_when_the_supervisor_is_killed_everything_ends_within_seconds(temporary: Path) -> None:
    async with running(spec()) as system:
        pids = processes_of(system)
        os.kill(system.pid, signal.SIGKILL)
        await gone(pids - {system.pid}, within_s=8)
        with pytest.raises(UsageError, match="stopped without saying why"):
            await system.until("restarted")
    assert is_empty(temporary)


async def test_when_the_supervisor_is_killed_while_draining_everything_ends_within_seconds(
    broker: Broker,
) -> None:
    async with in_the_middle(broker, latency_s=600) as (system, gym):
        pids = processes_of(system)
        os.kill(system.pid, signal.SIGTERM)
        await draining(gym)
        # A worker may have asked something in a child, which has ended.
        assert {system.pid, *(event.pid for event in system.workers.values())} <= alive(pids)
        os.kill(system.pid, signal.SIGKILL)
        await gone(pids - {system.pid}, within_s=8)


async def test_a_kill_leaves_nothing(temporary: Path) -> None:
    system = launch(spec())
    await system.until("all_ready")
    pids = processes_of(system)
    system.kill()
    await gone(pids, within_s=5)
    assert is_empty(temporary)

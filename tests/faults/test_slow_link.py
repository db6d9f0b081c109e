"""A node behind a bad link: it is named, it gets less work and hoards none, and everything is made once."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import pytest
from bench.counter_rows import ENVIRONMENT, counter_rows
from gym_runtime import connect
from gym_runtime.client import RunInfo
from gym_runtime.files.rows import expand
from gym_runtime.messages import metric_names
from gym_runtime.messages.outcomes import Completed, RolloutRecord
from gym_runtime.rpc.members import Heartbeat
from gym_runtime.system.private_broker import Broker
from gym_runtime.system.spec import PoolSpec, SystemSpec
from gym_runtime.system.system import running
from gym_runtime.timing import TASK_ACK_WAIT_S
from gym_runtime.workers.adapter import ModelSettings
from gym_testing.proxy import Proxy, Slowness
from gym_view.live import Reading, view
from stubs import stub_engine
from time_limits import busy

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.anyio, pytest.mark.timeout(150)]

SLOTS = 12
ROLLOUTS = 192
BAD = Slowness(delay_s=0.3, jitter_s=0.1, loss=0.02)
"""A worker is asked and answers within its second, most of the time."""
PINGS = """import gym_runtime.timing
gym_runtime.timing.PING_INTERVAL_S = 1.2
"""
"""The far node pings more often than usual, so that the test is short."""
NODE = (
    PoolSpec(kind="agent", names=("tool_loop",), capacity=SLOTS),
    PoolSpec(kind="resource", names=(ENVIRONMENT,)),
)


def calls(worker: Heartbeat) -> int:
    """How many calls an environment worker has answered."""
    assert worker.figures is not None
    return worker.figures.distribution(metric_names.RESOURCE_DURATION, {}).count


@pytest.mark.soak
async def test_a_worker_behind_a_bad_link_is_named_gets_less_and_hoards_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(PINGS)
    broker = Broker(tmp_path / "broker")
    url = broker.start()
    where = urlsplit(url)
    assert where.hostname is not None
    assert where.port is not None
    proxy = Proxy(where.hostname, where.port)
    with stub_engine.running("--latency-s", "0.3") as engine:
        model = ModelSettings(provider="openai", name="stub", urls=(engine.url,))
        near = SystemSpec(pools=(*NODE, PoolSpec(kind="model", names=("policy",), model=model)), nats=(url,))
        try:
            async with proxy.listening() as port, running(near), connect(nats=url) as gym:
                monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
                there = {one.worker for one in (await gym.status()).workers}
                far_url = where._replace(netloc=where.netloc.replace(f":{where.port}", f":{port}")).geturl()
                async with running(SystemSpec(pools=NODE, nats=(far_url,))):

                    async def far() -> dict[str, Heartbeat]:
                        found = (await gym.status()).workers
                        return {one.kind: one for one in found if one.worker not in there}

                    loaded: dict[str, list[Heartbeat]] = {"agent": [], "resource": []}
                    watching = anyio.CancelScope()

                    async def watch() -> None:
                        """What both say of themselves; over this link some answers come too late."""
                        with watching:
                            while True:
                                for kind, one in (await far()).items():
                                    loaded[kind] += [one] if one.figures is not None else []

                    async def until_slow(expected: bool) -> set[str]:
                        """The kinds that the viewer shows as slow, once both workers have answered so."""
                        with anyio.fail_after(60 * busy()):
                            while True:
                                status = await gym.status()
                                found = [one for one in status.workers if one.worker not in there]
                                if len(found) == len(NODE) and {one.slow for one in found} == {expected}:
                                    shown = view(Reading(0.0, status)).workers
                                    return {one.kind for one in shown if one.state == "slow link"}
                                await anyio.sleep(0.2)

                    proxy.slowness = BAD
                    assert await until_slow(True) == {"agent", "resource"}
                    # What the agent worker asked for over the good link is used up or has expired by then.
                    await anyio.sleep(TASK_ACK_WAIT_S / 2 + 1.0)
                    specs = expand(counter_rows(ROLLOUTS), run="run", environment=ENVIRONMENT)
                    await gym.driver.open_run(RunInfo(run="run", total=ROLLOUTS))
                    await gym.driver.publish(specs)
                    records: list[RolloutRecord] = []
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(watch)
                        async for record in gym.collect("run"):
                            records.append(record)
                            if len(records) == ROLLOUTS - SLOTS:
                                watching.cancel()
                                proxy.slowness = Slowness()
                    assert not await until_slow(False)
        finally:
            broker.stop()
    assert len({record.task_index for record in records}) == len(records) == ROLLOUTS
    assert {type(record.outcome) for record in records} == {Completed}
    assert {record.attempt for record in records} == {1}
    held = max(one.in_use for one in loaded["agent"])
    assert 0 < held < SLOTS, "it holds as many as over a good link"
    assert calls(loaded["resource"][-1]) * 4 < sum(record.turns for record in records)

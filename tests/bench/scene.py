"""A running system to be measured: its broker, its workers, a client."""

from __future__ import annotations

import json
import os
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
from batch import members
from counter_rows import ENVIRONMENT, counter_rows
from gym_runtime.client import connect
from gym_runtime.client.client import Client
from gym_runtime.files.rows import expand
from gym_runtime.messages.outcomes import Completed, RolloutRecord
from gym_runtime.messages.stored_records import RunInfo
from gym_runtime.system.private_broker import Broker
from gym_runtime.system.spec import PoolSpec, SystemSpec
from gym_runtime.system.system import System, running
from gym_runtime.workers.adapter import ModelSettings
from measure import cpu_s

AGENT = "tool_loop"
MIB = 1024 * 1024


class Scene:
    """A running system: its broker, the processes of its workers, a client."""

    def __init__(self, folder: Path, broker: Broker, system: System, gym: Client) -> None:
        self.folder = folder
        self.broker = broker
        self.gym = gym
        self._processes: dict[str, list[psutil.Process]] = {}
        for name, pid in members(broker, system).items():
            self.watch(name, pid)
        self.watch("client", os.getpid())
        self._cpu: dict[str, float] = {}
        self._since_s = 0.0
        self.begin()

    def watch(self, name: str, *pids: int) -> None:
        """Measure processes under one name."""
        self._processes[name] = [psutil.Process(pid) for pid in pids]

    def begin(self) -> None:
        """Count from now on."""
        self._cpu = {name: cpu_s(processes) for name, processes in self._processes.items()}
        self._since_s = time.monotonic()

    def mib(self) -> dict[str, float]:
        """The resident memory of each name's processes."""
        return {
            name: sum(process.memory_info().rss for process in processes) / MIB
            for name, processes in self._processes.items()
        }

    def rows(self) -> list[list[object]]:
        """Each process, its share of a core since `begin`, and its memory now."""
        took_s = time.monotonic() - self._since_s
        memory = self.mib()
        return [
            [name, f"{(cpu_s(processes) - self._cpu[name]) / took_s:.0%}", f"{memory[name]:.0f}"]
            for name, processes in self._processes.items()
        ]


@asynccontextmanager
async def scene(*pools: PoolSpec) -> AsyncGenerator[Scene]:
    """A system of these workers on its own broker."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "broker"
        broker = Broker(store)
        try:
            spec = SystemSpec(pools=pools, nats=(broker.start(),))
            async with running(spec) as system, connect(nats=broker.url) as gym:
                yield Scene(store, broker, system, gym)
        finally:
            broker.stop()


def agents(slots: int, processes: int = 1) -> PoolSpec:
    return PoolSpec(kind="agent", names=(AGENT,), capacity=slots, processes=processes)


def environments(processes: int = 1) -> PoolSpec:
    return PoolSpec(kind="resource", names=(ENVIRONMENT,), processes=processes)


def models(latency_s: float = 0.0, processes: int = 1) -> PoolSpec:
    options = {"latency_s": latency_s}
    settings = ModelSettings(provider="scripted", name="tool-then-message", options=options)
    return PoolSpec(kind="model", names=("policy",), processes=processes, model=settings)


def check(records: list[RolloutRecord], count: int) -> None:
    """Every rollout was made once, at its first attempt."""
    outcomes = Counter(type(record.outcome).__name__ for record in records)
    assert outcomes == {Completed.__name__: count}, outcomes
    assert len({record.task_index for record in records}) == count
    assert {record.attempt for record in records} == {1}


async def published(gym: Client, count: int) -> None:
    """Publish a run of the name ``run``."""
    await gym.driver.open_run(RunInfo(run="run", total=count, agents=[AGENT]))
    await gym.driver.publish(expand(counter_rows(count), run="run", environment=ENVIRONMENT))


def redelivered(broker: Broker) -> int:
    """How many tasks in flight were delivered before, as the broker says."""
    with urllib.request.urlopen(f"{broker.monitor_url}/jsz?accounts=true&consumers=true") as answer:
        streams = json.load(answer)["account_details"][0]["stream_detail"]
    return sum(one["num_redelivered"] for stream in streams for one in stream.get("consumer_detail", []))

"""A real system under a schedule of faults: one broker, three proxies before it, eleven processes behind.

``gym-runtime run`` and its two workers of each kind reach the broker through the first proxy; an agent and a
resource worker of a system that stays are behind each of the two others. The driver itself has its own
connection, by which it knows the workers. What a killed client left is taken up when it is started again.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import msgspec
from faults.schedule import ENVIRONMENTS, ROLLOUTS, Injection, Schedule
from gym_runtime import connect
from gym_runtime.bus.interface import Bus
from gym_runtime.client import Client
from gym_runtime.environment import catalogue
from gym_runtime.files.rows import expand
from gym_runtime.messages.rollout_spec import encode_spec
from gym_runtime.rpc.members import fresh
from gym_runtime.system.private_broker import Broker
from gym_runtime.system.spec import PoolSpec, SystemSpec
from gym_runtime.system.system import System, launch
from gym_testing.proxy import Proxy
from ports import restartable_broker
from stubs.stub_engine import StubEngine

LATENCY_S = 0.1
TIMEOUT_S = 20
QUIET_S = 90.0
"""Longer than a session may live after its last call: its rollout's limit, the grace, and the sweep."""
STORED_S = 5.0
"""What is freed late, by a worker that was frozen or cut off when the run ended, is freed by then."""
DOUBLED = 5
POLL_S = 0.02


def rows() -> list[bytes]:
    """One row per rollout, of each environment in turn."""
    lines: list[bytes] = []
    for number in range(ROLLOUTS):
        environment = ENVIRONMENTS[number % len(ENVIRONMENTS)]
        params = {"input": [{"role": "user", "content": f"task {number}"}]}
        lines.append(
            msgspec.json.encode({"responses_create_params": params, "agent_ref": {"name": environment}})
        )
    return lines


class Command:
    """``gym-runtime run``, killed and resumed.

    Attributes:
        resumed: how often.
        settled: the tasks that had a result before the present part of the run.
    """

    def __init__(self, folder: Path, url: str, engine: StubEngine) -> None:
        self.output = folder / "out.jsonl"
        self.log = folder / "run.log"
        self.resumed = 0
        self.settled: set[int] = set()
        self._url = url
        source = folder / "rows.jsonl"
        source.write_bytes(b"".join(line + b"\n" for line in rows()))
        self._arguments = [
            *(sys.executable, "-m", "gym_runtime.cli.main", "run", *ENVIRONMENTS, "--input", str(source)),
            *("--output", str(self.output), "--model", "openai/stub", "--model-url", engine.url),
            *("--workers", "2", "--concurrency", "24", "--timeout", str(TIMEOUT_S)),
        ]
        self._process = self._started()

    def _started(self, *more: str) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [*self._arguments, *more],
                stdout=log,
                stderr=log,
                env={**os.environ, "GYM_NATS_URL": self._url},
            )

    async def run_id(self) -> str:
        """The run's latest part, once its command has come that far."""
        manifest = self.output.with_name("out_run.json")
        while not manifest.exists():
            await anyio.sleep(0.05)
        return json.loads(manifest.read_bytes())["run"]

    def lines(self, name: str = "out") -> list[bytes]:
        """The whole lines of one of the run's files."""
        path = self.output.with_name(f"{name}.jsonl")
        return path.read_bytes().split(b"\n")[:-1] if path.exists() else []

    @property
    def over(self) -> bool:
        return self._process.poll() is not None

    async def until(self, count: int) -> None:
        """Return when so many rollouts are on the disk, or the command has ended."""
        while len(self.lines()) + len(self.lines("out_failures")) < count and not self.over:
            await anyio.sleep(POLL_S)

    async def kill_and_resume(self) -> None:
        """End it as the kernel would, and start it again; it takes up what it left."""
        if self.over:
            return
        self._process.kill()
        await anyio.to_thread.run_sync(self._process.wait)
        self.resumed += 1
        lines = [*self.lines(), *self.lines("out_failures")]
        self.settled = {json.loads(line)["_ng_task_index"] for line in lines}
        self._process = self._started("--resume")

    async def status(self) -> int:
        """Its exit status, once it has ended."""
        return await anyio.to_thread.run_sync(self._process.wait, abandon_on_cancel=True)

    def end(self) -> None:
        if not self.over:
            self._process.kill()
            self._process.wait()


class Aftermath(msgspec.Struct, frozen=True, kw_only=True):
    """What a schedule left behind, before the system was stopped.

    Attributes:
        rows, failures: the lines of the run's files, decoded.
        sessions: how many are open, by worker of those that stay; None if these cannot be seen.
        stored: the subjects that the broker has, besides the summaries of runs, and how often.
    """

    status: int
    resumed: int
    run_id: str
    rows: list[dict[str, Any]]
    failures: list[dict[str, Any]]
    sessions: dict[str, int] | None
    stored: dict[str, int]
    log: str


async def stored_of_runs(bus: Bus) -> dict[str, int]:
    """What the broker has of runs besides their summaries: subjects, and how many records of each."""
    found: dict[str, int] = {}
    for kind in ("task", "rollout", "journal", "blob", "runs"):
        found |= await bus.counts(f"{kind}.>")
    return {
        subject: count
        for subject, count in found.items()
        if count > 1 or not (subject.startswith("runs.") and subject.count(".") == 1)
    }


class FaultySystem:
    """A system of several processes into which faults are injected."""

    def __init__(self, broker: Broker, proxies: Sequence[Proxy], gym: Client, command: Command) -> None:
        self._broker = broker
        self._proxies = proxies
        self._gym = gym
        self._command = command

    async def inject_all(self, schedule: Schedule) -> None:
        """Inject all faults; returns when the last frozen worker and the last proxy have recovered."""
        async with anyio.create_task_group() as recoveries:
            for injection in schedule.injections:
                await self._command.until(injection.at_rows)
                if injection.action == "client":
                    await self._command.kill_and_resume()
                elif injection.action == "double":
                    await self._double()
                elif injection.action == "broker":
                    await self._kill_broker(injection)
                else:
                    recoveries.start_soon(self._inject, injection)

    async def _inject(self, injection: Injection) -> None:
        if injection.action == "cut":
            proxy = self._proxies[injection.number % len(self._proxies)]
            proxy.cut()
            await anyio.sleep(injection.lasts_s)
            proxy.mend()
            return
        workers = sorted(
            (worker for worker in await self._gym.workers() if worker.kind == injection.kind),
            key=lambda worker: worker.started_s,
        )
        if not workers:
            return
        pid = workers[injection.number % len(workers)].pid
        with contextlib.suppress(ProcessLookupError):
            if injection.action == "kill":
                os.kill(pid, signal.SIGKILL)
                return
            os.kill(pid, signal.SIGSTOP)
            await anyio.sleep(injection.lasts_s)
            os.kill(pid, signal.SIGCONT)

    async def _kill_broker(self, injection: Injection) -> None:
        os.kill(self._broker.pid, signal.SIGKILL)
        await anyio.sleep(injection.lasts_s)
        self._broker.restart()

    async def _double(self) -> None:
        """Some of what this part of the run has published, once more."""
        run = await self._command.run_id()
        for name in ENVIRONMENTS:
            catalogue.environment(name)
        tasks = [
            task
            for task in expand(rows(), run=run, model_pool=run, timeout_s=TIMEOUT_S)
            if task.task_index not in self._command.settled
        ]
        for task in tasks[:: max(1, len(tasks) // DOUBLED)]:
            await self._gym.driver.bus.enqueue(
                f"task.{task.agent}.{task.environment}.{run}", encode_spec(task)
            )

    async def settle(self) -> Aftermath:
        """Wait for the command's end, and for what may take a moment after it."""
        status = await self._command.status()
        sessions: dict[str, int] | None = None
        stored: dict[str, int] = {}
        with anyio.move_on_after(QUIET_S):
            while (sessions := await self._sessions()) != {}:
                await anyio.sleep(0.2)
            with anyio.move_on_after(STORED_S):
                while stored := await stored_of_runs(self._gym.driver.bus):
                    await anyio.sleep(0.2)
        return Aftermath(
            status=status,
            resumed=self._command.resumed,
            run_id=await self._command.run_id(),
            rows=[json.loads(line) for line in self._command.lines()],
            failures=[json.loads(line) for line in self._command.lines("out_failures")],
            sessions=sessions,
            stored=stored,
            log=self._command.log.read_text(errors="replace"),
        )

    async def _sessions(self) -> dict[str, int] | None:
        """Those of the workers that stay; None while one of these does not say how it is."""
        # Each is asked: a list that an agent worker keeps may be older, on a busy machine by seconds.
        found = await fresh(self._gym.driver.bus, await self._gym.workers())
        workers = [worker for worker in found if worker.kind == "resource"]
        if len(workers) < len(self._proxies) - 1:
            return None
        return {f"{worker.worker} ({worker.pid})": worker.in_use for worker in workers if worker.in_use}


@asynccontextmanager
async def faulty_system(folder: Path, engine: StubEngine) -> AsyncGenerator[FaultySystem]:
    """Everything is up, and the command has begun; all of it is stopped at the end."""
    broker = restartable_broker(folder / "broker")
    address = urlsplit(broker.start())
    async with AsyncExitStack() as stack:
        stack.callback(broker.stop)
        user = address.netloc.rpartition("@")[0]
        proxies = [Proxy(address.hostname or "", address.port or 0) for _ in range(3)]
        ports = [await stack.enter_async_context(proxy.listening()) for proxy in proxies]
        urls = [f"nats://{user}@127.0.0.1:{port}" for port in ports]
        others = [launch(SystemSpec(pools=_pools(), nats=(url,), drain_s=10.0)) for url in urls[1:]]
        stack.push_async_callback(_stop, others)
        for other in others:
            await other.until("all_ready")
        gym = await stack.enter_async_context(connect(nats=broker.url))
        command = Command(folder, urls[0], engine)
        stack.callback(command.end)
        yield FaultySystem(broker, proxies, gym, command)


def _pools() -> tuple[PoolSpec, ...]:
    agents = ("single_turn", "step_loop", "tool_loop")
    return (
        PoolSpec(kind="agent", names=agents, capacity=9),
        PoolSpec(kind="resource", names=ENVIRONMENTS),
    )


async def _stop(systems: Sequence[System]) -> None:
    with anyio.CancelScope(shield=True):
        for system in systems:
            await system.stop()

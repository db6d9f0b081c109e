"""A system of one's own: what it says, what it restarts, when it gives up, and that nothing outlives it."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import sys
import tempfile
import textwrap
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import psutil
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream
from gym_runtime import connect
from gym_runtime.client import Client, RunInfo, make_pools
from gym_runtime.errors import UsageError
from gym_runtime.files.rows import expand
from gym_runtime.messages.outcomes import Completed
from gym_runtime.system.private_broker import Broker
from gym_runtime.system.slot import MAX_FALSE_STARTS
from gym_runtime.system.spec import Event, PoolSpec, SystemSpec
from gym_runtime.system.system import System, launch, running
from gym_runtime.testing.background import settled
from gym_runtime.timing import DRAIN_GIVE_BACK_S
from gym_runtime.workers.adapter import ModelSettings

pytestmark = [pytest.mark.slow, pytest.mark.anyio, pytest.mark.timeout(60)]

NAME = "example_session_state_mgmt"
ROW = {
    "responses_create_params": {
        "input": "count",
        "tools": [
            {
                "type": "function",
                "name": "increment_counter",
                "parameters": {"type": "object", "properties": {"count": {"type": "integer"}}},
            }
        ],
    },
    "initial_count": 3,
    "expected_count": 4,
}


def model(latency_s: float = 0.0) -> ModelSettings:
    return ModelSettings(provider="scripted", name="tool-then-message", options={"latency_s": latency_s})


def spec(*, latency_s: float = 0.0, workers: int = 1, **more: Any) -> SystemSpec:
    pools = make_pools([NAME], model(latency_s), workers=workers, concurrency=16)
    return SystemSpec(pools=pools, **more)


def rows(count: int) -> list[dict[str, Any]]:
    return [{**ROW, "number": number} for number in range(count)]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker that outlives the systems of a test."""
    broker = Broker(tmp_path / "broker")
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where systems put what they store for a while."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def is_empty(folder: Path) -> bool:
    return not any(folder.iterdir())


def pid_of(system: System, kind: str) -> int:
    return next(event.pid for event in system.workers.values() if event.kind == kind)


def processes_of(system: System) -> set[int]:
    return {system.pid, *(child.pid for child in psutil.Process(system.pid).children(recursive=True))}


def alive(pids: set[int]) -> set[int]:
    return {pid for pid in pids if psutil.pid_exists(pid) and status(pid) != psutil.STATUS_ZOMBIE}


def status(pid: int) -> str:
    try:
        return psutil.Process(pid).status()
    except psutil.NoSuchProcess:
        return psutil.STATUS_ZOMBIE


async def gone(pids: set[int], within_s: float) -> None:
    """Return once all of these processes have ended."""
    with anyio.fail_after(within_s):
        while alive(pids):
            await anyio.sleep(0.02)


async def works(system: System, count: int = 5) -> None:
    async with connect(nats=system.url) as gym:
        records = [record async for record in gym.rollouts(rows(count), environment=NAME)]
    assert [record.outcome for record in records] == [Completed()] * count


# -- what it says -------------------------------------------------------------------------------------


async def test_it_says_where_the_broker_is_and_who_is_ready_and_leaves_nothing_behind(
    temporary: Path,
) -> None:
    said: list[Event] = []
    async with running(spec(workers=2), said.append) as system:
        pids = processes_of(system)
        assert [event.event for event in said] == ["broker", *["ready"] * 6, "all_ready"]
        assert said[0].url == system.url
        # A resource worker also asks in a child whether there is a sandbox.
        assert {event.pid for event in said[1:-1]} | {system.pid, said[0].pid} <= pids
        kinds = Counter(event.kind for event in system.workers.values())
        assert kinds == {"agent": 2, "resource": 2, "model": 2}
        assert not is_empty(temporary)
        await works(system)
    assert not alive(pids)
    assert is_empty(temporary)


async def test_ps_tells_the_processes_apart() -> None:
    async with running(spec()) as system:
        titles = {
            kind: " ".join(psutil.Process(pid_of(system, kind)).cmdline())
            for kind in ("agent", "resource", "model")
        }
        assert titles["agent"].startswith("gym-runtime agent tool_loop (agent-")
        assert titles["resource"].startswith(f"gym-runtime resource {NAME} (resource-")
        assert titles["model"].startswith("gym-runtime model policy (model-")
        assert " ".join(psutil.Process(system.pid).cmdline()).strip() == "gym-runtime supervisor"


async def test_with_a_broker_of_somebody_elses_it_starts_and_stops_none(broker: Broker) -> None:
    async with running(spec(nats=(broker.url,))) as system:
        assert (system.url, system.broker_pid) == (broker.url, 0)
        await works(system)
    assert broker.poll() is None


async def test_several_systems_share_a_broker_by_their_prefixes(broker: Broker) -> None:
    async with (
        running(spec(nats=(broker.url,), prefix="one")),
        connect(nats=broker.url, prefix="one") as one,
        connect(nats=broker.url, prefix="two") as two,
    ):
        assert len(await one.workers()) == 3
        assert await two.workers() == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets one make a pipe small")
async def test_an_owner_who_does_not_listen_holds_nothing_up() -> None:
    system = launch(SystemSpec(pools=(PoolSpec(kind="resource", names=("mcqa",), processes=60),)))
    try:
        assert system._process.stdout is not None  # pyright: ignore[reportPrivateUsage]
        fcntl.fcntl(system._process.stdout, fcntl.F_SETPIPE_SZ, 4096)  # pyright: ignore[reportPrivateUsage]
        broker = await system.until("broker")
        async with connect(nats=broker.url) as gym:
            with anyio.fail_after(40):
                while len(await gym.workers()) < 60:
                    await anyio.sleep(0.1)
        os.kill(system.pid, signal.SIGTERM)
        await gone({system.pid}, within_s=15)
    finally:
        system.kill()


# -- what it restarts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["agent", "resource", "model"])
async def test_a_worker_that_is_killed_is_started_again_and_works(kind: str) -> None:
    async with running(spec()) as system:
        pid = pid_of(system, kind)
        os.kill(pid, signal.SIGKILL)
        with anyio.fail_after(10):
            restarted = await system.until("restarted")
            ready = await system.until("ready")
        assert (restarted.kind, restarted.pid) == (kind, pid)
        assert restarted.reason == f"{kind} worker {pid} was killed by SIGKILL"
        assert ready.kind == kind
        assert pid_of(system, kind) == ready.pid != pid
        assert len(system.workers) == 3
        await works(system)


async def test_the_broker_is_started_again_where_it_was_with_what_it_had() -> None:
    async with running(spec()) as system, connect(nats=system.url) as gym:
        pid = system.broker_pid
        records = gym.rollouts(rows(200), environment=NAME)
        await anext(records)
        os.kill(pid, signal.SIGKILL)
        with anyio.fail_after(10):
            restarted = await system.until("restarted")
        assert (restarted.kind, restarted.reason) == ("broker", "the broker died")
        assert system.broker_pid not in (0, pid)
        with anyio.fail_after(30):
            assert len([record async for record in records]) == 199


CRASHING = """
import os
from gym_runtime import Environment, Reply, Task, Verdict
{crash}

def verify(task: Task, reply: Reply) -> Verdict:
    return Verdict(1.0)

environment = Environment(resource=verify, description="crashes")
"""


async def test_a_worker_that_never_gets_ready_is_given_up_soon(tmp_path: Path) -> None:
    module = tmp_path / "crashing.py"
    module.write_text(CRASHING.format(crash="os._exit(7)"))
    said: list[Event] = []
    pools = (PoolSpec(kind="resource", names=(str(module),)),)
    with anyio.fail_after(15), pytest.raises(UsageError, match="status 7; it failed 5 times to get ready"):
        async with running(SystemSpec(pools=pools), said.append):
            pass
    assert [event.event for event in said].count("restarted") == MAX_FALSE_STARTS - 1


# -- when it gives up ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pool", "message"),
    [
        (PoolSpec(kind="resource", names=("mcqua",)), "there is no environment 'mcqua'; did you mean 'mcqa'"),
        (
            PoolSpec(kind="agent", names=("tool_lop",)),
            "there is no agent 'tool_lop'; did you mean 'tool_loop'",
        ),
        (PoolSpec(kind="model", names=("policy",)), "does not say which model; give --model PROVIDER/NAME"),
        (
            PoolSpec(kind="model", names=("policy",), model=ModelSettings.parse("scripted/ecko")),
            "there is no script 'ecko'; did you mean 'echo'",
        ),
        (
            PoolSpec(kind="model", names=("policy",), model=ModelSettings.parse("opnai/x")),
            "there is no model 'opnai'; did you mean 'openai'",
        ),
    ],
)
async def test_a_worker_that_says_why_it_cannot_start_stops_everything_with_that_reason(
    pool: PoolSpec, message: str, temporary: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    others = make_pools([NAME], model())
    with anyio.fail_after(10), pytest.raises(UsageError, match=message):
        async with running(SystemSpec(pools=(*others, pool))):
            pass
    assert is_empty(temporary)
    assert "Traceback" not in capfd.readouterr().err


ADAPTER = """
class Adapter:
    def __init__(self{settings}): ...
    async def {enter}(self): ...
    async def __aexit__(self, *exception): ...
"""
UNTYPED = """
from gym_runtime import Environment, Verdict
def verify(task, reply): return Verdict(1.0)
environment = Environment(resource=verify, description="")
"""


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("model", "class Adaptor: ...", r"^shout\.py has no class 'Adapter'$"),
        (
            "model",
            ADAPTER.format(settings="", enter="__aenter__"),
            r"shout.py: its class 'Adapter' must take __init__\(self, ModelSettings\): too many",
        ),
        (
            "model",
            ADAPTER.format(settings=", settings", enter="enter"),
            "shout.py: its class 'Adapter' needs the methods __aenter__ and __aexit__, both async",
        ),
        ("agent", "class Loop: ...", r"^shout\.py has no class 'Agent'$"),
        (
            "agent",
            "class Agent:\n    def __init__(self, settings): ...",
            r"must take __init__\(self\): missing a required argument: 'settings'",
        ),
        ("resource", UNTYPED, r"shout.py:3: verify's first parameter must be annotated with a subclass of"),
    ],
)
async def test_a_module_that_lacks_what_it_is_for_is_one_line_at_once(
    kind: Any, text: str, message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    module = tmp_path / "shout.py"
    module.write_text(text)
    settings = ModelSettings(provider=str(module), name="x") if kind == "model" else None
    pool = PoolSpec(kind=kind, names=("policy" if settings else str(module),), model=settings)
    said: list[Event] = []
    with anyio.fail_after(10), pytest.raises(UsageError, match=message) as caught:
        async with running(SystemSpec(pools=(pool,)), said.append):
            pass
    assert "\n" not in str(caught.value)
    assert "restarted" not in [event.event for event in said]
    assert "Traceback" not in capfd.readouterr().err


async def test_a_broker_that_is_not_there_is_one_line_within_seconds(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with anyio.fail_after(8), pytest.raises(UsageError) as raised:
        async with running(spec(nats=("nats://127.0.0.1:1",))):
            pass
    assert "127.0.0.1:1" in raised.value.message
    assert "\n" not in raised.value.message
    assert "Traceback" not in capfd.readouterr().err


async def test_a_specification_that_cannot_be_read_is_one_line() -> None:
    command = [sys.executable, "-m", "gym_runtime.system.supervisor"]
    process = await anyio.run_process(command, input=b'{"pool": []}\n', check=False)
    assert process.returncode == 2
    assert b"the system's description cannot be read" in process.stdout
    assert b"pool" in process.stdout


# -- stopping -----------------------------------------------------------------------------------------


@asynccontextmanager
async def in_the_middle(broker: Broker, latency_s: float) -> AsyncGenerator[tuple[System, Client]]:
    """A system on another's broker in which 16 of 40 rollouts are in flight."""
    system = launch(spec(nats=(broker.url,), latency_s=latency_s))
    try:
        await system.until("all_ready")
        async with connect(nats=broker.url) as gym:
            lines = [msgspec.json.encode(row) for row in rows(40)]
            await gym.open_run(RunInfo(run="run", total=40))
            await gym.publish(expand(lines, run="run", environment=NAME))
            with anyio.fail_after(10):
                while (await gym.bus.depth("agent-tool_loop")).in_flight < 16:
                    await anyio.sleep(0.02)
            yield system, gym
    finally:
        system.kill()


async def test_draining_finishes_what_is_in_flight_and_leaves_the_rest_on_the_queue(broker: Broker) -> None:
    async with in_the_middle(broker, latency_s=1.0) as (system, gym):
        with anyio.fail_after(15):
            await system.stop()
        assert len(await gym.bus.counts("rollout.run.>")) == 16
        assert (await gym.bus.depth("agent-tool_loop")).waiting == 24
        assert await gym.workers() == []


async def test_stopping_without_patience_gives_everything_back_at_once(broker: Broker) -> None:
    async with in_the_middle(broker, latency_s=600) as (system, gym):
        with anyio.fail_after(6):
            await system.stop(drain=False)
        assert await gym.bus.counts("rollout.run.>") == {}
        assert await gym.workers() == []
        async with running(spec(nats=(broker.url,))):
            with anyio.fail_after(10):
                assert len([record async for record in gym.collect("run")]) == 40


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_to_the_supervisor_drains(broker: Broker, number: signal.Signals) -> None:
    async with in_the_middle(broker, latency_s=1.0) as (system, gym):
        os.kill(system.pid, number)
        with anyio.fail_after(15):
            await system.until("stopped")
        assert len(await gym.bus.counts("rollout.run.>")) == 16


async def test_a_signal_to_every_process_drains_however_often_it_comes(broker: Broker) -> None:
    async with in_the_middle(broker, latency_s=1.0) as (system, gym):
        pids = sorted(processes_of(system) - {system.pid})
        for pid in (*pids, system.pid, *pids):
            os.kill(pid, signal.SIGTERM)
        with anyio.fail_after(15):
            await system.until("stopped")
        # Their second turns asked a model and an environment that had been signalled too.
        assert len(await gym.bus.counts("rollout.run.>")) == 16
        assert (await gym.bus.depth("agent-tool_loop")).waiting == 24


async def test_a_signal_to_every_process_and_the_broker_loses_no_result(tmp_path: Path) -> None:
    state = tmp_path / "state"
    system = launch(spec(latency_s=1.0, state_dir=str(state)))
    try:
        await system.until("all_ready")
        async with connect(nats=system.url) as gym:
            await gym.open_run(RunInfo(run="run", total=10))
            await gym.publish(
                expand([msgspec.json.encode(row) for row in rows(10)], run="run", environment=NAME)
            )
            with anyio.fail_after(10):
                while (await gym.bus.depth("agent-tool_loop")).in_flight < 10:
                    await anyio.sleep(0.02)
        for pid in processes_of(system):
            os.kill(pid, signal.SIGTERM)
        with anyio.fail_after(20):
            await system.until("stopped")
    finally:
        system.kill()
    broker = Broker(state)
    try:
        async with connect(nats=broker.start()) as gym:
            assert len(await gym.bus.counts("rollout.run.>")) == 10
    finally:
        broker.stop()


async def test_what_takes_longer_than_the_limit_goes_back_within_the_grace_of_platforms(
    broker: Broker,
) -> None:
    system = launch(spec(nats=(broker.url,), latency_s=600, drain_s=1.0))
    try:
        await system.until("all_ready")
        async with connect(nats=broker.url) as gym:
            await gym.open_run(RunInfo(run="run", total=5))
            await gym.publish(
                expand([msgspec.json.encode(row) for row in rows(5)], run="run", environment=NAME)
            )
            with anyio.fail_after(10):
                while await busiest(gym, "model") < 5:
                    await anyio.sleep(0.05)
            os.kill(system.pid, signal.SIGTERM)
            with anyio.fail_after(1.0 + DRAIN_GIVE_BACK_S):
                await system.until("stopped")
            assert await gym.workers() == []
            assert (await gym.bus.depth("agent-tool_loop")).in_flight + (
                await gym.bus.depth("agent-tool_loop")
            ).waiting == 5
    finally:
        system.kill()


async def test_workers_that_are_asked_to_leave_are_not_replaced_and_the_last_one_ends_the_system(
    broker: Broker,
) -> None:
    said: list[Event] = []
    async with running(spec(nats=(broker.url,), workers=2)) as system, connect(nats=broker.url) as gym:
        first, second = (event.worker for event in system.workers.values() if event.kind == "agent")
        asked = await gym.drain(first)
        assert [(worker.worker, answer.in_flight) for worker, answer in asked] == [(first, 0)]
        with anyio.fail_after(10):
            assert (await system.until("drained", said.append)).worker == first
        await works(system)
        assert {record.worker for record in await gym.workers() if record.kind == "agent"} == {second}
        with pytest.raises(UsageError, match="worker, pool or host 'agnet'; did you mean 'agent'"):
            await gym.drain("agnet")
        await gym.drain(socket.gethostname())
        with anyio.fail_after(10):
            await system.until("stopped", said.append)
    assert "restarted" not in [event.event for event in said]


async def test_a_signal_to_one_worker_has_it_leave(broker: Broker) -> None:
    async with running(spec(nats=(broker.url,), workers=2)) as system:
        pid = pid_of(system, "resource")
        os.kill(pid, signal.SIGTERM)
        with anyio.fail_after(10):
            assert (await system.until("drained")).pid == pid
        await works(system)


async def draining(gym: Client) -> None:
    """Return once a worker says that it drains."""
    with anyio.fail_after(10):
        while all(not worker.draining for worker in await gym.workers()):
            await anyio.sleep(0.05)


async def busiest(gym: Client, kind: str) -> int:
    return max((worker.in_use for worker in await gym.workers() if worker.kind == kind), default=0)


@pytest.mark.parametrize("kind", ["resource", pytest.param("model", marks=pytest.mark.soak)])
async def test_what_a_killed_agent_has_left_at_a_worker_does_not_delay_the_end(
    broker: Broker, kind: str
) -> None:
    # A resource worker holds sessions from the first answer on, a model worker calls at once.
    async with in_the_middle(broker, latency_s=3 if kind == "resource" else 600) as (system, gym):
        with anyio.fail_after(20):
            while await busiest(gym, kind) < 16:
                await anyio.sleep(0.05)
        os.kill(pid_of(system, "agent"), signal.SIGKILL)
        with anyio.fail_after(10):
            await system.until("restarted")
            await system.until("ready")
            await gym.cancel("run")
        with anyio.fail_after(10):
            await system.stop()


async def test_when_the_owner_gives_up_in_the_middle_of_draining_it_ends_soon(broker: Broker) -> None:
    async with in_the_middle(broker, latency_s=600) as (system, gym):
        pids = processes_of(system)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(system.stop)
            await draining(gym)
            assert alive(pids)
            system._process.stdin.close()  # type: ignore[union-attr]  # as the owner's death does
            await gone(pids - {system.pid}, within_s=6)


# -- nothing outlives its owner -------------------------------------------------------------------------

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
        assert alive(pids) == pids
        os.kill(system.pid, signal.SIGKILL)
        await gone(pids - {system.pid}, within_s=8)


async def test_a_kill_leaves_nothing(temporary: Path) -> None:
    system = launch(spec())
    await system.until("all_ready")
    pids = processes_of(system)
    system.kill()
    await gone(pids, within_s=5)
    assert is_empty(temporary)

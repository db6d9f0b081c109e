"""A broker that lives and answers, and whose streams refuse after a failed write until it starts again."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, cast

import anyio
import msgspec
import pytest
from faults.broker.broker_runs import ENVIRONMENT, ROLLOUTS, Command, break_disk, server
from faults.broker.broker_runs import row as task
from gym_runtime import Client, Environment, Reply, Task, Verdict, connect
from gym_runtime.bus import nats, streams
from gym_runtime.client import make_pools
from gym_runtime.errors import BrokerError
from gym_runtime.messages.calls import ModelAnswer, ModelCall
from gym_runtime.messages.metric_names import REFUSED_STORES
from gym_runtime.system.private_broker import Broker
from gym_runtime.system.spec import SystemSpec
from gym_runtime.system.system import running
from gym_runtime.workers.adapter import CallContext, ModelSettings
from gym_testing.background import hosting, settled
from gym_testing.memory import MemoryBroker
from gym_testing.small_system import (
    Engine,
    SmallSystem,
    answer,
    environment,
    rollout_spec,
    row,
)
from gym_view.limit import limit
from gym_view.live import Reading, view
from gym_view.metrics.gathering import SystemFigures
from runtime.cli.started import SCRIPT
from time_limits import busy

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.anyio, pytest.mark.timeout(180)]

REMEDY = "then repeat the command; 'run' goes on with --resume"
SLOTS = 4
TASKS = 12


def complaints(command: Command) -> list[str]:
    assert "Traceback" not in command.log
    return [line for line in command.log.splitlines() if line.startswith("gym-runtime: ")]


@pytest.mark.soak
async def test_a_run_goes_on_when_its_own_broker_has_space_again(command: Command, tmp_path: Path) -> None:
    state = tmp_path / "state"
    command.start("--state-dir", str(state))
    await command.until(50)
    (ports,) = (state / "ports").glob("*.ports")
    break_disk(int(ports.stem.rpartition("_")[2]))
    await command.completes()
    assert "the broker stored nothing (" in command.log
    assert "file too large) and has space again" in " ".join(command.log.split())


async def test_a_run_stops_with_one_line_and_resume_completes_it(command: Command, tmp_path: Path) -> None:
    # Nothing restarts this broker.
    config = 'listen: "127.0.0.1:-1"'
    with server(tmp_path / "server", config) as (url, _, pid):
        command.start(url=url)
        await command.until(50)
        break_disk(pid)
        with anyio.fail_after(90 * busy()):
            assert await command.status() == 1, command.log
    (complaint,) = complaints(command)
    assert REMEDY in complaint
    assert 0 < len(command.rows()) < ROLLOUTS
    with server(tmp_path / "server", config) as (url, _, _):
        command.start("--resume", url=url)
        await command.completes()


@pytest.mark.soak
async def test_a_client_that_publishes_collects_or_asks_for_rollouts_gets_the_error(
    tmp_path: Path,
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_bytes(b"\n".join(msgspec.json.encode(task(number)) for number in range(ROLLOUTS)))
    said: list[str] = []
    model = ModelSettings(provider="scripted", name="message", options={"latency_s": 0.3})

    async def command(*arguments: str) -> None:
        done = await anyio.run_process([SCRIPT, *arguments, "--nats", url], check=False)
        assert done.returncode in (1, 2)
        said.append(done.stderr.decode().splitlines()[-1])

    with server(tmp_path / "server", 'listen: "127.0.0.1:-1"') as (url, _, pid):
        pools = make_pools([ENVIRONMENT], model, concurrency=8)
        async with running(SystemSpec(pools=pools, nats=(url,), drain_s=0.1)), connect(url) as gym:
            published = await gym.publish(map(task, range(ROLLOUTS)))
            async with aclosing(gym.rollouts(map(task, count()), environment=ENVIRONMENT)) as records:
                await anext(records)
                break_disk(pid)
                with anyio.fail_after(90 * busy()):
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(command, "publish", str(rows))
                        tasks.start_soon(command, "collect", published.run, "-o", str(tmp_path / "out.jsonl"))
                        with pytest.raises(BrokerError) as caught:
                            async for _ in records:
                                pass
    assert [REMEDY in one for one in (*said, caught.value.message)] == [True] * 3, said


async def test_a_publish_that_fills_the_broker_leaves_nothing_of_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "PATIENCE_S", 0.5)
    many = (task(number, 1_000) for number in range(3_000))
    full = "max_file_store: 2MB"
    with server(tmp_path / "server", 'listen: "127.0.0.1:-1"', disk=full) as (url, _, _):
        async with connect(url) as gym:
            with pytest.raises(BrokerError, match="insufficient resources"):
                await gym.publish(many)
            # It printed no id by which it could be cancelled.
            assert await gym.driver.bus.counts("task.>") == {}
            assert [run.state for run in await gym.runs()] == ["cancelled"]
            await gym.publish([task(0)])


class OfWorkers:
    """A broker as `SmallSystem` connects its workers to it."""

    def __init__(self, url: str) -> None:
        self._url = url

    def connect(self, name: str) -> Any:
        return nats.connect(self._url, name=name, role="agent")


@asynccontextmanager
async def system_at(broker: Broker) -> AsyncGenerator[SmallSystem]:
    async def verify(task: Task, reply: Reply) -> Verdict:
        return Verdict(1.0)

    of_workers = cast("MemoryBroker", OfWorkers(broker.url))
    async with nats.connect(broker.url) as bus, hosting() as tasks:
        system = SmallSystem(of_workers, cast("Any", bus), tasks)
        definition = Environment(resource=verify, description="Any reply is right.")
        await system.add_resource(environment(definition))
        yield system


class Breaking(Engine):
    """An engine at whose first answer the broker's disk is full."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(answer("done"))
        self._broker = broker

    async def respond(self, call: ModelCall, context: CallContext) -> ModelAnswer:
        if not self.asked_s:
            break_disk(self._broker.pid)
        return await super().respond(call, context)


@pytest.mark.soak
async def test_the_model_is_asked_once_for_each_turn_that_cannot_be_journaled(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "PATIENCE_S", 0.5)
    monkeypatch.setattr(streams, "STORE_ANSWER_S", 0.2)
    engine = Breaking(broker)
    async with system_at(broker) as system:
        await system.add_model(engine)
        await system.enqueue(*(rollout_spec(row(), task=number) for number in range(TASKS)))
        await system.add_agent(slots=SLOTS)
        await engine.calls.until(1)
        # A client has less patience than a worker: by the end of these a worker's would be over, too.
        for _ in range(8):
            with pytest.raises(BrokerError):
                await system.bus.append("journal.r.0.0.0", b"")
        assert len(engine.asked_s) <= SLOTS
        broker.restart()
        records = await system.records(TASKS)
    assert [record.reward for record in records] == [1.0] * TASKS
    assert len(engine.asked_s) == TASKS


async def test_a_worker_waits_with_what_it_stores_and_says_so(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "STORE_ANSWER_S", 0.2)
    async with nats.connect(broker.url, role="agent") as bus, anyio.create_task_group() as tasks:
        break_disk(broker.pid)
        tasks.start_soon(bus.append, "journal.r.0.0.0", b"turn")
        await settled(lambda: bus.refused)
        assert bus.refused == "it does not answer"
        broker.restart()
        await bus.stores()
        assert bus.refused == ""
        assert await bus.counts("journal.>") == {"journal.r.0.0.0": 1}


async def test_a_delete_waits_for_space_and_names_the_remedy(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with nats.connect(broker.url) as bus:
        for number in range(3):
            await bus.append(f"journal.r.{number}.0.0", bytes(1024))
        break_disk(broker.pid)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bus.forget, "journal.r.0.>")
            await anyio.sleep(0.2)
            broker.restart()
        assert set(await bus.counts("journal.>")) == {"journal.r.1.0.0", "journal.r.2.0.0"}
        monkeypatch.setattr(streams, "PATIENCE_S", 0.5)
        break_disk(broker.pid)
        with pytest.raises(BrokerError, match=f"does not delete .*{REMEDY}"):
            await bus.forget("journal.r.1.>")


async def test_status_and_metrics_name_a_broker_that_stores_nothing(tmp_path: Path) -> None:
    config = 'listen: "127.0.0.1:-1"'
    begun = anyio.Event()

    async def reads(gym: Client) -> None:
        # As long as it reads, there are rollouts to store.
        async with aclosing(gym.rollouts(map(task, count()), environment=ENVIRONMENT)) as records:
            with suppress(BrokerError):
                async for _ in records:
                    begun.set()

    with server(tmp_path / "server", config) as (url, _, pid):
        pools = make_pools([ENVIRONMENT], "scripted/message", concurrency=8)
        async with running(SystemSpec(pools=pools, nats=(url,), drain_s=0.1)), connect(url) as gym:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(reads, gym)
                await begun.wait()
                break_disk(pid)
                found = await gym.status()
                while not any(worker.refused for worker in found.workers):
                    found = await gym.status()
                tasks.cancel_scope.cancel()
            assert "The broker stores nothing (it does not answer): make room" in limit(
                view(Reading(0.0, found))
            )
            figures = SystemFigures(gym.driver.bus)
            await figures.look()
            assert figures.figures().total(REFUSED_STORES) > 0

"""Where the addresses of engines come from, and how calls are spread."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from math import inf
from pathlib import Path

import anyio
import gym_runtime
import pytest
from gym_models.wire.engine import Engine
from gym_models.wire.replicas import Replicas
from gym_models.wire.routing import ReplicaState
from gym_runtime.environment import catalogue
from gym_runtime.errors import DeadlineExceeded, UsageError
from gym_runtime.workers.adapter import ModelSettings
from models.model_calls import output
from models.replicas.fleets import ask, fleet, homes, until, up
from stubs import stub_engine
from stubs.stub_engine import StubEngine

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


def state(replicas: Replicas[Engine], url: str) -> ReplicaState:
    return next(one for one in replicas.states() if one.url == url)


@pytest.mark.slow
async def test_a_file_of_urls(stubs: Callable[..., StubEngine], tmp_path: Path) -> None:
    one, other = stubs("--latency-s", "0.5"), stubs()
    listed = tmp_path / "engines"
    listed.write_text(f"# our engines\n\n{one.url}  # the first\n")
    async with fleet(f"file:{listed}") as replicas:
        assert up(replicas) == {one.url}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, replicas)
            await until(lambda: one.stats().in_flight == 1)
            listed.write_text(f"{other.url}\n")
            await until(lambda: up(replicas) == {other.url})
            assert state(replicas, one.url).leaving
            await ask(replicas)
            assert other.stats().requests == 1
        await until(lambda: [one.url for one in replicas.states()] == [other.url])
        assert one.stats().aborted == 0


@pytest.mark.parametrize("broken", ["", "ftp://nowhere\n", None])
async def test_a_file_that_makes_no_sense_changes_nothing(
    stubs: Callable[..., StubEngine], tmp_path: Path, broken: str | None
) -> None:
    one, other = stubs(), stubs()
    listed = tmp_path / "engines"
    listed.write_text(one.url)
    async with fleet(f"file:{listed}") as replicas:
        if broken is None:
            listed.unlink()
        else:
            listed.write_text(broken)
        before = one.stats().metrics
        await until(lambda: one.stats().metrics > before + 3)  # so many looks later
        assert up(replicas) == {one.url}
        listed.write_text(f"{one.url}\n{other.url}\n")
        await until(lambda: up(replicas) == {one.url, other.url})


async def test_the_addresses_of_a_name(stubs: Callable[..., StubEngine]) -> None:
    one = stubs()
    port = one.url.removesuffix("/v1").rpartition(":")[2]
    async with fleet(f"dns:localhost:{port}") as replicas:
        assert one.url in up(replicas)
        assert output(await ask(replicas))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("file:/nowhere/engines", "cannot be read"),
        ("dns:localhost", "looks like dns:"),
        ("dns:no-such-host.invalid:80", "cannot be resolved"),
    ],
)
async def test_sources_that_are_wrong_from_the_start(source: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        await fleet(source).__aenter__()


async def test_an_empty_file_names_no_engine(tmp_path: Path) -> None:
    (tmp_path / "engines").touch()
    with pytest.raises(UsageError, match="names no model URL"):
        await fleet(f"file:{tmp_path / 'engines'}").__aenter__()


@pytest.mark.slow
async def test_a_queue_at_one_engine_becomes_work_for_another(stubs: Callable[..., StubEngine]) -> None:
    small, large = stubs("--slots", "2", "--latency-s", "0.05"), stubs("--latency-s", "0.05")
    async with fleet(small.url, large.url) as replicas:
        rollout = homes(replicas, small.url)
        async with anyio.create_task_group() as tasks:

            async def caller() -> None:
                while True:
                    await ask(replicas, rollout)

            for _ in range(48):
                tasks.start_soon(caller)
            await until(lambda: large.stats().in_flight > 24)
            assert 1 <= state(replicas, small.url).limit < 24
            assert state(replicas, large.url).limit == inf
            small.stats(reset=True)
            await until(lambda: small.stats().requests > 20)
            assert small.stats().max_in_flight <= 24
            tasks.cancel_scope.cancel()
        await until(lambda: {one.in_flight for one in replicas.states()} == {0})


async def test_calls_wait_for_room_in_order_and_only_up_to_their_deadline(
    stubs: Callable[..., StubEngine],
) -> None:
    stub = stubs("--latency-s", "0.05")
    async with fleet(stub.url, look_s=60) as replicas:
        state(replicas, stub.url).limit = 1
        done: list[int] = []

        async def numbered(number: int) -> None:
            await ask(replicas, f"r.{number}.0")
            done.append(number)

        async with anyio.create_task_group() as tasks:
            for number in range(6):
                tasks.start_soon(numbered, number)
            await until(lambda: state(replicas, stub.url).in_flight == 1)
            with pytest.raises(DeadlineExceeded, match="none of 1 replica had room"):
                await ask(replicas, "r.late.0", limit_s=0.02)
            with anyio.move_on_after(0.01):
                await ask(replicas, "r.gone.0")
        assert done == [0, 1, 2, 3, 4, 5]
        assert stub.stats().max_in_flight == 1
        assert state(replicas, stub.url).in_flight == 0


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.timeout(90)
async def test_a_run_outlives_one_of_its_engines() -> None:
    """A real system: every rollout ends with a reward, though half of the engines dies under it."""
    name = "example_single_tool_call"
    examples = catalogue.environment(name).examples
    assert examples is not None
    rows = examples.read_bytes().splitlines()
    with stub_engine.running("--latency-s", "0.2") as stays, ExitStack() as mortal:
        dies = mortal.enter_context(stub_engine.running("--latency-s", "0.2"))
        model = ModelSettings(provider="openai", name="stub", urls=(stays.url, dies.url))
        rewards: list[float | None] = []
        async with gym_runtime.connect(model=model, environments=[name], concurrency=64) as gym:
            async for record in gym.rollouts(rows, environment=name, repeats=40):
                rewards.append(record.reward)
                if len(rewards) == 20:
                    await until(lambda: dies.stats().in_flight > 0)
                    mortal.close()
        assert len(rewards) == 40 * len(rows)
        assert set(rewards) == {1.0}

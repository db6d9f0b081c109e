"""A trainer that serves its own engine is a client and a model worker at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from faults.permissions.identities import WORKERS, serving
from gym_runtime import connect
from gym_runtime.bus.identity import CREDENTIALS, read_join, write_join
from gym_runtime.client import make_pools
from gym_runtime.errors import UsageError
from gym_runtime.messages.outcomes import RolloutRecord
from gym_runtime.system.spec import SystemSpec
from gym_runtime.system.system import launch
from msgspec.structs import replace
from trainers.trainers_engine import COUNTER, GatedEngine, counter_row

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.timeout(120), pytest.mark.anyio]


@pytest.fixture
def joins(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the join files of a broker."""
    monkeypatch.delenv(CREDENTIALS)
    with serving(folder) as url:
        for path in (folder / "join").glob("*.join"):
            (tmp_path / path.name).write_text(write_join(replace(read_join(path), urls=(url,))))
        yield tmp_path


async def test_a_trainer_joins_with_one_file_and_can_be_drained(joins: Path) -> None:
    pools = make_pools([COUNTER], None, concurrency=8)
    systems = [
        launch(SystemSpec(pools=(pool,), nats=(str(joins / f"{pool.kind}.join"),), drain_s=1))
        for pool in pools
    ]
    engine = GatedEngine()
    source, made = engine.source(str(joins / "trainer.join")), list[RolloutRecord]()

    async def rollout() -> None:
        made.append(await source.rollout(json.dumps(counter_row()), {}))

    try:
        async with connect(str(joins / "client.join")) as gym, anyio.create_task_group() as tasks:
            for system in systems:
                await system.until("all_ready")
            tasks.start_soon(rollout)
            await engine.asked.wait()
            assert sorted({worker.kind for worker in await gym.workers()}) == sorted(WORKERS)
            ((_, answer),) = await gym.drain((await source._open()).pool)
            assert answer.in_flight == 1
            engine.opened.set()
        assert made[0].reward == 1.0
        await source.close()
    finally:
        for system in systems:
            await system.stop()


async def test_a_clients_file_is_not_enough(joins: Path) -> None:
    with pytest.raises(UsageError, match=r"needs the keys of a client and a model worker: trainer\.join"):
        await GatedEngine().source(str(joins / "client.join")).rollout(json.dumps(counter_row()), {})

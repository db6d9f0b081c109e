"""The files by which a platform's probes see which workers serve."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import anyio
import pytest
from gym_runtime.errors import UsageError
from gym_runtime.system import watchdogs
from gym_runtime.system.private_broker import Broker
from gym_runtime.system.spec import HEALTH_DIR
from gym_runtime.system.system import launch, running
from runtime.system.supervisor.supervised import pid_of, spec
from time_limits import busy

pytestmark = [pytest.mark.slow, pytest.mark.anyio, pytest.mark.timeout(60)]


def shown(folder: Path) -> set[int]:
    return {int(path.name) for path in folder.iterdir()}


async def test_each_worker_that_serves_has_a_file(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "health"
    monkeypatch.setenv(HEALTH_DIR, str(folder))
    async with running(spec(nats=(broker.url,))) as system:
        assert shown(folder) == {event.pid for event in system.workers.values()}
        killed = pid_of(system, "agent")
        os.kill(killed, signal.SIGKILL)
        with anyio.fail_after(15 * busy()):
            await system.until("restarted")
        assert killed not in shown(folder)
        with anyio.fail_after(15 * busy()):
            await system.until("ready")
        assert shown(folder) == {event.pid for event in system.workers.values()}
    assert shown(folder) == set()


async def test_a_loop_that_hangs_lets_its_file_grow_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HEALTH_DIR, str(tmp_path))
    monkeypatch.setattr(watchdogs, "HEALTH_S", 0.01)
    file = tmp_path / str(os.getpid())
    async with watchdogs.shown_as_serving():
        os.utime(file, (0, 0))
        assert file.stat().st_mtime == 0  # the loop has not turned since
        with anyio.fail_after(10 * busy()):
            while file.stat().st_mtime == 0:
                await anyio.sleep(0.01)
    assert not file.exists()


async def test_a_folder_that_cannot_be_written_is_named(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(HEALTH_DIR, str(tmp_path / "file"))
    system = launch(spec(nats=(broker.url,)))
    try:
        with pytest.raises(UsageError, match=rf"{HEALTH_DIR}=.*file: File exists"):
            await system.until("all_ready")
    finally:
        system.kill()

"""A worker whose model takes for ever to load ends like any other, and with all that it has started."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import psutil
import pytest
from gym_runtime.client import make_pools
from gym_runtime.system.spec import SystemSpec
from gym_runtime.system.system import System, launch
from gym_runtime.workers.adapter import ModelSettings
from running import runs
from time_limits import busy

pytestmark = [pytest.mark.slow, pytest.mark.anyio, pytest.mark.timeout(60)]

HEAVY = """
import subprocess
import time
from pathlib import Path


class Adapter:
    def __init__(self, settings):
        self.pids = Path(settings.name)

    def load(self):
        engine = subprocess.Popen(["sleep", "600"], start_new_session=True)
        self.pids.write_text(str(engine.pid))
        time.sleep(600)  # as an engine that reads its weights

    async def __aenter__(self):
        if ENTERING:
            self.load()
        return self

    async def control(self, question):
        self.load()

    async def __aexit__(self, *_): ...
"""


@asynccontextmanager
async def loading(
    folder: Path, *, entering: bool
) -> AsyncGenerator[tuple[System, psutil.Process, psutil.Process]]:
    """A system whose model worker loads its model; the worker, and the engine that it has started.

    Args:
        entering: it loads when its adapter is entered, else when it starts to serve.
    """
    adapter, pids = folder / "heavy.py", folder / "engine.pid"
    adapter.write_text(f"ENTERING = {entering}\n{HEAVY}")
    model = ModelSettings(provider=str(adapter), name=str(pids))
    system = launch(SystemSpec(pools=make_pools(["mcqa"], model)))
    try:
        with anyio.fail_after(20 * busy()):
            while not (pids.exists() and pids.read_text()):
                await anyio.sleep(0.02)
        engine = psutil.Process(int(pids.read_text()))
        worker = engine.parent()
        assert worker is not None
        yield system, worker, engine
    finally:
        await system.stop()


@pytest.mark.parametrize("entering", [True, False])
@pytest.mark.parametrize(
    ("who", "signum"),
    [("supervisor", signal.SIGKILL), ("supervisor", signal.SIGTERM), ("worker", signal.SIGTERM)],
)
async def test_a_worker_that_loads_its_model_ends_with_its_engine(
    who: str, signum: signal.Signals, entering: bool, tmp_path: Path
) -> None:
    async with loading(tmp_path, entering=entering) as (system, worker, engine):
        os.kill(system.pid if who == "supervisor" else worker.pid, signum)
        with anyio.fail_after(15 * busy()):
            while any(runs(process) for process in (worker, engine)):
                await anyio.sleep(0.02)

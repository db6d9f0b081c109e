"""``top`` with a real system: driven in this process, typed in a terminal of tmux, and printed once."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import anyio
import msgspec
import pytest
from gym_runtime import Client
from gym_runtime.cli import main
from gym_runtime.client.status import RunProgress, Status
from gym_runtime.errors import ModelRefused
from gym_runtime.messages import calls
from gym_runtime.messages.stored_records import RunInfo
from gym_runtime.rpc.members import Heartbeat
from gym_view.screen import Asked, Top
from gym_view.table_view import Lines
from runtime.cli.in_process import ran
from runtime.cli.started import Started
from textual.pilot import Pilot
from textual.widgets import Static
from time_limits import busy

pytestmark = pytest.mark.anyio


class System:
    """A system of many workers, and what it was told to do."""

    def __init__(self, workers: int = 3) -> None:
        self.told: list[str] = []
        self.refuses = False
        self.workers = [
            Heartbeat(worker=f"{kind}-{number:03}", kind=kind, pools=[pool], capacity=100, in_use=number)
            for number in range(workers)
            for kind, pool in (("agent", "loop"), ("model", "policy"), ("resource", "quiz"))
        ]
        self.progress: dict[str, RunProgress] = {}
        self.runs = [
            RunInfo(run="20261122-a", total=100, environments=["quiz"], agents=["loop"]),
            RunInfo(run="20261121-b", total=10, state="finished", done=10),
        ]

    async def status(self) -> Status:
        return Status(workers=self.workers, queues={}, runs=self.runs, progress=self.progress)

    async def cancel(self, run: str) -> None:
        self.told.append(f"cancel {run}")

    async def control(self, command: calls.Control, *, model: str) -> object:
        if self.refuses:
            raise ModelRefused("this adapter [cannot] change weights")
        self.told.append(f"{command.op} {model}")
        return {}

    async def drain(self, *names: str) -> object:
        self.told.append(f"drain {names[0]}")
        return []


@asynccontextmanager
async def shown(system: System) -> AsyncIterator[tuple[Top, Pilot[None]]]:
    app = Top(cast("Client", system), "gym-runtime top")  # it answers the questions of the screen
    async with app.run_test(size=(140, 30), notifications=True) as pilot:
        await app.look()
        await pilot.pause()
        yield app, pilot


async def until(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    """Let the app work until it has come to something."""
    with anyio.fail_after(20 * busy()):
        while not condition():
            await pilot.pause(0.01)


def text(app: Top) -> str:
    """What stands on the screen."""
    return "\n".join(
        "".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips()
    )


@pytest.mark.slow
async def test_tables_are_shown_sorted_and_filtered() -> None:
    async with shown(System()) as (app, pilot):
        assert "The client is the limit" in text(app)
        assert text(app).index("agent-000") < text(app).index("model-000")
        await pilot.press("2")
        assert "20261122-a" in text(app)
        await pilot.press("3")
        said = text(app)
        assert "model-000" in said
        assert "agent-000" not in said
        await pilot.press("s", "s")
        await pilot.pause()
        assert "in use ▾" in text(app)
        assert text(app).index("model-002") < text(app).index("model-000")
        await pilot.press("1", "slash", *"quiz", "enter")
        await pilot.pause()
        assert "resource-001" in text(app)
        assert "model-001" not in text(app)


@pytest.mark.slow
async def test_a_run_is_cancelled_only_after_a_yes() -> None:
    system = System()
    async with shown(system) as (app, pilot):
        await pilot.press("c")
        assert not isinstance(app.screen, Asked), "no run is chosen"
        await pilot.press("2", "c")
        assert "Cancel run 20261122-a? 100 of its 100" in text(app)
        await pilot.press("n")
        assert system.told == []
        await pilot.press("c", "y")
        await until(pilot, lambda: len(system.told) == 1)
        assert system.told == ["cancel 20261122-a"]
        await pilot.press("down", "c")
        assert not isinstance(app.screen, Asked), "that one is over"


@pytest.mark.slow
async def test_a_run_of_a_stream_says_how_many_have_finished() -> None:
    system = System()
    system.runs = [RunInfo(run="20261120-c", total=0)]
    system.progress = {"20261120-c": RunProgress(done=7)}
    async with shown(system) as (app, pilot):
        await pilot.press("2", "down", "c")
        assert "Cancel run 20261120-c? 7 rollouts finished, and nothing says" in text(app)


@pytest.mark.slow
@pytest.mark.parametrize("before", [(), ("slash",), ("2", "c")], ids=["table", "filter", "question"])
async def test_control_c_ends_it(before: tuple[str, ...]) -> None:
    system = System()
    async with shown(system) as (app, pilot):
        await pilot.press(*before, "ctrl+c")
        await until(pilot, lambda: not app.is_running)
    assert app.return_code == 0
    assert system.told == []


@pytest.mark.slow
async def test_weights_are_paused_and_resumed() -> None:
    system = System()
    async with shown(system) as (app, pilot):
        await pilot.press("3", "p", "y")
        await until(pilot, lambda: len(system.told) == 1)
        paused = [
            msgspec.structs.replace(one, detail={"paused": "true"}) if one.kind == "model" else one
            for one in system.workers
        ]
        system.workers = paused
        await app.look()
        await pilot.pause()
        assert "Model 'policy' is paused" in text(app)
        await pilot.press("p")
        assert "Resume model 'policy'" in text(app)
        await pilot.press("y")
        await until(pilot, lambda: len(system.told) == 2)
        assert system.told == ["pause policy", "resume policy"]
        system.refuses = True
        await pilot.press("p", "y")
        await until(pilot, lambda: "[cannot]" in text(app))
        assert "this adapter [cannot] change weights" in text(app)


@pytest.mark.slow
async def test_a_worker_drains_only_after_a_yes() -> None:
    system = System()
    async with shown(system) as (app, pilot):
        await pilot.press("d")
        assert "in flight and leaves" in text(app)
        await pilot.press("n", "d", "y")
        await until(pilot, lambda: len(system.told) == 1)
        drained = system.told[0].removeprefix("drain ")
        assert drained in [one.worker for one in system.workers]
        system.workers = [
            msgspec.structs.replace(one, draining=True) if one.worker == drained else one
            for one in system.workers
        ]
        await app.look()
        await pilot.press("2", "d")
        await until(pilot, lambda: "that does not drain yet" in text(app))
        assert len(system.told) == 1


@pytest.mark.slow
async def test_names_are_shown_as_they_are_and_the_chosen_row_stays() -> None:
    system = System(workers=50)
    odd = Heartbeat(worker="odd", kind="agent", pools=["[red]\x1b[2J"], detail={"model": "[/b] @click=quit"})
    system.workers.append(odd)
    async with shown(system) as (app, pilot):
        assert "\x1b" not in text(app)
        await pilot.press("slash", *"odd", "enter")
        await pilot.pause()
        assert "[red] [2J" in text(app)
        await pilot.press("slash", *["backspace"] * 3, "enter")
        await pilot.press("pagedown", "pagedown", "j")
        await pilot.pause()
        lines = app.query_one(Lines)
        chosen = lines.chosen
        assert chosen.partition(".")[2] in text(app)
        system.workers = system.workers[3:]
        await app.look()
        await pilot.pause()
        assert lines.chosen == chosen
        assert str(app.query_one("#limit", Static).content)


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    folder = tmp_path_factory.mktemp("top")
    with Started(folder, "resource:mcqa", "agent", "model", "--model", "scripted/message") as system:
        yield system


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_once_is_for_programs_and_pipes(
    started: Started, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GYM_NATS_URL", started.url)
    assert main.run(["top", "--once", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["limit"] == "Nothing waits: no run is active."
    assert {one["kind"] for one in found["view"]["workers"]} == {"agent", "model", "resource"}
    assert all(one["memory_bytes"] > 2**20 for one in found["view"]["workers"])
    assert main.run(["top", "--once"]) == 0
    assert "scripted/message" in capsys.readouterr().out
    assert main.run(["top"]) == 2
    assert "without one: --once" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_it_is_typed_in_a_terminal(started: Started, tmp_path: Path) -> None:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed: apt-get install tmux")
    rows = Path(__file__).parents[2] / "resources" / "gym_resources" / "xstest.jsonl"
    there = ("--nats", started.url)
    run = ran(tmp_path, "publish", str(rows), "--environment", "xstest", *there).out.strip()
    tmux = ["tmux", "-S", str(tmp_path / "tmux"), "-f", "/dev/null"]
    environment = {**os.environ, "TERM": "xterm-256color"}
    command = f"{sys.executable} -m gym_runtime.cli.main top --nats {started.url}"
    subprocess.run(
        [*tmux, "new-session", "-d", "-x", "180", "-y", "40", command], check=True, env=environment
    )

    def screen() -> str:
        taken = subprocess.run([*tmux, "capture-pane", "-p"], capture_output=True, text=True, check=False)
        return taken.stdout

    def until(expected: str) -> None:
        end_s = time.monotonic() + 20 * busy()
        while expected not in screen():
            assert time.monotonic() < end_s, screen()
            time.sleep(0.1)

    def press(*keys: str) -> None:
        subprocess.run([*tmux, "send-keys", *keys], check=True)

    try:
        until("No worker serves environment 'xstest'")
        until("scripted/message")
        press("2")
        until(run)
        press("c")
        until(f"Cancel run {run}?")
        press("y")
        until("Nothing waits: no run is active.")
        press("q")
        end_s = time.monotonic() + 10 * busy()
        while subprocess.run([*tmux, "has-session"], capture_output=True, check=False).returncode == 0:
            assert time.monotonic() < end_s, screen()
            time.sleep(0.1)
    finally:
        subprocess.run([*tmux, "kill-server"], capture_output=True, check=False)

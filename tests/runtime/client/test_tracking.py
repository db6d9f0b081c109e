"""An experiment tracker is found by its name, also that of another distribution."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import anyio
import pytest
from gym_runtime import plugins
from gym_runtime.client.tracking import load_tracker
from gym_runtime.errors import UsageError
from runtime.client.running_client import running_client

pytestmark = pytest.mark.anyio

PLUGIN = """
class Told:
    def __init__(self, about, say, *, repeats=1, before=None):
        self.about, self.say = about, say
    def open(self): LINES.append(f"open {self.about.settings['rollouts']}")
    def add(self, record): LINES.append(f"add {record.reward}")
    def close(self, summary=None, *, failed=False): LINES.append(f"close {failed}")
LINES = []
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "told_tracker.py").write_text(PLUGIN)
    info = tmp_path / "told-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: told\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[gym_runtime.trackers]\ntold = told_tracker:Told\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(plugins, "_entry_points", metadata.entry_points)  # that of the process is cached


@pytest.mark.usefixtures("plugin")
async def test_a_distribution_adds_a_tracker() -> None:
    async with running_client() as here:
        assert len([record async for record in here.rollouts(2, track="told")]) == 2
        import told_tracker  # pyright: ignore[reportMissingImports]

        assert told_tracker.LINES == ["open 2", "add 1.0", "add 1.0", "close False"]
        told_tracker.LINES.clear()
        records = here.rollouts(50, track="told")
        await anext(records)
        await records.aclose()
        with anyio.fail_after(15):
            await here.at_rest()
        assert told_tracker.LINES[-1] == "close True"


def test_an_unknown_tracker_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"'wand' in the group gym_runtime.trackers; .*wandb"):
        load_tracker("wand")

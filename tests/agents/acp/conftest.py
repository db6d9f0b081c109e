"""Programs that speak the Agent Client Protocol."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from gym_agents.acp import Agent as Acp


@pytest.fixture(autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests at the same time have rollouts of the same id, whose folders would be numbered."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("t")))


@pytest.fixture
def speaker(tmp_path: Path) -> Callable[..., Acp]:
    """``speaker(program, *arguments)``: an agent that runs this program."""

    def speaker(program: str, *arguments: str) -> Acp:
        path = tmp_path / "speaker.py"
        path.write_text(program)
        return type("Agent", (Acp,), {"command": (sys.executable, str(path), *arguments)})()

    return speaker

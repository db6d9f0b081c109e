"""Programs that play rollouts through the gateway."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from gym_agents.black_box import Agent as BlackBox


@pytest.fixture(autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests at the same time have rollouts of the same id, whose folders would be numbered."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("t")))


@pytest.fixture
def harness(tmp_path: Path) -> Callable[..., BlackBox]:
    """``harness(program, *arguments)``: an agent that runs this program."""

    def harness(program: str, *arguments: str, **variables: str) -> BlackBox:
        path = tmp_path / "harness.py"
        path.write_text(program)
        fields = {"command": (sys.executable, str(path), *arguments), "variables": variables}
        return type("Agent", (BlackBox,), fields)()

    return harness

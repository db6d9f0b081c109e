"""The `prepare` command and what it writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from data.prepare_command.prepared import Capture, Prepare
from gym_runtime.cli import main


@pytest.fixture
def prepare(environment_folder: Path, capsys: Capture) -> Prepare:
    """Runs ``prepare``; its status, and what it said where that was."""

    def run(*arguments: str) -> tuple[int, str]:
        capsys.readouterr()
        status = main.run(["prepare", *arguments])
        out, err = capsys.readouterr()
        return status, err if status else out

    return run

"""The commands of docs/how-to/guests.md that need a package which is not installed everywhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from docs.pages import ROOT, blocks, commands

pytestmark = pytest.mark.slow


@pytest.mark.timeout(120)
def test_verifiers(tmp_path: Path) -> None:
    pytest.importorskip("verifiers.v1", reason="needs verifiers 0.4: pip install 'gym-runtime[verifiers]'")
    found = blocks(ROOT / "docs" / "how-to" / "guests.md")
    for block in found:
        if block.title:
            (tmp_path / block.title).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / block.title).write_text(block.text)
    bash, text = [block for block in found if "test_guest_page.py" in block.remark]
    start = f"{sys.executable} -m gym_runtime.cli.main "
    for command in commands(bash):
        done = subprocess.run(
            command.replace("gym-runtime ", start, 1),
            shell=True,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env={**os.environ, "NO_COLOR": "1", "XDG_CACHE_HOME": str(tmp_path / "cache")},
        )
        assert done.returncode == 0, done.stderr
        assert text.text.strip(" …\n") in done.stderr + done.stdout

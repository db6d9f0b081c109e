"""The package of docs/how-to/publish.md appears by itself where it can be imported."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from docs.pages import ROOT, blocks

PAGE = ROOT / "docs" / "how-to" / "publish.md"


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_package_of_the_page_appears_by_itself(tmp_path: Path) -> None:
    if find_spec("setuptools") is None:  # not imported: it replaces distutils in this process
        pytest.skip("setuptools is not installed")
    for block in blocks(PAGE):
        if block.title:
            path = tmp_path / block.title
            path.parent.mkdir(exist_ok=True)
            path.write_text(block.text)
    # As an installer reads the package, without what builds wheels, which may not be here.
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        "import setuptools; setuptools.setup()",
        "-q",
        "egg_info",
    ]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=100)
    listed = (tmp_path / "greeting_environments.egg-info" / "SOURCES.txt").read_text()
    assert "greeting_environments/polite.jsonl" in listed
    (tmp_path / "elsewhere").mkdir()
    for command, said in (
        ("test polite", "polite: keeps the contract"),
        ("run say:done --limit 2 --model scripted/message", "2 completed"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "gym_runtime.cli.main", *command.split()],
            cwd=tmp_path / "elsewhere",
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert said in done.stdout, done.stdout + done.stderr

"""What every command says on the terminal."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from runtime.cli.started import SCRIPT


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("closed", ["2>&-", ">&- 2>&- <&-"])
def test_a_stream_that_the_shell_has_closed_leads_nowhere(closed: str, tmp_path: Path) -> None:
    command = f"{SCRIPT} run mcqa --model scripted/message --limit 1 -o out.jsonl {closed}"
    ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path)
    assert (ran.returncode, "Traceback" in ran.stdout + ran.stderr) == (0, False)
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 1

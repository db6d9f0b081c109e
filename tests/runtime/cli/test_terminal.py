"""What every command says on the terminal."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from gym_runtime.cli import terminal
from runtime.cli.started import SCRIPT


def test_an_untested_python_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.note_untested_python((3, 15))
    assert capsys.readouterr().err == "Python 3.15 is untested; the tests run on 3.11 to 3.13\n"


@pytest.mark.parametrize("version", [(3, 11), (3, 13)])
def test_a_tested_python_is_not(version: tuple[int, int], capsys: pytest.CaptureFixture[str]) -> None:
    terminal.note_untested_python(version)
    assert capsys.readouterr().err == ""


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_a_stream_that_the_shell_has_closed_leads_nowhere(closed: str, tmp_path: Path) -> None:
    command = f"{SCRIPT} run mcqa --model scripted/message --limit 1 -o out.jsonl {closed}"
    ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path)
    assert (ran.returncode, "Traceback" in ran.stdout + ran.stderr) == (0, False)
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 1

"""Shell completion: each shell's script is valid; bash completes commands and flags by it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from gym_runtime.cli.commands import app

SYNTAX_CHECKS = {"bash": ["bash", "-n"], "zsh": ["zsh", "-n"], "fish": ["fish", "--no-execute"]}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_names_every_command_and_is_valid(shell: str, tmp_path: Path) -> None:
    script = tmp_path / f"completion.{shell}"
    script.write_text(app.generate_completion(shell=shell))  # type: ignore[arg-type]
    text = script.read_text()
    assert all(name in text for name in ("run", "publish", "reverify", "repeats", "max-output-tokens"))
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed, so its script was generated and not run")
    subprocess.run([*SYNTAX_CHECKS[shell], str(script)], check=True)


def completed(script: Path, words: str) -> list[str]:
    """What bash offers for a command line whose last word is not complete."""
    program = (
        f"source {script}; COMP_WORDS=(gym-runtime {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); "
        '_gym_runtime; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_bash_completes_commands_and_flags(tmp_path: Path) -> None:
    script = tmp_path / "completion.bash"
    script.write_text(app.generate_completion(shell="bash"))
    assert completed(script, "sta") == ["status", "start"]
    assert completed(script, "run --repe") == ["--repeats", "--repetition-penalty"]
    assert "replay" not in completed(script, "weights ")

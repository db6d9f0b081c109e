"""Shell completion: each shell's script is valid, and each shell completes commands and flags by it."""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import subprocess
import time
from functools import cache
from pathlib import Path

import pytest
from gym_runtime.cli.app import application

SYNTAX_CHECKS = {"bash": ["bash", "-n"], "zsh": ["zsh", "-n"], "fish": ["fish", "--no-execute"]}


@cache
def generated(shell: str) -> str:
    """A shell's script, which takes half a second of the processor to make."""
    return application().generate_completion(shell=shell)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_names_every_command_and_is_valid(shell: str, tmp_path: Path) -> None:
    script = tmp_path / f"completion.{shell}"
    script.write_text(generated(shell))
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


@pytest.mark.slow
def test_bash_completes_commands_and_flags(tmp_path: Path) -> None:
    script = tmp_path / "completion.bash"
    script.write_text(generated("bash"))
    assert completed(script, "sta") == ["status", "start"]
    assert sorted(completed(script, "run --repe")) == ["--repeats", "--repetition-penalty"]
    assert "replay" not in completed(script, "weights ")


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed: apt-get install fish")
def test_fish_completes_commands_and_flags(tmp_path: Path) -> None:
    script = tmp_path / "completion.fish"
    script.write_text(generated("fish"))

    def offered(line: str) -> list[str]:
        program = f"source {script}; complete -C '{line}'"
        environment = {**os.environ, "HOME": str(tmp_path)}
        done = subprocess.run(
            ["fish", "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        return sorted(found.partition("\t")[0] for found in done.stdout.splitlines())

    assert offered("gym-runtime sta") == ["start", "status"]
    assert offered("gym-runtime run --repe") == ["--repeats", "--repetition-penalty"]
    assert offered("gym-runtime weights ") == ["pause", "resume", "state", "update", "version"]


class Zsh:
    """An interactive zsh that has the script where ``--install-completion`` puts it."""

    def __init__(self, home: Path) -> None:
        folder = home / ".zsh" / "completions"
        folder.mkdir(parents=True)
        (folder / "_cyclopts_gym-runtime").write_text(generated("zsh"))
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            os.execvpe("zsh", ["zsh", "-f", "-i"], {**os.environ, "HOME": str(home), "TERM": "dumb"})
        self.type(f"fpath=({folder} $fpath); autoload -Uz compinit; compinit -u -D; echo ready-$((3 + 4))\n")
        self.wait_for("ready-7")

    def type(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def wait_for(self, expected: str) -> None:
        seen, until_s = b"", time.monotonic() + 15
        while expected.encode() not in seen:
            assert time.monotonic() < until_s, f"zsh did not show {expected!r}, but {seen!r}"
            if select.select([self._terminal], [], [], 0.5)[0]:
                seen += os.read(self._terminal, 65536)

    def close(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._terminal)


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed: apt-get install zsh")
def test_zsh_completes_commands_and_flags(tmp_path: Path) -> None:
    zsh = Zsh(tmp_path)
    try:
        zsh.type("gym-runtime weigh\t")
        zsh.wait_for("gym-runtime weights ")
        zsh.type("\x15gym-runtime run --repea\t")  # Ctrl-U empties the line first
        zsh.wait_for("--repeats")
    finally:
        zsh.close()

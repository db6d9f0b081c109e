"""Commands of other packages: found by entry point, listed and run as the engine's own are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from gym_runtime.errors import UsageError
from gym_runtime.plugins import load_plugin

pytestmark = pytest.mark.slow

COMMANDS = '''
"""Commands of another package."""

COMMANDS = {"Look around": {"say-hello": "Say hello."}}
'''
COMMAND = '''
def say_hello(name: str, /, *, loud: bool = False) -> int:
    """Say hello.

    Args:
        name: To whom.
        loud: With an exclamation mark.
    """
    print(f"hello {name}{'!' if loud else ''}")
    return 3
'''


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with an installed package that has a command."""
    package, about = tmp_path / "their_commands", tmp_path / "theirs-1.0.dist-info"
    package.mkdir()
    about.mkdir()
    (package / "__init__.py").write_text(COMMANDS)
    (package / "say_hello.py").write_text(COMMAND)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[gym_runtime.commands]\ntheirs = their_commands\n")
    return tmp_path


def ran(site: Path, *arguments: str) -> tuple[int, str, set[str]]:
    """The status of a command, what it prints, and the modules that it imported."""
    code = (
        "import sys; from gym_runtime.cli import main; status = main.run(sys.argv[1:]); "
        "print(); print(status, *sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(site)},
    )
    text, _, last = done.stdout.rstrip().rpartition("\n")
    status, *modules = last.split()
    return int(status), text.rstrip(), set(modules)


def test_a_command_of_another_package_runs(site: Path) -> None:
    status, text, modules = ran(site, "say-hello", "you", "--loud")
    assert (status, text) == (3, "hello you!")
    assert "gym_view.commands.view" not in modules


def test_help_lists_it_without_importing_any_command(site: Path) -> None:
    _, text, modules = ran(site, "--help")
    assert "│ say-hello  Say hello." in text
    commands = {name for name in modules if name.rpartition(".")[0].endswith("commands")}
    assert commands == set()
    assert "gym_runtime.cli.run" not in modules


def test_the_tracker_of_another_package_is_a_choice(site: Path) -> None:
    points = site / "theirs-1.0.dist-info" / "entry_points.txt"
    points.write_text(f"{points.read_text()}[gym_runtime.trackers]\ntold = told:Told\n")
    _, text, modules = ran(site, "run", "--help")
    assert "[choices: mlflow, tensorboard, told, trackio, wandb]" in " ".join(text.replace("│", "").split())
    assert "gym_runtime.client" not in modules


def test_its_own_help_is_complete(site: Path) -> None:
    _, text, _ = ran(site, "say-hello", "--help")
    assert "With an exclamation mark." in text


def test_a_command_of_the_engine_asks_no_other_package(site: Path) -> None:
    _, _, modules = ran(site, "drain", "--help")
    assert "their_commands" not in modules
    assert "gym_view.commands" not in modules


def test_a_plugin_that_is_not_installed_is_a_mistake_with_its_name() -> None:
    with pytest.raises(UsageError, match=r"offers 'nosuch' in the group gym_runtime\.metrics; there are: "):
        load_plugin("metrics", "nosuch")

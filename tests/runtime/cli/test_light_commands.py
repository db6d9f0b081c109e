"""What a command imports: help and listings begin fast."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {
    "aiohttp", "anyio", "gym_agents", "gym_models", "gym_resources", "gym_runtime.client", "nats",
    "openai", "opentelemetry", "rich.live", "rich.progress", "structlog", "uvloop",
}  # fmt: skip


LISTED = {"anyio", "gym_resources"}
"""What a listing of environments needs of these: it imports their modules."""


def imported(*lines: str) -> set[str]:
    """The modules that command lines import, one after the other in a process."""
    code = "import sys; from gym_runtime.cli import main\nfor line in sys.argv[1:]: main.run(line.split())\n"
    code += "print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, *lines], capture_output=True, text=True, check=True)
    found = set(done.stdout.splitlines()[-1].split())
    assert "gym_runtime.cli.app" in found
    return found


@pytest.mark.slow
def test_help_and_version_import_nothing_heavy() -> None:
    commands = (f"{command} --help" for command in ("run", "status", "drain", "weights"))
    assert not imported("--help", "--version", *commands) & HEAVY


@pytest.mark.slow
def test_a_run_and_its_supervisor_import_no_more_than_they_need() -> None:
    programs = {
        "import gym_runtime.cli.whole_run": {"aiohttp", "pygments", "rich.traceback", "rich.live"},
        "from gym_runtime.system import supervisor; supervisor._import_workers()": {"aiohttp", "rich"},
    }
    for program, unneeded in programs.items():
        # What is left out is there for whoever asks for it afterwards.
        code = (
            f"import sys; sys.argv = ['/usr/bin/gym-runtime']; {program}; print(*sys.modules); "
            "import aiohttp, rich.traceback"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        found = set(done.stdout.split())
        assert {"nats.aio.client", "structlog"} <= found
        assert not found & unneeded
    # A program of others keeps what these packages can do with it.
    code = "import gym_runtime.bus; from nats.aio import transport; assert transport.aiohttp"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_listing_the_environments_imports_their_modules_and_nothing_heavy() -> None:
    # Takes less than half a second, which is no test: machines differ.
    found = imported("ls environments")
    assert "gym_resources.mcqa" in found
    assert found & HEAVY == LISTED
    assert not {name for name in found if name.startswith(("gym_runtime.bus", "gym_runtime.workers"))}
    assert not found & {
        "fastapi",
        "numpy",
        "pydantic",
        "rdkit",
        "requests",
        "sqlglot",
        "sympy",
        "transformers",
    }

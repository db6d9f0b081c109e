"""What the start page says of the project is so, and what it shows needs no more than its first command."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib

import pytest
from docs.pages import README, ROOT, blocks, commands
from gym_runtime.environment import catalogue

BENCHMARKS = ROOT / "docs" / "explanation" / "benchmarks.md"


def test_it_counts_the_environments() -> None:
    count = len(catalogue.names("environments"))
    assert f"**[{count} environments](" in README.read_text()


def test_its_figures_are_those_of_the_benchmarks() -> None:
    rows = BENCHMARKS.read_text()
    repeated = [line for line in README.read_text().splitlines() if line.startswith("| CPU ")]
    assert repeated
    for line in repeated:
        name, *figures = line.strip("| ").split(" | ")
        assert re.search(
            rf"^\| {re.escape(name)}.* \| {re.escape(' | '.join(figures))} \|", rows, re.MULTILINE
        )


def test_the_picture_of_costs_is_drawn_from_the_table() -> None:
    spec = importlib.util.spec_from_file_location("cost", ROOT / "tests" / "bench" / "cost_picture.py")
    assert spec is not None
    assert spec.loader is not None
    picture = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(picture)
    assert (ROOT / "docs" / "images" / "cost.svg").read_text() == picture.drawing(BENCHMARKS.read_text())


def test_everyday_use_needs_no_extra_that_the_first_command_does_not_install() -> None:
    shown = [command for block in blocks(README) if block.language == "bash" for command in commands(block)]
    installed = set(re.findall(r"[\w-]+", re.findall(r'"\.\[(.*?)\]"', shown[0])[0]))
    known = set(catalogue.names("environments"))
    named = {name for command in shown for name in re.findall(r"\w+", command) if name in known}
    assert named
    for name in named:
        assert catalogue.environment(name).definition.extra in {"", *installed}, name


def test_the_table_of_extras_has_each() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    page = (ROOT / "docs" / "reference" / "installation.md").read_text()
    firsts = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    assert set(re.findall(r"`([\w-]+)`", " ".join(firsts))) == set(extras)


def test_the_table_of_dependencies_has_each() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = {re.split(r"[^\w.-]", each, maxsplit=1)[0] for each in project["dependencies"]}
    page = (ROOT / "docs" / "reference" / "installation.md").read_text().partition("## What it depends on")[2]
    firsts = [line.split("|")[1] for line in page.splitlines() if line.startswith("| ")]
    assert not required - set(re.findall(r"[\w.-]+", " ".join(firsts)))


@pytest.mark.slow
def test_an_extra_is_added_to_an_installation_without_an_index() -> None:
    """As the installation's page says of ``pip install "gym-runtime[NAME]"``."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--no-index", "--dry-run", "gym-runtime[embedded]"],
        capture_output=True,
        text=True,
    )
    assert "already satisfied: gym-runtime[embedded]" in done.stdout, done.stderr

"""Each row of the table in docs/how-to/guests.md: its scheme, what it needs, its version, what it refuses."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import gym_resources.guests
import pytest
from docs.pages import ROOT
from gym_runtime.environment import catalogue
from gym_runtime.errors import UsageError
from packaging.requirements import Requirement
from resources.guests.guest_runs import OWN
from resources.guests.harbor_folders import TOML, task

TABLE = (ROOT / "docs" / "how-to" / "guests.md").read_text().partition("|---|---|---|---|---|\n")[2]
ROWS = {
    re.findall(r"`([a-z-]+):", line)[0]: [cell.strip() for cell in line.strip("| ").split(" | ")]
    for line in TABLE.partition("\n\n")[0].splitlines()
}
REFUSED = {
    "verifiers": (f"verifiers:{OWN / 'harnessed.py'}", "harness", "harnesses of their own"),
    "skyrl-gym": ("skyrl-gym:nothing", "there is no environment 'nothing'", "names that it has not"),
    "reasoning-gym": (
        "reasoning-gym:nothing",
        "has no dataset 'nothing'",
        "tasks and settings that it has not",
    ),
    "inspect": (f"inspect:{OWN / 'inspect_tasks.py'}@no_such_task", "no_such_task", ""),
    "textarena": ("textarena:Nim-v0?players=9", "players", "wrong number of players"),
    "openenv": ("openenv:ftp://host", "is not of the form", "addresses that are not HTTP"),
    "harbor": ("harbor:tasks?image=none", "another user than root", "users other than root without an image"),
    "hub": ("hub:someone/none", "is not installed here", "packages that are not installed"),
    "mcp": ("mcp:http://host/mcp", "verify=NAME", "no `?verify=`"),
    "nemo-gym": ("nemo-gym:ftp://host", "is not of the form", "addresses that are not HTTP"),
}
"""Of each scheme an address that is refused, words of the error, and words of the table."""


def test_the_table_has_each_guest_once() -> None:
    folder = Path(gym_resources.guests.__file__).parent
    guests = {path.stem.replace("_", "-") for path in folder.glob("[a-z]*.py")}
    assert set(ROWS) == guests == set(REFUSED)
    assert all(len(cells) == 5 and all(cells) for cells in ROWS.values())


@pytest.mark.parametrize("scheme", ROWS)
def test_what_it_needs_and_its_version(scheme: str) -> None:
    _, _, needs, checked, _ = ROWS[scheme]
    extras: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    named = re.search(r"gym-runtime\[([a-z-]+)\]", needs)
    if named is None:
        assert scheme not in extras or scheme == "nemo-gym"  # its extra reads configurations
        return
    (one,) = map(Requirement, extras[named[1]])
    said = re.match(rf"{one.name} ([0-9.]+[0-9])", checked)
    assert said is not None, checked
    assert said[1] in one.specifier
    try:
        assert version(one.name) in one.specifier
    except PackageNotFoundError:
        with pytest.raises(UsageError, match=re.escape(f'pip install "gym-runtime[{named[1]}]"')):
            catalogue.environment(f"{scheme}:something")


@pytest.mark.parametrize("scheme", ROWS)
@pytest.mark.slow
def test_what_is_refused(scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    task(tmp_path / "tasks" / "one", toml=TOML.replace("[agent]", '[agent]\nuser = "alice"'))
    address, error, told = REFUSED[scheme]
    assert told in ROWS[scheme][4]
    with pytest.raises(UsageError) as raised:
        catalogue.environment(address)
    if "which is not installed" in raised.value.message:
        pytest.skip(raised.value.message)
    assert error in raised.value.message

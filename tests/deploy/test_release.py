"""The files of a release: the version, the changelog, and what is tried before anything is kept."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest
import yaml
from gym_runtime.version import VERSION

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / ".ci" / "release"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script as a module."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader = SourceFileLoader("release", str(SCRIPT))
    module = module_from_spec(spec_from_loader(loader.name, loader))  # type: ignore[arg-type]
    loader.exec_module(module)
    return module


@pytest.fixture
def tree(script: Any, tmp_path: Path) -> Path:
    """A copy of the files that a release changes."""
    for file in {script.CHANGELOG, *(place.partition(" ")[0] for place in script.PLACES)}:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    (tmp_path / script.CHANGELOG).write_text("# Changelog\n\n## Unreleased\n\n- New.\n\n## 0.1.0\n\n- Old.\n")
    return tmp_path


def test_every_place_has_the_version_of_the_package(script: Any) -> None:
    assert VERSION in (ROOT / "pyproject.toml").read_text()
    chart = yaml.safe_load((ROOT / script.CHART).read_text())
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)


def test_a_release_writes_its_version_and_its_part_of_the_changelog(script: Any, tree: Path) -> None:
    changed = script.cut(tree, "10.2.3", "2030-01-02")
    assert changed[0] == script.CHANGELOG
    assert (tree / script.CHANGELOG).read_text() == (
        "# Changelog\n\n## Unreleased\n\n## 10.2.3 (2030-01-02)\n\n- New.\n\n## 0.1.0\n\n- Old.\n"
    )
    assert 'version = "10.2.3"\n' in (tree / "pyproject.toml").read_text()
    assert 'VERSION = "10.2.3"\n' in (tree / "runtime/gym_runtime/version.py").read_text()
    chart = yaml.safe_load((tree / script.CHART).read_text())
    assert (chart["version"], chart["appVersion"]) == ("10.2.3", "10.2.3")
    for file in changed[1:]:
        before, after = ((top / file).read_text().splitlines() for top in (ROOT, tree))
        assert len(before) == len(after)
    with pytest.raises(script.Refused, match="nothing stands under '## Unreleased'"):
        script.cut(tree, "10.2.4", "2030-01-03")


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (VERSION, "already: name a higher version"),
        ("0.0.9", "already: name a higher version"),
        ("v1.0.0", "expected MAJOR.MINOR.PATCH"),
        ("1.0", "expected MAJOR.MINOR.PATCH"),
        ("1.0.0; rm", "expected MAJOR.MINOR.PATCH"),
    ],
)
def test_a_version_that_is_none_or_not_higher_is_refused(
    script: Any, tree: Path, version: str, said: str
) -> None:
    with pytest.raises(script.Refused, match=said):
        script.cut(tree, version, "2030-01-02")


def repository(folder: Path) -> None:
    """A clone of this one at its commit, with the script as it is here."""
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
    shutil.copy(SCRIPT, folder / ".ci" / "release")
    commit = ["-c", "user.name=test", "-c", "user.email=test@localhost", "commit", "--quiet", "--allow-empty"]
    subprocess.run(["git", "-C", str(folder), *commit, "-am", "The script as it is"], check=True)


@pytest.mark.slow
def test_a_tree_with_changes_and_a_tag_that_exists_are_refused(tmp_path: Path) -> None:
    repository(tmp_path / "here")

    def refused(*arguments: str) -> str:
        command = [str(tmp_path / "here" / ".ci" / "release"), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        return done.stderr

    assert refused() == "usage: .ci/release VERSION\n"
    subprocess.run(["git", "-C", str(tmp_path / "here"), "tag", "v10.0.0"], check=True)
    assert refused("10.0.0") == "release: there is a tag v10.0.0 already: name a higher version\n"
    (tmp_path / "here" / "README.md").write_text("changed")
    assert refused("10.0.1").startswith("release: the working tree has changes")


@pytest.mark.slow
def test_a_release_that_fails_changes_nothing(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    repository(here)
    monkeypatch.setattr(script, "ROOT", here)
    monkeypatch.setattr(script, "PYTHONS", ("2.0",))
    with pytest.raises(script.Refused, match=r"none of the Pythons 2\.0 is here"):
        script.release("10.0.0")
    left = subprocess.run(
        ["git", "-C", str(here), "status", "--porcelain", "--ignored"], capture_output=True, check=True
    )
    assert left.stdout == b""


def test_an_engine_that_does_not_work_is_said_and_not_used(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, command in (("podman", "echo 'no daemon' >&2; exit 125"), ("docker", "exit 0")):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{command}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert script.image_engine() == "docker"
    assert capsys.readouterr().out == "podman is here and does not work: no daemon\n"
    (tmp_path / "docker").write_text("#!/bin/sh\nexit 1\n")
    assert script.image_engine() is None


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_release_is_made_and_tried(tmp_path: Path) -> None:
    here = tmp_path / "here"
    repository(here)
    done = subprocess.run(
        [str(here / ".ci" / "release"), "10.0.0"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "10.0.0 is made and nothing is published" in done.stdout
    assert {path.suffix for path in (here / "dist" / "10.0.0").iterdir()} == {".whl", ".gz"}
    changed = subprocess.run(
        ["git", "-C", str(here), "status", "--porcelain"], capture_output=True, text=True, check=True
    )
    assert len(changed.stdout.splitlines()) == 4  # `dist` is ignored

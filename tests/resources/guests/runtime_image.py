"""An image with this package, its requirements and the interpreter of the tests, for tasks that we export."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from functools import cache
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

from docs.pages import ROOT
from packaging.requirements import Requirement
from sandbox import images

_COMMANDS = {
    "python3": '#!/bin/sh\nexec {python} "$@"\n',
    "gym-runtime": '#!/bin/sh\nexec {python} -c "from gym_runtime.cli.main import main; main()" "$@"\n',
}


@cache
def imported(engine: images.Engine, name: str) -> str:
    """Make the image, removed at exit; the problem, or ""."""
    with tempfile.TemporaryDirectory(prefix="gym-image-") as folder:
        root = Path(folder)
        base, version = Path(sys.base_prefix), f"python{sys.version_info[0]}.{sys.version_info[1]}"
        library = root / str(base).lstrip("/") / "lib" / version
        ignored = shutil.ignore_patterns("__pycache__", "test", "idlelib", "site-packages", "config-*")
        shutil.copytree(base / "lib" / version, library, ignore=ignored, symlinks=True)
        packages = library / "site-packages"
        packages.mkdir()
        for one in _needed("gym-runtime", set()):
            _copy(one, packages)
        _copy_own(packages)
        binary = root / "usr" / "local" / "bin"
        binary.mkdir(parents=True)
        python = Path(sys.executable).resolve()
        for command, text in _COMMANDS.items():
            (binary / command).write_text(text.format(python=base / "bin" / python.name))
            (binary / command).chmod(0o755)
        (library.parents[1] / "bin").mkdir()
        shutil.copy2(python, library.parents[1] / "bin" / python.name)
        _copy_libraries([python, *library.rglob("*.so*")], base, root)
        return images.imported(engine, name, root)


def _needed(name: str, seen: set[str]) -> set[str]:
    """The distributions that one requires, with itself."""
    if name not in seen:
        seen.add(name)
        for text in distribution(name).requires or []:
            one = Requirement(text)
            if one.marker is None or one.marker.evaluate({"extra": ""}):
                _needed(one.name.lower().replace("_", "-"), seen)
    return seen


def _copy(name: str, target: Path) -> None:
    found = distribution(name)
    for file in found.files or []:
        place = Path(str(found.locate_file(file)))
        if ".." not in file.parts and "__pycache__" not in file.parts and place.is_file():
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(place, target / file)


def _copy_own(target: Path) -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for name in settings["tool"]["importlinter"]["root_packages"]:
        found = find_spec(name)
        if found is not None and found.submodule_search_locations:
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(found.submodule_search_locations[0], target / name, ignore=ignored)


def _copy_libraries(programs: list[Path], base: Path, root: Path) -> None:
    """What they are linked with, at the same places; `images` brings the C library and more.

    Args:
        base: of the interpreter, which may have libraries of its own.
    """
    told = ["ldd", *map(str, programs)]
    listed = subprocess.run(told, capture_output=True, text=True, check=False).stdout
    for path in set(re.findall(r"=> (/\S+\.so\S*)", listed)):
        target = root / (path if path.startswith(("/usr/", f"{base}/")) else f"/usr{path}").lstrip("/")
        if not target.exists() and not path.startswith(str(root)):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(Path(path).resolve(), target)

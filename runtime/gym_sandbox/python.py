"""The Python that sandboxed programs run: the worker's own runtime, and the requested packages.

Nothing else of the worker's environment is visible: neither its site-packages, which have this project with
its verifiers and data, nor its virtual environment.
"""

from __future__ import annotations

import re
import sys
import sysconfig
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from gym_sandbox.readable_files import PACKAGES, View

_NAME = re.compile(r"[A-Za-z0-9._-]+")


@cache
def executable() -> str:
    """The interpreter behind a virtual environment's."""
    return str(Path(sys.executable).resolve())


def python_command() -> list[str]:
    """How to start Python; a script's path, or ``-c`` and its text, follows."""
    # `-s`: no packages of the user's home. UTF-8, whatever the locale in the sandbox is.
    return [executable(), "-s", "-X", "utf8"]


@cache
def runtime() -> str:
    """The folder of the interpreter and its standard library."""
    return str(Path(sys.base_prefix).resolve())


@cache
def hidden() -> tuple[str, ...]:
    """Folders of installed packages, within the runtime's own or `/usr`."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    candidates = [Path(sysconfig.get_path(kind)) for kind in ("purelib", "platlib")]
    for root in (runtime(), "/usr/local", "/usr"):
        candidates += [Path(root, "lib", version, name) for name in ("site-packages", "dist-packages")]
        candidates += [Path(root, "lib/python3/dist-packages")]
    shown = (Path(runtime()), Path("/usr"))
    real = dict.fromkeys(path.resolve() for path in candidates if path.is_dir())
    return tuple(str(path) for path in real if any(path.is_relative_to(root) for root in shown))


@cache
def installed(names: tuple[str, ...]) -> View:
    """The files and folders of those distributions that are installed, and of their dependencies.

    The sandbox has them in `PACKAGES`.
    """
    found: dict[str, str] = {}
    waiting, seen = list(names), set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            package = distribution(name)
        except PackageNotFoundError:
            continue
        # A scientific library has thousands of files under one folder, and the event loop waits for this.
        for top in dict.fromkeys(file.parts[0] for file in package.files or ()):
            if top not in ("..", "__pycache__") and not top.endswith(".pth"):
                found[f"{PACKAGES}/{top}"] = str(Path(str(package.locate_file(top))).resolve())
        wanted = [entry for entry in package.requires or () if "extra ==" not in entry]
        waiting += [match[0] for entry in wanted if (match := _NAME.match(entry))]
    return View(found)

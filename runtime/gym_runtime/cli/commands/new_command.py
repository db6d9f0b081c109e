"""``new``: an environment to start from."""

from __future__ import annotations

import keyword
import sys
from importlib import resources
from pathlib import Path

from gym_runtime.cli import terminal
from gym_runtime.environment import catalogue
from gym_runtime.errors import UsageError


def new(name: str, shape: str, directory: Path) -> None:
    """Write NAME.py and NAME.jsonl.

    Raises:
        UsageError: the name is not valid or is taken, or one of the files exists; nothing was written.
    """
    if not name.isidentifier() or keyword.iskeyword(name) or name != name.lower():
        raise UsageError(f"'{name}' cannot name a module: small letters, digits and _, as in my_environment")
    if name in sys.stdlib_module_names:
        raise UsageError(f"'{name}' is a module of Python's own library; choose another name")
    if name in catalogue.names("environments"):
        raise UsageError(f"there is an environment '{name}' already; choose another name")
    targets = [(directory / f"{name}{suffix}", suffix) for suffix in (".py", ".jsonl")]
    for target, _ in targets:
        if target.exists():
            raise UsageError(f"{target} exists; choose another name or --directory")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for target, suffix in targets:
            source = resources.files("gym_runtime.cli.scaffold").joinpath(f"{shape}{suffix}")
            with target.open("xb") as file:
                file.write(source.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot write to {directory}: {error.strerror}") from None
    console = terminal.output()
    module, rows = (str(target) for target, _ in targets)
    known_as = name if directory == Path() else module
    console.print(f"wrote {module} and {rows}; next:", soft_wrap=True)
    console.print(f"  gym-runtime test {known_as}", soft_wrap=True)
    console.print(f"  gym-runtime run {known_as}", soft_wrap=True)

"""``new``: an environment to start from."""

from __future__ import annotations

import keyword
import sys
from importlib import resources
from pathlib import Path
from typing import Literal

from gym_runtime.cli import run_async, terminal
from gym_runtime.environment import catalogue
from gym_runtime.errors import UsageError

HERE = Path()


def new(
    name: str,
    /,
    *,
    shape: Literal["verify", "session", "episode"] = "session",
    directory: Path = HERE,
    gold_from: str = "",
) -> None:
    """Write a new environment to start from: NAME.py and NAME.jsonl, which pass the contract.

    Args:
        name: A Python name.
        shape: verify: an answer is judged; session: tools and state; episode: step by step.
        directory: Where to put it.
        gold_from: A recorded rollout that solves its task, as FILE:LINE or FILE:TASK.ROLLOUT. NAME is then an
            environment that is there; its example row of this task gets the rollout as its gold, or is added.
    """
    if gold_from:
        _take_gold(name, gold_from)
        return
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
            source = resources.files("gym_testing.scaffold").joinpath(f"{shape}{suffix}")
            with target.open("xb") as file:
                file.write(source.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot write to {directory}: {error.strerror}") from None
    console = terminal.output()
    module, rows = (str(target) for target, _ in targets)
    known_as = name if directory == HERE else module
    console.print(f"wrote {module} and {rows}; next:", soft_wrap=True)
    console.print(f"  gym-runtime test {known_as}", soft_wrap=True)
    console.print(f"  gym-runtime run {known_as}", soft_wrap=True)


def _take_gold(name: str, rollout: str) -> None:
    from gym_testing.checks import recorded_gold  # most of the runtime, which a new environment needs not

    environment = catalogue.environment(name)
    if environment.guest:
        raise UsageError(f"{name} has no example rows here: it is another project's")
    line = run_async(lambda: recorded_gold.take(environment, rollout))
    console = terminal.output()
    console.print(f"{environment.examples}:{line} has the gold of {rollout}; next:", soft_wrap=True)
    console.print(f"  gym-runtime test {name}", soft_wrap=True)

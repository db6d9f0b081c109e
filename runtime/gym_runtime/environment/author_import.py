"""Importing a module of an author."""

from __future__ import annotations

import traceback
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec

from gym_runtime.errors import UsageError


@contextmanager
def importing(kind: str, name: str, *, installed: bool) -> Generator[None]:
    """Turn what an author's module raises while it is imported into one line with its place.

    Args:
        kind: what the module is: ``environment``, ``agent``, ``model`` …
        installed: it belongs to an installed package, whose extra of the same name brings what it needs.

    Raises:
        UsageError: in place of what it raises.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing.startswith("gym_"):
            raise
        wanted = f'"gym-runtime[{name.replace("_", "-")}]"' if installed else missing.partition(".")[0]
        package = missing.partition(".")[0]
        lacks = f"needs the package '{missing}', which is not installed"
        if package != missing and find_spec(package) is not None:
            lacks = f"needs '{missing}', which the version of '{package}' that is installed does not have"
        raise UsageError(f"{kind} '{name}' {lacks}: pip install {wanted}") from error
    except UsageError:
        raise
    except Exception as error:
        what = str(error)
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.filename}:{last.lineno}"
        if isinstance(error, SyntaxError):
            what, where = error.msg, f"{error.filename}:{error.lineno}"
        raise UsageError(
            f"{kind} '{name}' cannot be imported: {type(error).__name__}: {what} ({where})"
        ) from error

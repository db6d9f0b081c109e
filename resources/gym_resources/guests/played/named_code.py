"""A guest's address: what the user has named on the command line, and nothing that comes with rows.

``NAME?KEY=VALUE&…``: a value is JSON or a text; a dot in a key stands for an object within an object.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, cast
from urllib.parse import SplitResult, parse_qsl, urlsplit

import msgspec
from gym_runtime import UsageError
from gym_runtime.errors import UNREADABLE


class Address(NamedTuple):
    """What is named, and the settings that follow it."""

    name: str
    settings: dict[str, Any]


class Code(NamedTuple):
    """A module that can be imported by its name, and its file if it is not installed."""

    module: str
    sources: tuple[Path, ...] = ()


def parse(address: str) -> Address:
    """An address in its parts.

    Raises:
        UsageError: its settings are not of the form ``KEY=VALUE&…``.
    """
    name, _, query = address.partition("?")
    settings: dict[str, Any] = {}
    try:
        pairs = parse_qsl(query, strict_parsing=bool(query), keep_blank_values=True)
    except ValueError as error:
        raise UsageError(f"the settings in '{address}' are not of the form ?KEY=VALUE&KEY=VALUE") from error
    for key, text in pairs:
        _set(settings, key.split("."), _value(text), address)
    return Address(name, settings)


def http(url: str, form: str) -> SplitResult:
    """The parts of a server's address.

    Args:
        form: what the guest's address has to look like, such as ``mcp:http://HOST:PORT``.

    Raises:
        UsageError: it is no address over HTTP, or holds a user or a password.
    """
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # of brackets, or of a port's number
        known = False
    else:
        if parts.username is not None:
            raise UsageError(f"the address holds a user or a password; it must be of the form {form}")
        if known:
            return parts
    raise UsageError(f"{form.partition(':')[0]}:{url[:200]} is not of the form {form}")


def seconds(value: object, key: str) -> float:
    """A setting that is a time in seconds.

    Raises:
        UsageError: it is no number above 0 and up to a day.
    """
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 86400:
        raise UsageError(f"{key} is {value!r:.100}; it is a time in seconds, above 0 and up to 86400")
    return float(value)


def _set(fields: dict[str, Any], path: list[str], value: Any, address: str) -> None:
    if len(path) == 1:
        fields[path[0]] = value
        return
    inner = fields.setdefault(path[0], {})
    if not isinstance(inner, dict):
        raise UsageError(f"the settings in '{address}' give '{path[0]}' a value and fields")
    _set(cast("dict[str, Any]", inner), path[1:], value, address)


def _value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except UNREADABLE:
        return text


def find(name: str) -> Code | None:
    """The code of a name: a file, ``NAME.py`` in the working directory, or an installed module.

    A file's folder can be imported from afterwards, in this process and, by ``sources``, in forks.
    """
    for candidate in (name, f"{name}.py"):
        file = Path(candidate)
        if file.suffix == ".py" and file.is_file():
            return _beside(file.resolve())
    with_package = name.replace("-", "_")
    try:
        found = importlib.util.find_spec(with_package)
    except (ImportError, ValueError):
        found = None
    return Code(with_package) if found else None


def load(name: str, code: Code) -> ModuleType:
    """The module of the user's code.

    Raises:
        UsageError: it raises while it is imported; with the place.
    """
    try:
        return importlib.import_module(code.module)
    except Exception as error:  # whatever the user's module raises
        last = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{type(error).__name__}: {error} ({last.filename}:{last.lineno})"
        raise UsageError(f"'{name}' cannot be imported: {what}") from error


def mentions(code: Code, text: str) -> bool:
    """Whether a module's own file has a text in it; the module need not be importable."""
    found = importlib.util.find_spec(code.module)
    return found is not None and found.origin is not None and text in Path(found.origin).read_text()


def _beside(file: Path) -> Code:
    parts, folder = [file.stem], file.parent
    while (folder / "__init__.py").exists():
        parts.insert(0, folder.name)
        folder = folder.parent
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    return Code(".".join(parts), (file,))


def by_module(address: str, name: str) -> str:
    """The address with another name: that of a module, which is the same in every working directory."""
    _, mark, query = address.partition("?")
    return f"{name}{mark}{query}"


def named_folders(settings: Mapping[str, Any]) -> dict[str, str]:
    """The folders that settings name, so that forks can read them too."""
    found = [text for text in settings.values() if isinstance(text, str) and Path(text).is_dir()]
    return {f"GUEST_FOLDER_{number}": text for number, text in enumerate(found)}

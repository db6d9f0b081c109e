"""NeMo Gym's YAML files as one document, as NeMo Gym itself puts them together.

Included files (``config_paths``) come first and are overridden by the file that includes them, later files
override earlier ones, and single values override all. Then the directives ``_inherit_from``, ``_copy`` and
``_delete_key`` and OmegaConf's ``${path}`` and ``${oc.env:NAME,default}`` are carried out. A file is data
only: no tag makes an object, and what it expands to is bounded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from gym_runtime.environment import catalogue
from gym_runtime.errors import UNREADABLE, UsageError

MAX_BYTES = 2**18
MAX_VALUES = 20_000
"""Of a file with its aliases, and of the whole document with its references."""
MAX_DEPTH = 40
MAX_FILES = 50
MISSING = "???"

_REFERENCE = re.compile(r"\$\{([^${}]*)\}")
_DIRECTIVE = re.compile(r"\$\{(inherit_from|copy):([^${}]*)\}")
_ENVIRONMENT = re.compile(r"oc\.env:\s*(\w+)\s*(?:,(.*))?", re.DOTALL)
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
"""Of such variables no value is read: it would be written into files, or be part of an address."""

Document = dict[str, Any]


def read(files: Iterable[Path], overrides: Mapping[str, Any]) -> Document:
    """The files as one document; its references are still to be followed, by `References`.

    Args:
        overrides: values by their dotted paths.

    Raises:
        UsageError: a file cannot be read, is not YAML, or is too large or nested too deeply.
    """
    document: Document = {}
    seen: list[Path] = []
    for path in files:
        _lay_over(document, _with_included(path, seen))
    for name, value in overrides.items():
        for key in reversed(name.split(".")):
            value = {key: value}
        _lay_over(document, value)
    return cast("Document", _Directives(document).carried_out())


def unknown(files: Iterable[Path], names: Iterable[str], options: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Of dotted paths those that nothing in the files has a place for, each with the nearest that has; or "".

    Args:
        options: names that a configuration may have at its top without saying so.

    Raises:
        UsageError: as `read`.
    """
    document = read(files, {})
    references = References(document)
    references.followed(document)
    top = sorted({*document, *references.used, *options})
    for name in names:
        above = name.rpartition(".")[0]
        place = _at(document, above) if above else None
        if name not in top and not isinstance(place, dict | list):
            first, dot, rest = name.partition(".")
            near = "" if first in top else catalogue.nearest(first, top) or ""
            yield name, f"{near}{dot}{rest}" if near else ""


def found(name: str, near: Iterable[Path]) -> Path | None:
    """A file that a configuration names: from here, or from a folder above one of ``near``."""
    places = [Path(), *(folder for path in near for folder in path.resolve().parents)]
    return next((place / name for place in places if (place / name).is_file()), None)


def _with_included(path: Path, seen: list[Path]) -> Document:
    if path.resolve() in seen:
        return {}
    seen.append(path.resolve())
    if len(seen) > MAX_FILES:
        raise UsageError(f"{path}: more than {MAX_FILES} files are included by config_paths")
    own = _load(path)
    document: Document = {}
    for name in listed(own.pop("config_paths", None)):
        place = found(str(name), [path])
        if place is None:
            raise UsageError(f"{path} includes {name}, which is neither here nor in a folder above {path}")
        _lay_over(document, _with_included(place, seen))
    _lay_over(document, own)
    return document


def _load(path: Path) -> Document:
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise UsageError(
            "import-config reads YAML, whose package is not installed: pip install 'gym-runtime[nemo-gym]'"
        ) from error
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    if len(text) > MAX_BYTES:
        raise UsageError(f"{path} is larger than {MAX_BYTES // 1024} KiB; a configuration is smaller")
    try:
        loader: Any = yaml.SafeLoader(text.decode("utf-8-sig"))
        node = loader.get_single_node()
        if node is not None and _expanded(node, {}) > MAX_VALUES:
            raise UsageError(f"{path}: its aliases stand for more than {MAX_VALUES:,} values")
        document = None if node is None else loader.construct_document(node)
    except yaml.YAMLError as error:
        raise UsageError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, *UNREADABLE) as error:
        raise UsageError(f"{path}: not a configuration: {type(error).__name__}") from None
    if not isinstance(document, dict):
        raise UsageError(f"{path}: not a configuration: it holds no names with values")
    return {str(key): value for key, value in cast("dict[Any, Any]", document).items()}


def _expanded(node: Any, seen: dict[int, float]) -> float:
    """How many values a node stands for, each alias counted as what it repeats; infinite for a circle."""
    if id(node) not in seen:
        seen[id(node)] = float("inf")
        seen[id(node)] = 1 + sum(_expanded(one, seen) for one in _within(node))
    return seen[id(node)]


def _within(node: Any) -> Iterator[Any]:
    """The keys and values of a mapping's node, or the items of a sequence's."""
    for part in cast("list[Any]", node.value) if isinstance(node.value, list) else ():
        if isinstance(part, tuple):
            yield from cast("tuple[Any, Any]", part)
        else:
            yield part


def _lay_over(document: Document, more: Mapping[Any, Any]) -> None:
    for key, value in more.items():
        known = document.get(str(key))
        if isinstance(known, dict) and isinstance(value, dict):
            merged: Document = {**known}
            _lay_over(merged, cast("Document", value))
            document[str(key)] = merged
        else:
            document[str(key)] = value


def _at(document: Any, path: str) -> Any:
    """The value at a dotted path; None if nothing is there."""
    for key in path.split("."):
        if isinstance(document, list):
            items = cast("list[Any]", document)
            document = items[int(key)] if key.isdecimal() and int(key) < len(items) else None
        else:
            document = cast("Document", document).get(key) if isinstance(document, dict) else None
    return document


class _Bounded:
    """Counts the values of a document that is being made."""

    def __init__(self) -> None:
        self._left = MAX_VALUES

    def count(self, depth: int) -> None:
        self._left -= 1
        if self._left < 0 or depth > MAX_DEPTH:
            raise UsageError(
                f"the configuration stands for more than {MAX_VALUES:,} values, or is nested more than "
                f"{MAX_DEPTH} deep; is a reference a circle?"
            )


class _Directives(_Bounded):
    """Carries out ``_inherit_from``, ``_copy`` and ``_delete_key``."""

    def __init__(self, document: Document) -> None:
        super().__init__()
        self._document, self._moved = document, set[str]()

    def carried_out(self) -> Any:
        whole = self._value(self._document, 0)
        for path in self._moved:
            _delete(whole, path)
        return whole

    def _value(self, value: Any, depth: int) -> Any:
        self.count(depth)
        if isinstance(value, list):
            return [self._value(one, depth + 1) for one in cast("list[Any]", value)]
        if isinstance(value, str) and (named := _DIRECTIVE.fullmatch(value)):
            return self._named(named[1], named[2].strip(), depth)
        if not isinstance(value, dict):
            return value
        own = {str(key): one for key, one in cast("dict[Any, Any]", value).items()}
        result: Document = {}
        for kind in ("inherit_from", "copy"):
            if isinstance(path := own.pop(f"_{kind}", None), str):
                source = self._named(kind, path, depth)
                _lay_over(result, cast("Document", source) if isinstance(source, dict) else {})
        deleted = str(own.pop("_delete_key", ""))
        _lay_over(result, {key: self._value(one, depth + 1) for key, one in own.items()})
        for path in deleted.split(","):
            _delete(result, path.strip())
        return result

    def _named(self, kind: str, path: str, depth: int) -> Any:
        source = _at(self._document, path)
        if source is None:
            raise UsageError(f"_{kind} names {path}, which no file has")
        if kind == "inherit_from":
            self._moved.add(path)
        return self._value(source, depth + 1)


def _delete(document: Any, path: str) -> None:
    above, _, key = path.rpartition(".")
    place = _at(document, above) if above else document
    if isinstance(place, dict):
        cast("Document", place).pop(key, None)


class References(_Bounded):
    """Follows ``${…}`` in the values of a document. What nothing gives stays as it is written.

    Attributes:
        used: the top-level names that references have named.
    """

    def __init__(self, document: Document, environment: Mapping[str, str] = os.environ) -> None:
        super().__init__()
        self._document, self._environment, self.used = document, environment, set[str]()

    def followed(self, value: Any, depth: int = 0) -> Any:
        """The value, with what its references stand for.

        Raises:
            UsageError: it stands for too many values, as references in a circle do.
        """
        self.count(depth)
        if isinstance(value, dict):
            items = cast("Document", value).items()
            return {key: self.followed(one, depth + 1) for key, one in items}
        if isinstance(value, list):
            return [self.followed(one, depth + 1) for one in cast("list[Any]", value)]
        if not isinstance(value, str):
            return value
        if whole := _REFERENCE.fullmatch(value):
            named = self._named(whole[1].strip())
            return value if named in (None, value) else self.followed(named, depth + 1)
        return "".join(self._pieces(value, depth))

    def _pieces(self, text: str, depth: int) -> Iterator[str]:
        end = 0
        for reference in _REFERENCE.finditer(text):
            yield text[end : reference.start()]
            yield str(self.followed(reference[0], depth + 1))
            end = reference.end()
        yield text[end:]

    def _named(self, name: str) -> Any:
        if variable := _ENVIRONMENT.fullmatch(name):
            if _SECRET.search(variable[1]):
                return None
            return self._environment.get(variable[1], variable[2].strip() if variable[2] else None)
        self.used.add(name.partition(".")[0])
        return _at(self._document, name)

    def variable(self, value: Any) -> str:
        """The environment variable that a value is taken from, by way of other references; else empty."""
        for _ in range(MAX_DEPTH):
            whole = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
            if whole is None:
                return ""
            if variable := _ENVIRONMENT.fullmatch(whole[1].strip()):
                return variable[1]
            value = self._named(whole[1].strip())
        return ""


def given(value: Any) -> bool:
    """Whether a followed value says something: it is not None, ``???`` or a reference that nothing gives."""
    return value is not None and value != MISSING and not (isinstance(value, str) and "${" in value)


def listed(value: Any) -> list[Any]:
    """A list of the configuration; a single value counts as a list of one, and nothing as an empty one."""
    if isinstance(value, list):
        return cast("list[Any]", value)
    return [] if value is None else [value]

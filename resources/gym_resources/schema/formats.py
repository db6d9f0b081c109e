"""JSON, YAML, TOML, XML and CSV as values. Malformed text raises `Malformed` in every format.

JSON, YAML and TOML have typed values, which are kept (so a bare date of YAML or TOML is a date, not a text).
XML and CSV have texts only; the schema gives their types, see `gym_resources.schema.typed`. An XML document
is an object with the root element as its only key, CSV is always a list of records, and TOML always a table.
"""

from __future__ import annotations

import csv
import io
import json
import re
import tomllib
from collections.abc import Callable, Iterable
from typing import Any, Literal, Protocol, cast

from gym_resources.schema.typed import typed, typed_cell

Format = Literal["json", "yaml", "xml", "toml", "csv"]
YAML_NODES = 100_000
"""How many values a YAML document may have, also once its aliases are followed."""
YAML_DEPTH = 200
"""How deeply it may be nested: its parser crashes the process on thousands of levels."""
YAML_DIGITS = 4300
"""How long a number to the base of 60 (``1:30:00``) may be; reading one takes quadratic time."""
TOML_PARTS = 200
"""How many names a dotted key of TOML may have; reading one takes quadratic time."""


_SEXAGESIMAL = re.compile(r"[-+]?[0-9_]+:")
_MANY_PARTS = re.compile(rf"(?<![\w\"'-])(?:[\w\"'-]++[ \t]*+\.[ \t]*+){{{TOML_PARTS}}}")


class Malformed(ValueError):
    """The text is not of its format."""


def read(text: str, kind: Format, schema: dict[str, Any]) -> Any:
    """The value that a text stands for.

    Raises:
        Malformed: the text is not of this format.
    """
    from xml.parsers.expat import ExpatError

    if not text.strip():
        raise Malformed(f"not {kind}: there is no text")
    try:
        return _READERS[kind](text.strip(), schema)
    except (ValueError, ExpatError, csv.Error) as error:
        raise Malformed(f"not {kind}: {error}"[:300]) from error
    except RecursionError:
        raise Malformed(f"not {kind} within reason: nested too deeply") from None


def _json(text: str, _: dict[str, Any]) -> Any:
    return json.loads(text)


class _Node(Protocol):
    value: Any


def _yaml(text: str, _: dict[str, Any]) -> Any:
    import yaml  # pyright: ignore[reportMissingModuleSource]

    safe = cast("Any", getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    try:
        _refuse_bombs(cast("Any", yaml).parse(text, Loader=safe))
        loader = safe(text)
        try:
            node = loader.get_single_node()
            if _expanded(node, {}) > YAML_NODES:
                raise ValueError(f"its aliases stand for more than {YAML_NODES} values")
            return None if node is None else loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
    except (TypeError, KeyError, AttributeError, OverflowError) as error:  # YAML constructors check little
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _refuse_bombs(events: Iterable[Any]) -> None:
    """Read a document's events, which takes little memory, before its values are made.

    Raises:
        ValueError: there are too many, or they are nested too deeply.
    """
    depth = 0
    for number, event in enumerate(events):
        kind = type(event).__name__
        depth += kind.endswith("StartEvent") - kind.endswith("EndEvent")
        if number > 2 * YAML_NODES:
            raise ValueError(f"it has more than {YAML_NODES} values")
        if depth > YAML_DEPTH + 2:  # two levels are the stream and the document
            raise ValueError("it is nested too deeply")
        if kind == "ScalarEvent" and len(event.value) > YAML_DIGITS and _SEXAGESIMAL.match(event.value):
            raise ValueError(f"a number has more than {YAML_DIGITS} digits")


def _expanded(node: _Node | None, sizes: dict[int, float]) -> float:
    """How many nodes a node stands for with every alias followed; infinite if it holds itself."""
    if node is None or isinstance(node.value, str):
        return 1
    if id(node) not in sizes:
        sizes[id(node)] = float("inf")
        parts = cast("list[Any]", node.value)
        inner = [
            part for entry in parts for part in (cast("Any", entry) if isinstance(entry, tuple) else (entry,))
        ]
        sizes[id(node)] = 1 + sum(_expanded(part, sizes) for part in inner)
    return sizes[id(node)]


def _toml(text: str, _: dict[str, Any]) -> Any:
    if _MANY_PARTS.search(text):
        raise ValueError(f"a key has more than {TOML_PARTS} names")
    return tomllib.loads(text)


def _xml(text: str, schema: dict[str, Any]) -> Any:
    import xmltodict

    return typed(xmltodict.parse(text, disable_entities=True), schema)


def _csv(text: str, schema: dict[str, Any]) -> Any:
    """The records under the header; the last of several columns with the same name counts."""
    lines = [line for line in csv.reader(io.StringIO(text, newline=""), strict=True) if line]
    header, *records = lines or [[]]
    if any(len(record) != len(header) for record in records):
        raise ValueError("every record needs a cell for each column")
    items = schema.get("items")
    columns = cast("dict[str, Any]", items).get("properties") if isinstance(items, dict) else None
    schemas = cast("dict[str, Any]", columns) if isinstance(columns, dict) else {}
    return [
        {name: typed_cell(cell, schemas.get(name)) for name, cell in zip(header, record, strict=True)}
        for record in records
    ]


_READERS: dict[Format, Callable[[str, dict[str, Any]], Any]] = {
    "json": _json,
    "yaml": _yaml,
    "xml": _xml,
    "toml": _toml,
    "csv": _csv,
}

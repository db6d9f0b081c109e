"""JSON, YAML, TOML, XML and CSV as values. What is not well-formed raises `Malformed`, whatever the format.

JSON, YAML and TOML say which type a value has; there it is taken as it is (so a bare date of YAML or TOML is
a date, not a text). XML and CSV know texts only; there the schema tells, see `gym_resources.schema.typed`.
"""

from __future__ import annotations

import csv
import io
import json
import tomllib
from collections.abc import Callable
from typing import Any, Literal, NoReturn, Protocol, cast

from gym_resources.schema.typed import typed, typed_cell, typed_document

Format = Literal["json", "yaml", "xml", "toml", "csv"]
YAML_NODES = 100_000
"""How many values a YAML document may have once its aliases are followed."""


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
    return json.loads(text, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


class _Node(Protocol):
    value: Any


def _yaml(text: str, _: dict[str, Any]) -> Any:
    import yaml  # pyright: ignore[reportMissingModuleSource]

    safe = cast("Any", getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    try:
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
    except (TypeError, KeyError, AttributeError, OverflowError) as error:  # constructors check little
        raise ValueError(f"{type(error).__name__}: {error}") from error


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


def _toml(text: str, schema: dict[str, Any]) -> Any:
    """A table; for a schema of a list, the list that is all it holds."""
    table = tomllib.loads(text)
    parts = list(table.values())
    return parts[0] if schema.get("type") == "array" and len(parts) == 1 else table


def _xml(text: str, schema: dict[str, Any]) -> Any:
    import xmltodict

    return typed_document(xmltodict.parse(text, disable_entities=True), schema)


def _csv(text: str, schema: dict[str, Any]) -> Any:
    """The records under the header; a schema of an object means one record."""
    lines = [line for line in csv.reader(io.StringIO(text, newline=""), strict=True) if line]
    header, *records = lines or [[]]
    if len(set(header)) != len(header) or any(len(record) != len(header) for record in records):
        raise ValueError("every record needs a cell for each column, and every column a name of its own")
    single = schema.get("type") != "array"
    record_schema = schema if single else schema.get("items")
    rows = [
        typed(
            {name: typed_cell(cell, record_schema, name) for name, cell in zip(header, record, strict=True)},
            record_schema,
        )
        for record in records
    ]
    if single and len(rows) != 1:
        raise ValueError(f"{len(rows)} records where the schema has one")
    return rows[0] if single else rows


_READERS: dict[Format, Callable[[str, dict[str, Any]], Any]] = {
    "json": _json,
    "yaml": _yaml,
    "xml": _xml,
    "toml": _toml,
    "csv": _csv,
}

"""Prompt templates: a row's fields, put into words, become its ``input``.

A template is a YAML or TOML file with ``user`` (required) and ``system``; ``{field}`` stands for a field of
the row, as in NeMo Gym. Fields only: ``{row.attribute}`` and ``{row[0]}`` would reach into Python's objects
and are refused when the template is read.
"""

from __future__ import annotations

import string
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from gym_runtime.environment import catalogue
from gym_runtime.errors import UsageError
from gym_runtime.files.diagnosis import Complaint, locate
from gym_runtime.files.row_reader import BadRow

_PARAMS = "responses_create_params"

_decode_raw = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_fields = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode


class PromptTemplate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A checked template. Made by `read_prompt`."""

    user: str
    system: str | None = None

    def fill(self, line: bytes) -> bytes:
        """A row with its ``input`` made from its fields; one that is no JSON object is left as it is.

        Raises:
            BadRow: the row has an ``input``, lacks a field, or has a value that the format does not take.
        """
        try:
            fields = _decode_raw(line)
            row = _decode_fields(line)
            params = _decode_raw(fields.get(_PARAMS, b"{}"))
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return line
        if "input" in params:
            column = locate(line.decode(), f"$.{_PARAMS}.input") + 1
            raise BadRow(Complaint(column, f"'{_PARAMS}.input' is there already; a prompt would replace it"))
        return _encode({**fields, _PARAMS: {"input": list(self._messages(row)), **params}})

    def _messages(self, row: dict[str, Any]) -> Iterator[dict[str, str]]:
        for role, template in (("system", self.system), ("user", self.user)):
            if template is None:
                continue
            try:
                yield {"role": role, "content": template.format_map(row)}
            except KeyError as error:
                hint = catalogue.suggest(str(error.args[0]), list(row))
                raise BadRow(Complaint(1, f"the prompt needs '{error.args[0]}'{hint}")) from None
            except (ValueError, TypeError) as error:
                raise BadRow(Complaint(1, f"the prompt's {role} part cannot be filled: {error}")) from None


def read_prompt(path: Path) -> PromptTemplate:
    """Read and check a template.

    Raises:
        UsageError: the file cannot be read, is no such template, or reaches for more than fields.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from None
    try:
        prompt = msgspec.convert(_parse(path, text), PromptTemplate)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {error}; a prompt has 'user' and may have 'system'") from None
    for part in (prompt.user, prompt.system or ""):
        _check(path, part)
    return prompt


def _parse(path: Path, text: str) -> Any:
    if path.suffix == ".toml":
        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise UsageError(f"{path}: not TOML: {error}") from None
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{path} needs the package 'pyyaml' (or write it as TOML): pip install \"gym-runtime[prepare]\""
        ) from error
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UsageError(f"{path}: not YAML: {' '.join(str(error).split())}") from None


def _check(path: Path, template: str) -> None:
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        raise UsageError(f"{path}: {error}; a brace that is not a field is written twice") from None
    for _, field, format_spec, _ in parts:
        if field is None:
            continue
        if not field or field.isdigit():
            raise UsageError(f"{path}: '{{{field}}}' names no field of the row")
        if "." in field or "[" in field:
            raise UsageError(f"{path}: '{{{field}}}' reaches into a value; a prompt takes whole fields only")
        if "{" in (format_spec or ""):
            raise UsageError(f"{path}: '{{{field}:{format_spec}}}' has a field within a format")

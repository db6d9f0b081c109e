"""Prompt templates: they make a row's ``input`` of its fields.

A template is a YAML or TOML file with ``user`` (required) and ``system``; ``{field}`` is replaced by a field
of the row, as in NeMo Gym. Fields only: ``{row.attribute}`` and ``{row[0]}`` would reach into Python's
objects and are refused when the template is read. ``image`` may name a field with an image, which then
follows the user's text and is removed from the row. `laid_on` makes what lays a prompt on the rows of a run.
"""

from __future__ import annotations

import string
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from gym_runtime.environment import catalogue
from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.errors import UNREADABLE, UsageError
from gym_runtime.files.row_reader import BadRow

_PARAMS = "responses_create_params"

_decode_raw = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_fields = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode


class PromptTemplate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A checked template. Made by `read_prompt` or `checked_prompt`."""

    user: str
    system: str | None = None
    image: str = ""

    def fill(self, line: bytes, *, replace: bool = False) -> bytes:
        """A row with its ``input`` made from its fields; a row that is not a JSON object stays unchanged.

        Args:
            replace: an ``input`` that the row has is replaced; the images of its messages stay.

        Raises:
            BadRow: the row has an ``input``, lacks a field, or has a value that the format does not take.
        """
        try:
            fields = _decode_raw(line)
            row = _decode_fields(line)
            params = _decode_raw(fields.get(_PARAMS, b"{}"))
        except UNREADABLE:
            return line
        images = _images(params.pop("input")) if replace and "input" in params else []
        if "input" in params:
            raise BadRow(f"'{_PARAMS}.input' is there already; a prompt would replace it")
        filled = {**fields, _PARAMS: {"input": list(self._messages(row, images)), **params}}
        filled.pop(self.image, None)
        return _encode(filled)

    def _messages(self, row: dict[str, Any], images: list[Any]) -> Iterator[dict[str, Any]]:
        row = {**_derived(row), **row}
        image = row.get(self.image)
        if image and not isinstance(image, str):
            raise BadRow(f"'{self.image}' is no text with an image's address or data: URL")
        for role, template in (("system", self.system), ("user", self.user)):
            if template is None:
                continue
            try:
                text = template.format_map(row)
            except KeyError as error:
                hint = catalogue.suggest(str(error.args[0]), list(row))
                raise BadRow(f"the prompt needs '{error.args[0]}'{hint}") from None
            except (ValueError, TypeError) as error:
                raise BadRow(f"the prompt's {role} part cannot be filled: {error}") from None
            shown = [{"type": "input_image", "image_url": image, "detail": "auto"}] if image else images
            parts = [{"type": "input_text", "text": text}, *shown]
            yield {"role": role, "content": parts if shown and role == "user" else text}


def _derived(row: dict[str, Any]) -> dict[str, Any]:
    """What a prompt may name of a row that has it under another name, or in another form."""
    found: dict[str, Any] = {}
    for name, other in (("problem", "question"), ("question", "problem")):
        if other in row:
            found[name] = row[other]
    with suppress(msgspec.ValidationError):
        options = msgspec.convert(row.get("options"), list[dict[str, Any]])
        lettered = [f"{name}) {text}" for one in options for name, text in one.items() if text is not None]
        found["options_text"] = "\n".join(lettered)
    return found


class _Shown(msgspec.Struct):
    content: str | list[dict[str, Any]] = ""


def _images(given: Raw) -> list[dict[str, Any]]:
    """The images of an input's messages."""
    try:
        items = msgspec.json.decode(given, type=list[_Shown])
    except UNREADABLE:
        return []
    parts = [part for item in items if isinstance(item.content, list) for part in item.content]
    return [part for part in parts if part.get("type") == "input_image"]


Lay = Callable[[bytes, LoadedEnvironment, bool], bytes]
"""A row, its environment, and whether the row has an input, to the row that is run."""


def laid_on(prompt: str | PromptTemplate = "") -> Lay:
    """What lays a prompt on rows: a file, or one of the benchmarks' own by its name (``nemo-gym``), which
    replaces the input that a row has; without either, a benchmark's own on rows without an input.

    Raises:
        UsageError: the file is no prompt.
    """
    if isinstance(prompt, PromptTemplate):
        return lambda line, _environment, _has_input: prompt.fill(line)
    given = read_prompt(Path(prompt)) if Path(prompt).suffix else None
    known: dict[str, PromptTemplate | None] = {}

    def lay(line: bytes, environment: LoadedEnvironment, has_input: bool) -> bytes:
        if has_input and not prompt:
            return line
        if given is None and environment.name not in known:
            known[environment.name] = _own(environment, prompt)
        template = given or known[environment.name]
        return line if template is None else template.fill(line, replace=bool(prompt))

    return lay


def _own(environment: LoadedEnvironment, name: str) -> PromptTemplate | None:
    """A benchmark's prompt of a name; without one its usual prompt, None if it has none.

    Raises:
        UsageError: it has none of this name.
    """
    benchmark, where = environment.definition.benchmark, f"the prompt of '{environment.name}'"
    if name:
        others = benchmark.prompts if benchmark else {}
        if benchmark is None or name not in others:
            which = f"it has {', '.join(others)}, or name a file" if others else "name a file"
            raise UsageError(
                f"--prompt {name}: '{environment.name}' has no such prompt; {which} (.toml, .yaml)"
            )
        return checked_prompt(where, others[name], image=benchmark.image)
    if benchmark is None or not benchmark.prompt:
        return None
    return checked_prompt(where, benchmark.prompt, benchmark.system or None, benchmark.image)


def read_prompt(path: Path) -> PromptTemplate:
    """Read and check a template.

    Raises:
        UsageError: the file cannot be read, is not such a template, or uses more than fields.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from None
    try:
        prompt = msgspec.convert(_parse(path, text), PromptTemplate)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {error}; a prompt has 'user' and may have 'system' and 'image'") from None
    return checked_prompt(path, prompt.user, prompt.system, prompt.image)


def checked_prompt(where: object, user: str, system: str | None = None, image: str = "") -> PromptTemplate:
    """A template whose places are fields of rows.

    Raises:
        UsageError: it uses more than fields; the message begins with ``where``.
    """
    for part in (user, system or ""):
        _check(where, part)
    return PromptTemplate(user=user, system=system, image=image)


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


def _check(path: object, template: str) -> None:
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

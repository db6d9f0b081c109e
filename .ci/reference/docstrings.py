"""Docstrings and structs as Markdown."""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Iterable
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from docstring_parser import Docstring, DocstringStyle, parse


def parsed(thing: object) -> Docstring:
    """A docstring, taken apart; empty without a docstring of its own."""
    own = vars(thing).get("__doc__") if isinstance(thing, type) else getattr(thing, "__doc__", None)
    text = inspect.cleandoc(own or "")
    if text.startswith(f"{getattr(thing, '__name__', '')}(") or "dict() -> new empty" in text:
        text = ""
    return parse(text, DocstringStyle.GOOGLE)


def prose(doc: Docstring) -> str:
    """The description: paragraphs and indented examples, without the sections."""
    first = doc.short_description or ""
    gap = "\n\n" if doc.blank_after_short_description else "\n"
    return tidy(gap.join(filter(None, [first, doc.long_description])))


def tidy(text: str) -> str:
    """reStructuredText's literals as Markdown's; doctests and ``::`` blocks as code blocks.

    >>> tidy("a ``b`` and `c.d`")
    'a `b` and `c.d`'
    """
    lines: list[str] = []
    code: list[str] = []

    def close() -> None:
        if code:
            while code and not code[-1].strip():
                code.pop()
            lines.extend(["", "```pycon" if code[0].startswith(">>>") else "```text", *code, "```", ""])
            code.clear()

    literal = False
    for line in text.splitlines():
        indented = line.startswith("    ")
        if line.startswith(">>>") or (code and code[0].startswith(">>>") and line.strip()):
            code.append(line)
        elif literal and (indented or (code and not line.strip())):
            code.append(line[4:])
        else:
            close()
            literal = line.rstrip().endswith("::") or (literal and not line.strip())
            lines.append(re.sub(r"``([^`]+)``", r"`\1`", line.replace("::", ":") if literal else line))
    close()
    return "\n".join(lines).strip()


def one_line(text: str | None) -> str:
    """Text for the cell of a table."""
    return re.sub(r"``([^`]+)``", r"`\1`", " ".join((text or "").split())).replace("|", "\\|")


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table; empty without rows."""
    body = ["| " + " | ".join(row) + " |" for row in rows]
    columns = list(header)
    if not body:
        return ""
    return "\n".join(["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns), *body])


def short(annotation: Any) -> str:
    """A type as a reader wants it, without the modules and the bounds."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = re.sub(r", (?:Meta|msgspec\.Meta|Parameter)\([^()]*\)\]", "]", text)
    text = re.sub(r"\bAnnotated\[((?:[^\[\]]|\[[^\[\]]*\])*)\]", r"\1", text)
    text = re.sub(r"\b(?:[a-z_]+\.)+([A-Z]\w*)", r"\1", text)
    return text[1:-1] if re.fullmatch(r"'[^']*'", text) else text


def kind(annotation: Any) -> str:
    """The same for the cell of a table."""
    return f"`{short(annotation)}`".replace("|", "\\|")


def fields_table(cls: type) -> str:
    """The fields of a struct or dataclass with their types, defaults and meanings."""
    doc = {
        name.strip(): one.description
        for base in reversed(cls.__mro__)
        for one in parsed(base).params
        for name in one.arg_name.split(",")
    }
    rows = [
        [f"`{shown}`", kind(cls_annotation(cls, name)), default, one_line(doc.get(name))]
        for name, shown, default in _fields(cls)
    ]
    return table(["field", "type", "default", "meaning"], rows)


def _fields(cls: type) -> Iterable[tuple[str, str, str]]:
    """Each field: its name in Python, its name on the wire, and its default."""
    if issubclass(cls, msgspec.Struct):
        for one in msgspec.structs.fields(cls):
            if one.default is not msgspec.NODEFAULT:
                default = _shown(one.default)
            elif one.default_factory is not msgspec.NODEFAULT:
                default = _shown(one.default_factory())
            else:
                default = "required"
            yield one.name, one.encode_name, default
    else:
        for one in dataclasses.fields(cls):
            if one.default is not dataclasses.MISSING:
                default = _shown(one.default)
            elif one.default_factory is not dataclasses.MISSING:
                default = _shown(one.default_factory())
            else:
                default = "required"
            yield one.name, one.name, default


def cls_annotation(cls: type, name: str) -> str:
    """A field's annotation as it is written, with the choices in place of their alias."""
    base = next(base for base in cls.__mro__ if name in vars(base).get("__annotations__", {}))
    known = vars(sys.modules[base.__module__])

    def spelled(match: re.Match[str]) -> str:
        alias = known.get(match.group())
        if get_origin(alias) is Literal:
            return " | ".join(map(repr, get_args(alias)))
        if get_origin(alias) is Annotated:
            return inspect.formatannotation(get_args(alias)[0])
        return match.group()

    return re.sub(r"\b[A-Z]\w*", spelled, str(base.__annotations__[name]))


def _shown(value: Any) -> str:
    if isinstance(value, msgspec.Raw):
        return "`null`"
    return f"`{value!r}`".replace("|", "\\|")

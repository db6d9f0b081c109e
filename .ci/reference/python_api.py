"""The public API: what ``gym_runtime`` exports, and the types that its functions take and return."""

from __future__ import annotations

import inspect
from enum import Enum
from functools import cache, cached_property
from importlib import import_module
from typing import Any, get_origin

import msgspec
from docstrings import fields_table, one_line, parsed, prose, short, table

CHAPTERS: tuple[tuple[str, str, str], ...] = (
    # title, the module from which the names are imported, where they must be defined
    ("The client", "gym_runtime", "gym_runtime.client."),
    ("Settings and results", "gym_runtime", "gym_runtime.messages."),
    ("Training", "gym_runtime.training", ""),
    ("Writing environments", "gym_runtime", "gym_runtime.environment."),
    ("Tools and prompts in detail", "gym_runtime.environment", ""),
    ("Running what models write", "gym_sandbox", ""),
    ("Writing agents and model adapters", "gym_runtime.adapters", ""),
    ("Items and responses", "gym_runtime.messages", "gym_runtime.messages.responses"),
    ("Sampling of rows", "gym_runtime.messages", "gym_runtime.messages.rollout_settings"),
    ("Token ids, packed", "gym_runtime.messages", "gym_runtime.messages.call_tokens"),
    ("Files that are not shipped", "gym_runtime", "gym_runtime.assets"),
    ("Errors", "gym_runtime", "gym_runtime.errors"),
    ("Groups with signal", "gym_signal", ""),
    ("Boxes elsewhere", "gym_boxes", ""),
    ("Trainers", "gym_trainers", ""),
)
BOUND = "a decoder's method"
"""Has no module; it belongs to the first chapter of its package."""
INTRODUCTION = """# Python

Importing a package loads nothing else: each name is loaded when it is first used.
"""


def page() -> str:
    """The page.

    Raises:
        ValueError: a public name of ``gym_runtime`` belongs to no chapter.
    """
    parts = [INTRODUCTION]
    shown: set[tuple[str, str]] = set()
    for title, module, home in CHAPTERS:
        known = {getattr(import_module(where), name) for where, name in shown}
        names = [name for name in _names(module) if _home(module, name).startswith((home, BOUND))]
        names = [name for name in names if getattr(import_module(module), name) not in known]
        # A reader begins with it.
        names.sort(key=lambda name: not name.startswith("connect"))
        parts += [f"## {title}", f"From `{module}`."]
        parts += [entry(name, getattr(import_module(module), name)) for name in names]
        shown |= {(module, name) for name in names}
    names = set(_names("gym_runtime")) - {"adapters", "training"}
    if left := sorted(name for name in names if ("gym_runtime", name) not in shown):
        raise ValueError(f"name a chapter of .ci/reference/python_api.py for {left}")
    return "\n\n".join(parts)


def _names(module: str) -> list[str]:
    """The public names: the classes, functions and modules, but not constants and parts of the package."""
    if module == "gym_trainers":
        return ["GymSpec"]  # the other names import their trainer
    loaded = import_module(module)
    things = ((name, getattr(loaded, name)) for name in loaded.__all__)
    return [
        name
        for name, thing in things
        # Not an alias of a type, which has no signature.
        if (callable(thing) and get_origin(thing) is None)
        or (inspect.ismodule(thing) and module != "gym_runtime")
    ]


def _home(module: str, name: str) -> str:
    thing = getattr(import_module(module), name)
    return getattr(thing, "__module__", "") or (BOUND if hasattr(thing, "__self__") else "")


def entry(name: str, thing: Any) -> str:
    """One public name."""
    if inspect.isclass(thing):
        same = f"### `{name}`\n\nThe same as `{thing.__name__}`."
        return _class(name, thing) if name == thing.__name__ else same
    if inspect.ismodule(thing):
        return f"### `{name}`\n\nThe module `{thing.__name__}`. {prose(parsed(thing))}"
    if hasattr(thing, "__self__") and not inspect.ismethod(thing):
        return f"### `{name}`\n\n{_codec(name, thing.__self__)}"
    return "\n\n".join(
        filter(None, [f"### `{name}`", _signature(name, thing), prose(parsed(thing)), _details(thing)])
    )


def _codec(name: str, codec: Any) -> str:
    """A function that is a method of msgspec's decoder or encoder."""
    if isinstance(codec, msgspec.json.Encoder):
        return f"```py\ndef {name}(thing: Any) -> bytes\n```\n\nWrites it as JSON."
    kind = short(codec.type)
    return (
        f"```py\ndef {name}(json: bytes | str) -> {kind}\n```\n\n"
        f"Reads JSON as `{kind}`.\n\n"
        "Raises `msgspec.DecodeError`: it is no JSON, or other JSON (`msgspec.ValidationError`)."
    )


def _class(name: str, cls: type) -> str:
    plain = not issubclass(cls, msgspec.Struct) and not hasattr(cls, "__dataclass_fields__")
    bases = [base.__name__ for base in cls.__bases__ if base in _public()]
    doc = parsed(cls)
    parts = [f"### `{name}`", f"A kind of `{bases[0]}`." if bases else "", prose(doc)]
    if plain and "__init__" in vars(cls) and not issubclass(cls, (BaseException, Enum)):
        parts.append(_signature(name, cls.__init__))
    if plain:
        attributes = table(
            ["name", "meaning"], [[f"`{one.arg_name}`", one_line(one.description)] for one in doc.params]
        )
        parts.append(attributes)
    else:
        parts.append(fields_table(cls))
    parts.append(_raises(doc))
    for method, function in _members(cls).items():
        documented = parsed(_function(function))
        if _is_callable(function) and documented.short_description:
            parts += [
                f"#### `{name}.{method}`",
                _signature(method, function),
                prose(documented),
                _details(function),
            ]
    properties = [
        [f"`{member}`", one_line(prose(parsed(value)))]
        for member, value in _members(cls).items()
        if isinstance(value, (property, cached_property)) and value.__doc__
    ]
    parts.append(table(["read-only", "meaning"], properties))
    return "\n\n".join(filter(None, parts))


@cache
def _public() -> frozenset[Any]:
    modules = {module for _, module, _ in CHAPTERS}
    return frozenset(getattr(import_module(module), name) for module in modules for name in _names(module))


def _members(cls: type) -> dict[str, Any]:
    """The public members, with those of base classes that are not public themselves."""
    public = _public() - {cls}
    bases = [
        base for base in reversed(cls.__mro__) if base.__module__.startswith("gym_") and base not in public
    ]
    found = {name: value for base in bases for name, value in vars(base).items() if not name.startswith("_")}
    return dict(sorted(found.items(), key=lambda one: one[0] not in vars(cls)))


def _is_callable(function: Any) -> bool:
    return inspect.isfunction(function) or isinstance(function, (classmethod, staticmethod))


def _function(function: Any) -> Any:
    return function.__func__ if isinstance(function, (classmethod, staticmethod)) else function


def _signature(name: str, function: Any) -> str:
    function = inspect.unwrap(_function(function))
    signature = inspect.signature(function)
    words: list[str] = []
    for one in signature.parameters.values():
        if one.name in ("self", "cls"):
            continue
        if one.kind is one.KEYWORD_ONLY and not any(word.startswith("*") for word in words):
            words.append("*")
        star = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        default = "" if one.default is one.empty else f" = {one.default!r}"
        words.append(f"{star}{one.name}: {short(one.annotation)}{default}")
        if one.kind is one.POSITIONAL_ONLY:
            words.append("/")
    result = signature.return_annotation
    returned = "" if result in (inspect.Signature.empty, "None") else f" -> {short(result)}"
    start = "async def " if inspect.iscoroutinefunction(function) else "def "
    text = f"{start}{name}({', '.join(words)}){returned}"
    if len(text) > 90:
        listed = "".join(f"    {word},\n" for word in words)
        text = f"{start}{name}(\n{listed}){returned}"
    return f"```py\n{text}\n```"


def _details(function: Any) -> str:
    doc = parsed(_function(function))
    arguments = table(
        ["argument", "meaning"], [[f"`{one.arg_name}`", one_line(one.description)] for one in doc.params]
    )
    return "\n\n".join(filter(None, [arguments, _raises(doc)]))


def _raises(doc: Any) -> str:
    return "\n".join(
        f"Raises `{one.type_name}`: {one_line(one.description)}" + "\n" for one in doc.raises
    ).strip()

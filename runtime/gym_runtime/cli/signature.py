"""Options that several commands share, as the fields of a dataclass that each of them takes whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass
from functools import wraps
from inspect import Parameter, signature
from typing import Any, TypeVar

R = TypeVar("R")


def spread(command: Callable[..., R]) -> Callable[..., R]:
    """The command as typer is to see it, with the fields of a dataclass where a parameter is one."""
    groups: dict[str, tuple[type[Any], list[str]]] = {}
    seen: list[Parameter] = []
    for name, parameter in signature(command, eval_str=True).parameters.items():
        if is_dataclass(group := parameter.annotation) and isinstance(group, type):
            fields = signature(group, eval_str=True).parameters
            groups[name] = group, list(fields)
            seen += fields.values()
        else:
            seen.append(parameter)

    @wraps(command)
    def call(**given: Any) -> R:
        for name, (group, fields) in groups.items():
            given[name] = group(**{field: given.pop(field) for field in fields})
        return command(**given)

    shown = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in seen]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    call.__dict__["__signature__"] = signature(command).replace(parameters=shown)
    return call

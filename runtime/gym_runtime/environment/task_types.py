"""Which task an environment is about, and which models its functions ask: found in its author's annotations
and parameters, before any row is read.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, get_args, get_type_hints

from gym_runtime.environment.roles import Role
from gym_runtime.environment.shapes import Episode, Session, Task, VerifyFunction
from gym_runtime.environment.tools import place
from gym_runtime.errors import UsageError


def task_type(shape: type[Session[Any]] | VerifyFunction) -> type[Task]:
    """The task's type, which an author must name: a plain `Task` has none of the row's own fields.

    Raises:
        UsageError: it is not named, or does not derive from `Task`; with what to write.
    """
    return _session_task(shape) if isinstance(shape, type) else _function_task(shape)


def _function_task(verify: VerifyFunction) -> type[Task]:
    first, why, named = next(iter(inspect.signature(verify).parameters), ""), "", None
    try:
        named = get_type_hints(verify).get(first)
    except NameError as error:
        why = f": {error}"
    if isinstance(named, type) and issubclass(named, Task):
        return named
    raise UsageError(
        f"{place(verify)}verify's first parameter must be annotated with a subclass of Task{why}"
    )


def _session_task(session: type[Session[Any]]) -> type[Task]:
    for cls in session.__mro__:
        for base in getattr(cls, "__orig_bases__", ()):
            for argument in get_args(base):
                if isinstance(argument, type) and issubclass(argument, Task):
                    return argument
    name, kind = session.__name__, Episode if issubclass(session, Episode) else Session
    wanted = f"class {name}({kind.__name__}[{name}Task]), where the task derives from Task"
    raise UsageError(f"{place(session)}{name} does not name its task: {wanted}")


def role_parameters(function: Callable[..., Any], roles: Sequence[Role], *, given: int) -> list[Role]:
    """The roles that a function asks: its parameters after those that the runtime gives it.

    Raises:
        UsageError: a parameter does not name a role; with the function's file and line.
    """
    known = {role.name: role for role in roles}
    found: list[Role] = []
    for name in list(inspect.signature(function).parameters)[given:]:
        if name not in known:
            there = f"; there are: {', '.join(known)}" if known else ""
            asks = f"{place(function)}{getattr(function, '__name__', 'verify')} asks a model '{name}'"
            raise UsageError(
                f"{asks}, which is no role of the environment{there}: Environment(roles=('{name}',), …). "
                "An isolated verification asks none; its review does"
            )
        found.append(known[name])
    return found

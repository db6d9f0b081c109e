"""The shared parts of the office's applications: the tables, the shape of an answer, pages and dates.

A tool's answer is ``{"output": result}``, also when the tool failed; a mistake in the request gives a result
with an error text. `Given` arguments may be left out or null: the tool itself reports a missing one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from gym_runtime import ToolError, tool
from gym_runtime.environment import render

from gym_resources.workplace.office import Fields
from gym_resources.workplace.tables import Table, Tables

Given = str | None
Answer = dict[str, Any]

NOW = "2023-11-30 23:59:00"
EARLIEST, LATEST = "0001-01-01", "9999-12-31"
PAGE_SIZE = 5
PAGE_LIMIT = 10_000
ACTIONS: set[str] = set()  # the tools that may change a table: those that a replay has to call


class Desk:
    """An application's view of the session: the tables."""

    tables: Tables


D = TypeVar("D", bound=Desk)
P = ParamSpec("P")


def lookup(method: Callable[Concatenate[D, P], object]) -> Callable[Concatenate[D, P], Answer]:
    """Make a method a tool that only reads."""

    @wraps(method)
    def answer(self: D, /, *args: P.args, **arguments: P.kwargs) -> Answer:
        try:
            return {"output": method(self, *args, **arguments)}
        except ValueError as error:
            return {"output": failure(method.__name__, str(error))}

    return tool(adapt=loosen)(answer)


def loosen(name: str, arguments: dict[str, Any], parameters: tuple[str, ...]) -> dict[str, Any]:
    """Arguments as the office takes them: a number equals its text.

    Raises:
        ToolError: the tool has no argument of this name.
    """
    for key in arguments:
        if key not in parameters:
            reason = failure(name, f"it has no argument '{key}'")
            raise ToolError(render({"output": reason}))
    return {key: str(value) if isinstance(value, int | float) else value for key, value in arguments.items()}


def action(method: Callable[Concatenate[D, P], object]) -> Callable[Concatenate[D, P], Answer]:
    """Make a method a tool that may change a table."""
    ACTIONS.add(method.__name__)
    return lookup(method)


def failure(name: str, reason: str) -> str:
    """The text that the model reads when a tool failed."""
    return f"Error executing tool '{name}': {reason}"


def one_field(table: Table, noun: str, key: Given, name: Given) -> Fields | str:
    """One field of one row, or the error in the request."""
    if not key:
        return f"{noun} ID not provided."
    if not name:
        return "Field not provided."
    fields = table.get(key)
    if fields is None:
        return f"{noun} not found."
    return {name: fields[name]} if name in fields else "Field not found."


def delete_row(table: Table, noun: str, key: Given) -> str:
    if not key:
        return f"{noun} ID not provided."
    return f"{noun} deleted successfully." if table.delete(key) else f"{noun} not found."


def page_of(kind: str, found: Sequence[Fields], page: int | None, page_size: int | None) -> Answer:
    """One page of the results, pages counted from 1, with its position.

    Raises:
        ValueError: a number is out of range.
    """
    number = 1 if page is None else page
    size = PAGE_SIZE if page_size is None else page_size
    if not (0 < number <= PAGE_LIMIT and 0 < size <= PAGE_LIMIT):
        raise ValueError(f"page and page_size must be between 1 and {PAGE_LIMIT}")
    return {
        kind: found[(number - 1) * size : number * size],
        "pagination": {
            f"total_{kind}": len(found),
            "page": number,
            "page_size": size,
            "total_pages": -(-len(found) // size),
        },
    }


def day(text: Given, default: str) -> str:
    """A day as YYYY-MM-DD, so that days compare as text; a time of day is dropped.

    Raises:
        ValueError: it is not a date.
    """
    return datetime.fromisoformat(text).date().isoformat() if text else default


def moment(text: str) -> str:
    """A time as YYYY-MM-DD HH:MM:SS.

    Raises:
        ValueError: it is not a time.
    """
    return datetime.fromisoformat(text).replace(tzinfo=None).isoformat(" ", "seconds")


def is_address(text: str) -> bool:
    return "@" in text and "." in text


def is_moment(text: str) -> bool:
    """Whether a text is a date or a time, as ISO 8601 writes them."""
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def is_count(text: str) -> bool:
    """Whether a text is a whole number above 0."""
    try:
        return int(text) > 0
    except ValueError:
        return False


def quoted(choices: Sequence[str]) -> str:
    return ", ".join(f"'{choice}'" for choice in choices)

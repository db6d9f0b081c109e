"""Reading hostile text within limits: directly if that is quick, else in a process that can be killed.

The extractors of this package take linear time, so up to `LONG` characters they run in the caller's thread.
Regular expressions of a dataset row may backtrack exponentially, and `re` holds the interpreter's lock
meanwhile; so they always run in their own process. (An engine without backtracking would not do: rows are
written for Python's `re`, with its look-around and character classes.)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from gym_runtime import TaskError

LONG = 100_000
TIMEOUT_S = 5.0
_R = TypeVar("_R")


async def bounded(
    read: Callable[..., _R],
    text: str,
    *args: object,
    expressions: Sequence[str] = (),
    long: int = LONG,
    timeout_s: float = TIMEOUT_S,
) -> _R:
    """``read(text, *args)``, in a process if there are expressions or more than ``long`` characters.

    The process is killed after ``timeout_s`` seconds; ``read`` is a module's function whose parameters and
    result are annotated. Expressions are those of the row that ``read`` searches for.

    Raises:
        TaskError: it took longer.
        ResourceError: the process died.
    """
    if not expressions and len(text) <= long:
        return read(text, *args)
    from gym_runtime import run_isolated

    try:
        return await run_isolated(read, text, *args, timeout_s=timeout_s)
    except TimeoutError as error:
        what = f"the row's expression {' or '.join(map(repr, expressions))} backtracks: it"
        raise TaskError(
            f"{what if expressions else read.__name__} took longer than {timeout_s:g} s on a text of "
            f"{len(text)} characters" + "; simplify it" * bool(expressions),
            stage="verify",
        ) from error


def last_match(expression: str, text: str) -> str | None:
    """What an expression's last match captured, in any case; to be run by `bounded`.

    That is the first group that is not empty, or the whole match of a pattern without groups; None without a
    match, or if the expression is invalid.
    """
    try:
        pattern = re.compile(expression, re.IGNORECASE)
    except (re.error, OverflowError, RecursionError):
        return None
    last: re.Match[str] | None = None
    for match in pattern.finditer(text):
        last = match
    if last is None:
        return None
    return next((group for group in last.groups() if group), "") if pattern.groups else last[0]

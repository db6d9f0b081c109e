"""Regular expressions that come with a dataset row.

Case does not matter to them, and what is no expression matches nothing. One may backtrack without end on a
text that it was not written for, and `re` holds the interpreter's lock meanwhile; so it is searched for in a
process that is killed when it overruns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gym_runtime.errors import TaskError

TIMEOUT_S = 5.0


def last_matches(patterns: Sequence[str], text: str) -> list[str | None]:
    """For each pattern, what its last match captured; runs in the caller's process.

    That is the first group that is not empty, or the whole match of a pattern without groups; None where
    nothing matched.
    """
    return [_last_match(pattern, text) for pattern in patterns]


async def last_matches_guarded(
    patterns: Sequence[str], text: str, timeout_s: float = TIMEOUT_S
) -> list[str | None]:
    """`last_matches` in a process that is killed after ``timeout_s`` seconds.

    Raises:
        TaskError: it took longer.
    """
    from gym_runtime.environment.isolated import run_killable

    try:
        return await run_killable(last_matches, tuple(patterns), text, timeout_s=timeout_s)
    except TimeoutError as error:
        raise TaskError(
            f"the row's expression {' or '.join(map(repr, patterns))} backtracks: it took longer than "
            f"{timeout_s:g} s on a text of {len(text)} characters; simplify it",
            stage="verify",
        ) from error


def _last_match(expression: str, text: str) -> str | None:
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

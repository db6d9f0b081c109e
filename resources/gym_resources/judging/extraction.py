"""The part of a reply that a regular expression of the row finds.

The expression may backtrack without end on a text that it was not written for, so it is searched for in a
process that is killed when it overruns.
"""

from __future__ import annotations

import re

from gym_runtime import ResourceError, run_isolated

LIMIT_S = 5.0


def last_match(expression: str, text: str) -> str | None:
    """What the last match captured: its first group that is not empty, else all of it; None without one.

    Lines count (``MULTILINE``) and a dot is any character (``DOTALL``). What is no expression finds nothing.
    """
    try:
        pattern = re.compile(expression, re.MULTILINE | re.DOTALL)
    except (re.error, OverflowError, RecursionError):
        return None
    last: re.Match[str] | None = None
    for match in pattern.finditer(text):
        last = match
    if last is None:
        return None
    found: str = next((group for group in last.groups() if group), last[0])
    return found.strip()


async def extracted(expression: str | None, text: str) -> str:
    """The part of a text that an expression finds, or all of it where it finds nothing.

    Raises:
        ResourceError: the expression took more than `LIMIT_S` seconds.
    """
    if not expression:
        return text
    try:
        return await run_isolated(last_match, expression, text, timeout_s=LIMIT_S) or text
    except TimeoutError as error:
        raise ResourceError(
            f"the expression {expression!r} took longer than {LIMIT_S:g} s on {len(text)} characters",
            stage="verify",
        ) from error

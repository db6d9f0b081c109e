"""The end of a session."""

from __future__ import annotations

from typing import Any

import anyio

from gym_runtime.environment.author_code import guarded
from gym_runtime.environment.shapes import Session

CLOSE_LIMIT_S = 5.0
"""How long a session's `close` may take; then it is abandoned, with a warning."""


def releases(session: Session[Any]) -> bool:
    """Whether a session has anything to release when it is closed."""
    return type(session).close is not Session.close or not session.packs.idle


async def close_session(session: Session[Any]) -> None:
    """Close a session within `CLOSE_LIMIT_S` seconds, also during a cancellation.

    Raises:
        ResourceError: its ``close`` raised.
    """
    if not releases(session):
        return  # `isolated._run` has no loop
    with anyio.move_on_after(CLOSE_LIMIT_S, shield=True):
        try:
            await guarded("close", session.close)
        finally:
            await guarded("close", session.packs.close)

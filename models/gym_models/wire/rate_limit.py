"""The rate limit that an engine announces: its headers decide when calls are sent, before it refuses any.

The limit that a user sets (``requests_per_minute``) is kept by the model worker, over all engines.

    ===========================================  =============================================
    ``x-ratelimit-{remaining,reset,limit}-…``    of ``requests`` and ``tokens``: OpenAI, Azure,
                                                 Groq, Together, Fireworks
    ``anthropic-ratelimit-requests-…``           Anthropic
    ``x-ratelimit-{remaining,reset,limit}``      OpenRouter, Hugging Face
    429 with ``retry-after``                     all of them
    ===========================================  =============================================

An answer holds how many calls were left when its own call arrived; the calls sent since then are subtracted.
When no call is left, calls wait for the reset, or for an answer with newer figures, and never beyond their
deadline.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from math import inf

import anyio
import msgspec
from gym_runtime import clock
from gym_runtime.errors import ModelUnavailable

from gym_models.wire.failures import duration_s, retry_after_s
from gym_models.wire.waiting_line import WaitingLine

LONGEST_HOLD_S = 60.0
# Larger numbers are not durations but points in time, in seconds or milliseconds since the epoch.
_EPOCH_S, _EPOCH_MS = 1e9, 1e12


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """The limit in one answer: calls that are left, calls in a whole period, seconds to its end."""

    left: float
    limit: float
    reset_s: float


def read(status: int, headers: Mapping[str, str], now_s: float) -> Limit | None:
    """The limit in an answer; None if it has no such headers.

    ``headers`` takes names in any case.

    >>> read(200, {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "20ms"}, 0.0)
    Limit(left=0.0, limit=inf, reset_s=0.02)
    """
    if status == 429 and (wait_s := retry_after_s(headers)) is not None:
        # The refused call waits as long as it is told; the others ask again after a while.
        return Limit(left=0.0, limit=inf, reset_s=min(wait_s, LONGEST_HOLD_S))
    found = None
    for form in ("x-ratelimit-{}-requests", "anthropic-ratelimit-requests-{}", "x-ratelimit-{}"):
        if (remaining := headers.get(form.format("remaining"))) is not None:
            found = _limit(
                remaining, headers.get(form.format("reset")), headers.get(form.format("limit")), now_s
            )
            break
    if headers.get("x-ratelimit-remaining-tokens") == "0":
        tokens = _limit("0", headers.get("x-ratelimit-reset-tokens"), None, now_s)
        if tokens is not None and (found is None or found.left or found.reset_s < tokens.reset_s):
            return Limit(left=0.0, limit=found.limit if found else inf, reset_s=tokens.reset_s)
    return found


def _limit(remaining: str, reset: str | None, limit: str | None, now_s: float) -> Limit | None:
    wait_s = _until(reset, now_s)
    try:
        left, whole = float(remaining), float(limit or inf)
    except ValueError:
        return None
    # Azure writes -1 where it has no limit.
    if wait_s is None or not left >= 0:
        return None
    if not whole >= 1:
        whole = inf
    if wait_s > LONGEST_HOLD_S:  # a limit per hour or day frees one call after the other
        wait_s = min(wait_s / whole, LONGEST_HOLD_S) if whole < inf else LONGEST_HOLD_S
        whole = 1.0 if whole < inf else inf
    return Limit(left=left, limit=whole, reset_s=wait_s)


def _until(text: str | None, now_s: float) -> float | None:
    """Seconds to a reset, which is a duration, or a point in time in one of three forms."""
    if text is None:
        return None
    if "T" in text:
        try:
            return max(0.0, datetime.fromisoformat(text).timestamp() - now_s)
        except ValueError:
            return None
    seconds = duration_s(text)
    if seconds is None or seconds < _EPOCH_S:
        return seconds
    return max(0.0, (seconds / 1000 if seconds > _EPOCH_MS else seconds) - now_s)


class AnnouncedLimit:
    """Decides when calls may go to one engine. Call `admit`, send, then call `answered`."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._left = inf
        self._limit = inf
        self._reset_s = 0.0
        self._period_s = 0.0
        self._sent = 0
        self._newest = 0
        self._waiting = WaitingLine()

    async def admit(self, deadline_s: float) -> int:
        """Wait until a call may go; returns the number to hand to `answered`.

        Raises:
            ModelUnavailable: the limit ends after the deadline.
        """
        while (number := self._take()) is None:
            now_s = clock.monotonic()
            wait_s = self._reset_s - now_s
            if wait_s <= 0:
                self._left, self._reset_s = self._limit, now_s + self._period_s
            elif self._reset_s >= deadline_s:
                raise ModelUnavailable(
                    f"{self._url} has a rate limit that is used up for {wait_s:.1f} s, beyond the deadline",
                    stage="model",
                    retry_after_s=wait_s,
                )
            else:
                with anyio.move_on_after(wait_s):
                    return await self._waiting.wait(self._take)
        return number

    def _take(self) -> int | None:
        if self._left < 1:
            return None
        self._left -= 1
        self._sent += 1
        return self._sent

    def answered(self, number: int, status: int, headers: Mapping[str, str]) -> None:
        """Update the limit from the answer to the call with that number."""
        found = read(status, headers, clock.now())
        # Answers overtake each other; an older one counts only if it says that nothing is left.
        if found is None or (number < self._newest and found.left):
            return
        self._newest = max(self._newest, number)
        self._left = max(0.0, found.left - (self._sent - number))
        self._reset_s, self._period_s = clock.monotonic() + found.reset_s, found.reset_s
        if found.limit < inf:
            self._limit = found.limit
        # As many as may go now; the others would wake up for nothing.
        self._waiting.wake(int(min(self._left, len(self._waiting))))

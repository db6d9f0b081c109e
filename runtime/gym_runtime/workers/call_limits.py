"""Limits on the calls of an engine: how many may begin in a minute, and how long each may take.

A call that takes longer than its limit counts as hanging.

The run sets a call's limit (`RolloutSettings.call_timeout_s`), or else the start of the model's workers
(`ModelSettings.call_timeout_s`). Otherwise the limit is learned from the engine's latest answers, once there
are `LEARNED_FROM` of them: the largest of

    `SHORTEST_S`
    `TIMES_SLOWEST` times the 99th percentile of their durations
    `TIMES_TOKENS` times their mean duration per token, times the tokens that the call may generate
                   (``max_output_tokens``), if it says so

A call that is repeated after a learned limit may take twice as long each time. So a long generation after
many short ones completes in the end, even if its call has no ``max_output_tokens``. Until an engine has given
`LEARNED_FROM` answers, only the rollouts' deadlines count. Time does not count while the engine is paused for
a change of weights, or while this process does not run.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

import anyio
import msgspec
from msgspec import Raw

from gym_runtime import clock
from gym_runtime.errors import UNREADABLE, ModelUnavailable
from gym_runtime.timing import OVERDUE_S

LEARNED_FROM = 20
REMEMBERED = 500
SHORTEST_S = 120.0
TIMES_SLOWEST = 10.0
TIMES_TOKENS = 4.0


# `eq=False`: compared by identity, as the key of a dict needs it.
class _Call(msgspec.Struct, eq=False):
    scope: anyio.CancelScope
    since_s: float
    fixed_s: float | None
    params: Raw
    times: float


class _Length(msgspec.Struct):
    max_output_tokens: int = 0


_decode_length = msgspec.json.Decoder(_Length).decode


class CallLimits:
    """The calls in progress at one engine, and how long the latest ones took. Run `watch` beside them."""

    def __init__(self) -> None:
        self._calls: dict[_Call, None] = {}  # in the order in which they began
        self._took: deque[tuple[float, int]] = deque(maxlen=REMEMBERED)

    def answered(self, took_s: float, tokens: int) -> None:
        """Learn from an answer's duration and number of tokens."""
        self._took.append((took_s, tokens))

    def learned_s(self) -> tuple[float, float]:
        """The limit of any call, and the seconds for each token that a call may generate."""
        if len(self._took) < LEARNED_FROM:
            return math.inf, 0.0
        durations = sorted(took_s for took_s, _ in self._took)
        slowest_s = durations[math.ceil(0.99 * len(durations)) - 1]
        per_token_s = sum(durations) / max(1, sum(tokens for _, tokens in self._took))
        return max(SHORTEST_S, TIMES_SLOWEST * slowest_s), TIMES_TOKENS * per_token_s

    @contextmanager
    def limited(self, fixed_s: float | None, params: Raw, *, again: int = 0) -> Generator[None]:
        """Cancel the block when its call has taken too long.

        Args:
            fixed_s: the limit in seconds, 0 for none; None if it is to be learned.
            params: the call's parameters, which may limit the tokens that it generates.
            again: how often this call has passed its limit before.

        Raises:
            ModelUnavailable: the call took too long.
        """
        call = _Call(anyio.CancelScope(), clock.monotonic(), fixed_s, params, 2.0**again)
        with call.scope as scope:
            self._calls[call] = None
            try:
                yield
            finally:
                del self._calls[call]
        if scope.cancelled_caught:
            raise CallTimeout(
                f"no answer of the engine within {clock.monotonic() - call.since_s:.0f} s: the call was "
                "aborted as hanging (--call-timeout sets the limit, 0 none)",
                stage="model",
            )

    async def watch(self, paused: Callable[[], bool]) -> None:
        """Cancel the calls that have passed their limits, until cancelled."""
        before_s = clock.monotonic()
        while True:
            # One timer for all calls, see `EXACT_S`.
            await anyio.sleep(OVERDUE_S)
            now_s = clock.monotonic()
            passed_s, before_s = now_s - before_s, now_s
            # A process that was frozen has not yet read the answers of that time.
            idle_s = passed_s if paused() else max(0.0, passed_s - OVERDUE_S)
            for call in self._calls:
                call.since_s += idle_s
            longest_s = max((now_s - call.since_s for call in self._calls), default=0.0)
            learned = self.learned_s() if longest_s >= SHORTEST_S else (math.inf, 0.0)
            for call in self._calls:
                if now_s - call.since_s >= _limit_s(call, *learned):
                    call.scope.cancel()


def _limit_s(call: _Call, any_s: float, token_s: float) -> float:
    if call.fixed_s is not None:
        return call.fixed_s or math.inf
    tokens = 0
    # Decoded only here, because few calls get so old. Unreadable parameters are refused elsewhere.
    with suppress(*UNREADABLE):
        tokens = _decode_length(call.params).max_output_tokens
    return call.times * max(any_s, tokens * token_s)


class CallTimeout(ModelUnavailable):
    """A call of an engine passed its limit."""


class Pace:
    """Calls begin at even intervals, in order of arrival: at most ``per_minute`` + 1 in any minute.

    A full minute's worth at once would not do: engines count over shorter spans, too.
    """

    def __init__(self, per_minute: float) -> None:
        self._distance_s = 60.0 / per_minute
        self._next_s = 0.0
        # Queues the waiting calls; a cancelled call gives its place to the next one.
        self._queue = anyio.Lock()

    async def wait(self) -> None:
        """Return when the next call may begin."""
        async with self._queue:
            await anyio.sleep(max(0.0, self._next_s - anyio.current_time()))
            # `max`: idle time is not saved up.
            self._next_s = max(self._next_s, anyio.current_time()) + self._distance_s

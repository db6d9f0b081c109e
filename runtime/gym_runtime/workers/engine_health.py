"""The health of an engine: its usage, whether it has ever answered, and which of its errors are logged."""

from __future__ import annotations

import re
from contextlib import suppress

import msgspec

from gym_runtime import clock
from gym_runtime.errors import UNREADABLE, GymError, ModelRefused
from gym_runtime.logs import logger
from gym_runtime.messages import calls
from gym_runtime.messages.metric_names import ENGINE_DURATION, ENGINE_TOKENS, RETRIES
from gym_runtime.messages.responses import IncompleteDetails, Usage
from gym_runtime.rpc.meter import Meter

ENGINE_ONLY_ERRORS_S = 6.0
"""How long an engine may answer only errors after its start until its worker reports it as dead. The client
asks the workers every 2 s, so that a run stops within 15 s."""
NEWS_EVERY_S = 10.0
"""A model worker logs an engine's errors at most this often."""


MOST_NEWS = 100
ONLY_ERRORS = 3
"""An engine is reported as dead when all calls since its start have failed, at least this many, and for at
least `ENGINE_ONLY_ERRORS_S`, or at once if it refuses any call."""
_NUMBER = re.compile(r"\d+")


class Used(msgspec.Struct, frozen=True):
    """The usage that an engine's answer reports."""

    usage: Usage | None = None
    id: str = ""
    model: str = ""
    incomplete_details: IncompleteDetails | None = None


decode_used = msgspec.json.Decoder(Used).decode


class EngineHealth:
    """Whether the engine has ever answered; if not, for how long it has failed, and its last error.

    The client reads this from the worker's heartbeat, and stops its run if the engine answers only errors.

    Args:
        meter: counts each call, its duration, its tokens and its error.
        model: the labels of these counts: operation, provider, the model's name.
    """

    def __init__(self, meter: Meter | None = None, model: tuple[str, str, str] = ("chat", "", "")) -> None:
        self._meter = meter or Meter()
        self._model = model
        self._answered = False
        self._errors = 0
        self._refused_any = False
        self._since_s = 0.0
        self._words = ""
        self._heard: set[str] = set()
        self._next_news_s = 0.0

    def answered(self, answer: calls.ModelAnswer, took_s: float) -> int:
        """A call was answered. Returns the answer's number of tokens, if it reports one."""
        self._answered = True
        self._meter.observe(ENGINE_DURATION, took_s, *self._model, "")
        with suppress(*UNREADABLE):  # whether it is a response is checked where it is used
            usage = decode_used(answer.response).usage
            if usage is not None:
                self._meter.observe(ENGINE_TOKENS, usage.input_tokens, *self._model, "input")
                self._meter.observe(ENGINE_TOKENS, usage.output_tokens, *self._model, "output")
                return usage.output_tokens
        return 0

    def retried(self, error: GymError, wait_s: float) -> None:
        """The engine is asked again after a pause.

        A reason is a warning once, at most one every `NEWS_EVERY_S`, and `MOST_NEWS` in all. Reasons that
        differ only in numbers are the same: engines put request ids into their messages.
        """
        self._meter.add(RETRIES, "model", type(error).__name__)
        kind, now_s = _NUMBER.sub("#", str(error)), clock.monotonic()
        say = logger().info
        if kind not in self._heard and now_s >= self._next_news_s and len(self._heard) < MOST_NEWS:
            self._heard.add(kind)
            self._next_news_s = now_s + NEWS_EVERY_S
            say = logger().warning
        say("the engine is asked again", error=str(error), wait_s=round(wait_s, 1))

    def failed(self, error: GymError, took_s: float) -> None:
        """A call has failed; it may be retried."""
        self._meter.observe(ENGINE_DURATION, took_s, *self._model, type(error).__name__)
        if not self._errors:
            self._since_s = clock.monotonic()
        self._errors += 1
        self._refused_any = isinstance(error, ModelRefused) and error.any_call
        self._words = str(error)

    @property
    def only_errors(self) -> str:
        """The engine's last error, if it has answered only errors, as `ONLY_ERRORS` says; else empty."""
        waited = self._refused_any or clock.monotonic() - self._since_s >= ENGINE_ONLY_ERRORS_S
        return self._words if not self._answered and self._errors >= ONLY_ERRORS and waited else ""

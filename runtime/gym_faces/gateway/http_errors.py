"""Errors over HTTP: how the runtime's errors map to a dialect's, and whether a retry may help.

    ===========================================  =============  ==================
    error                                        kind           retry
    ===========================================  =============  ==================
    `TaskError`, `ModelRefused`                  invalid        no
    `Overflow`                                   overflow       no
    `PayloadTooLarge`                            too large      no
    `Busy`                                       rate limit     after a second
    `ModelLimited`                               rate limit     when the engine says
    `ModelUnavailable`, `TransportError`         overloaded     when the engine says
    `DeadlineExceeded`                           timeout        no
    all others                                   internal       no
    ===========================================  =============  ==================

The header ``x-should-retry`` says so to clients, which would otherwise retry after any 5xx.
"""

from __future__ import annotations

import math

from aiohttp import web
from gym_runtime.errors import (
    Busy,
    DeadlineExceeded,
    GymError,
    ModelLimited,
    ModelRefused,
    ModelUnavailable,
    PayloadTooLarge,
    TaskError,
    TransportError,
)
from gym_runtime.timing import RETRY_AFTER_S

from gym_faces.dialects.dialect import ApiDialect, Problem

LONGEST_WAIT_S = 3600
"""The longest `Retry-After` that is passed on from an engine."""


class Overflow(ModelRefused):
    """The conversation is longer than the engine's context."""

    def __init__(self) -> None:
        # The words by which programs recognise it: Anthropic's, and OpenAI's.
        super().__init__("prompt is too long: this model's maximum context length is exceeded", stage="model")


def problem_of(error: GymError) -> Problem:
    """The problem that a client gets for an error."""
    said = error.message or type(error).__name__
    match error:
        case Overflow():
            return Problem(kind="overflow", message=said)
        case TaskError() | ModelRefused():
            return Problem(kind="invalid", message=said)
        case PayloadTooLarge():
            return Problem(kind="too_large", message=said)
        case Busy():
            return Problem(kind="rate_limit", message=said, retry_after_s=RETRY_AFTER_S)
        # Before `TransportError`, and with the engine's own pause.
        case ModelUnavailable(retry_after_s=wait_s):
            kind = "rate_limit" if isinstance(error, ModelLimited) else "overloaded"
            return Problem(kind=kind, message=said, retry_after_s=wait_s or RETRY_AFTER_S)
        case TransportError(retryable=True):
            return Problem(kind="overloaded", message=said, retry_after_s=RETRY_AFTER_S)
        case DeadlineExceeded():
            return Problem(kind="timeout", message=said)
        case _:
            return Problem(kind="internal", message=said)


def refusal(dialect: ApiDialect, problem: Problem, key: str = "") -> web.Response:
    """The HTTP response for a problem; ``key`` is the call's id."""
    status, body = dialect.error(problem)
    headers = {**id_headers(key), "x-should-retry": str(problem.retry_after_s is not None).lower()}
    if (wait_s := problem.retry_after_s) is not None:
        # An engine may ask for an infinite pause.
        headers["retry-after"] = str(math.ceil(wait_s) if wait_s < LONGEST_WAIT_S else LONGEST_WAIT_S)
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)


def id_headers(key: str) -> dict[str, str]:
    """The call's id under both of its names."""
    return {"x-request-id": key, "request-id": key} if key else {}

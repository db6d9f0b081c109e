"""The error that an engine's refusal stands for: whose fault it is, and whether and when to retry.

Pure functions of status, headers and body.

    ============================  ==================================================
    400 about the context length  an answer that stops short; of a first prompt `ModelRefused`
    400 401 403 404 413 422       `ModelRefused`
    429 ``insufficient_quota``    `ModelRefused`: waiting does not fill an account
    429                           `ModelLimited`, with the delay that the engine asks for
    408 409 425 498 5xx           `ModelUnavailable`, likewise
    501                           `ModelRefused`: not implemented
    500 about images or sounds    `ModelRefused`: llama.cpp's, of a model that takes none
    2xx with an error's code      as that code, an overflow included: a router passes an error on
    2xx that isn't an answer      `ModelUnavailable`: a proxy answered, or a body broke off
    other 3xx and 4xx             `ModelRefused`
    ============================  ==================================================
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec
from gym_runtime.errors import UNREADABLE, ModelError, ModelLimited, ModelRefused, ModelUnavailable

from gym_models.wire.endpoint import Endpoint
from gym_models.wire.http import Answer

MAX_MESSAGE_CHARS = 300
MAX_START_CHARS = 80
MOST_WAIT_S = 7 * 86400.0
"""A quota may return after a week. What asks for more is a mistake, such as a time since the epoch."""
_LOOKED_AT_BYTES = 10_000
_RETRYABLE = {408, 409, 425, 429, 498}  # 498: Groq's capacity
_NO_WAITING_HELPS = ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active")
_LACKING = " input is not supported"
_FAILED_FOR_GOOD = ("invalid_prompt", "content_filter", "image", "vector_store")
_CONTEXT = re.compile(
    r"context_length_exceeded|exceed_context_size|context (?:length|size|window)|maximum model length"
    r"|prompt is too long|input is too long|max_model_len|too many (?:input )?tokens"
    r"|exceed context limit"  # Anthropic, of the prompt and max_tokens together
    r"|input token count.{0,20} exceeds the maximum"  # Gemini
    r"|maximum prompt length is \d"  # xAI
    r"|should not exceed max_num_tokens"  # TensorRT-LLM
    r"|`inputs` (?:must have less than|tokens \+ `max_new_tokens` must be)",  # Hugging Face's TGI, Together
    re.IGNORECASE,
)
_STATUS = re.compile(r"[45][0-9]{2}")
_CALLED = re.compile(r"/(?:models|responses|(?:chat/)?completions)$")
"""What a call adds to the base URL."""
_DURATION = re.compile(r"(?<![\d.])(\d++(?:\.\d++)?)(ms|s|m|h|d)")
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class _Error(msgspec.Struct):
    message: Any = None
    code: Any = None
    type: Any = None


class _Body(msgspec.Struct):
    error: _Error | str | None = None
    message: Any = None
    detail: Any = None
    status: Any = None


_decode = msgspec.json.Decoder(_Body).decode


def is_context_overflow(answer: Answer) -> bool:
    """Whether the engine refused because the conversation is longer than it can hold."""
    return answer.status in (400, 413, 422) and _CONTEXT.search(_text(answer.body)) is not None


def failure(answer: Answer, endpoint: Endpoint) -> ModelError:
    """The error that an answer with a status other than 2xx stands for. It holds no secrets."""
    text = _text(answer.body)
    said = endpoint.quote(text, answer.login).cut(MAX_MESSAGE_CHARS)
    message = f"{endpoint.url} answered {answer.status}" + (f": {said}" if said else "")
    quota = answer.status == 429 and any(code in text for code in _NO_WAITING_HELPS)
    lacking = answer.status == 500 and _LACKING in text
    if _may_pass(answer.status) and not (quota or lacking):
        unavailable = ModelLimited if answer.status == 429 else ModelUnavailable
        return unavailable(message, stage="model", retry_after_s=retry_after_s(answer.headers))
    if answer.status in (401, 403):
        holder = (
            f"the key in {endpoint.key_variable}" if endpoint.has_key else f"no key, {endpoint.key_variable}"
        )
        message += f" ({holder}{'' if endpoint.has_key else ' is empty'})"
    if 300 <= answer.status < 400:
        place = endpoint.quote(answer.headers.get("location", "another address"), answer.login)
        place = _CALLED.sub("", place.cut(MAX_MESSAGE_CHARS))
        message = f"{endpoint.url} answered {answer.status}: it has moved to {place}; name that instead"
    if answer.status in (404, 405) and "model" not in said.lower():
        message += " (is that the base URL of its API? Most end in /v1)"
    return ModelRefused(message, stage="model", any_call=answer.status in (401, 403, 404, 405))


def _may_pass(status: int) -> bool:
    return status in _RETRYABLE or (status >= 500 and status != 501)


def passed_on(answer: Answer) -> Answer | None:
    """The refusal in a body with status 2xx, as if it had its status: a router passes an engine's on."""
    try:
        error = _decode(answer.body).error
    except UNREADABLE:
        return None
    if not isinstance(error, _Error):
        return None
    code = error.code
    if isinstance(code, str):  # LiteLLM's are texts, also within a stream that has begun
        overflow = _CONTEXT.search(_text(answer.body)) is not None
        code = 400 if overflow else int(code) if _STATUS.fullmatch(code) else None
    return answer._replace(status=code) if isinstance(code, int) and 400 <= code < 600 else None


def not_an_answer(answer: Answer, endpoint: Endpoint, reason: str) -> ModelError:
    """A body with status 2xx that is not an answer of this API; it may hold an engine's error that a router
    passed on.
    """
    refusal = passed_on(answer)
    if refusal is not None:
        return failure(refusal, endpoint)
    start = endpoint.quote(answer.body, answer.login).cut(MAX_START_CHARS)
    why = endpoint.quote(reason, answer.login).cut(MAX_MESSAGE_CHARS)
    return ModelUnavailable(
        f"{endpoint.url} answered {answer.status} with something that is no response ({why}): {start!r}",
        stage="model",
    )


def failed(answer: Answer, endpoint: Endpoint) -> ModelError:
    """The error that a response without an end stands for. It holds no secrets."""
    try:
        body = _decode(answer.body)
    except UNREADABLE:
        body = _Body()
    error = body.error
    code, message = (error.code, error.message) if isinstance(error, _Error) else (None, None)
    said = endpoint.quote(f"{message or 'no reason given'} ({code or 'no code'})", answer.login)
    what = "failed" if body.status == "failed" else f"has the status '{body.status}', not its end"
    text = f"{endpoint.url}'s response {what}: {said.cut(MAX_MESSAGE_CHARS)}"
    refused = any(part in str(code or "") for part in _FAILED_FOR_GOOD)
    return ModelRefused(text, stage="model") if refused else ModelUnavailable(text, stage="model")


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """How long the engine asks to wait, in seconds, or None if it names no time, or one beyond `MOST_WAIT_S`.

    >>> retry_after_s({"retry-after": "7"}), retry_after_s({"retry-after-ms": "250"})
    (7.0, 0.25)
    >>> retry_after_s({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"})
    360.0
    """
    asked_s = _asked_s({name.lower(): value for name, value in headers.items()})
    return asked_s if asked_s is not None and asked_s <= MOST_WAIT_S else None


def _asked_s(lower: Mapping[str, str]) -> float | None:
    milliseconds = _number(lower.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    if "retry-after" in lower:
        seconds = _number(lower["retry-after"])
        return seconds if seconds is not None else _until(lower["retry-after"])
    resets = [
        duration
        for what in ("requests", "tokens")
        if lower.get(f"x-ratelimit-remaining-{what}", "0").strip() == "0"
        and (duration := duration_s(lower.get(f"x-ratelimit-reset-{what}"))) is not None
    ]
    return max(resets, default=None)


def _number(text: str | None) -> float | None:
    try:
        number = float(text) if text is not None else None
    except ValueError:
        return None
    # "inf" and "nan" are numbers for `float`, and would be waited for.
    return max(0.0, number) if number is not None and math.isfinite(number) else None


def _until(date: str) -> float | None:
    try:
        return max(0.0, parsedate_to_datetime(date).timestamp() - time.time())
    except (ValueError, OverflowError):  # the latter for a time zone of very many digits
        return None


def duration_s(text: str | None) -> float | None:
    """Seconds in a duration such as ``6m0s`` or ``7.66``; None for any other text."""
    parts = _DURATION.findall(text or "")
    if not parts:
        return _number(text)
    return sum(float(amount) * _UNIT_S[unit] for amount, unit in parts)


def _text(body: bytes) -> str:
    """The message and the code of an error body, or the body itself."""
    try:
        decoded = _decode(body)
    except UNREADABLE:
        # A page of a proxy: its text without the tags.
        return re.sub(r"<[^>]*>", " ", body[:_LOOKED_AT_BYTES].decode(errors="replace")).strip()
    error = decoded.error
    if isinstance(error, _Error):
        code = error.code if isinstance(error.code, str) else error.type
        message = str(error.message or "")
        return f"{message} ({code})" if isinstance(code, str) and code not in message else message
    said = error or decoded.message or decoded.detail or body[:_LOOKED_AT_BYTES].decode(errors="replace")
    return said if isinstance(said, str) else msgspec.json.encode(said).decode()

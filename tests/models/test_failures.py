"""What refusals mean: class, pause, message; and that no secret is in it."""

from __future__ import annotations

import json
from email.utils import formatdate
from typing import Any

import pytest
from gym_models.wire.endpoint import Endpoint
from gym_models.wire.failures import (
    MAX_MESSAGE_CHARS,
    failure,
    is_context_overflow,
    not_an_answer,
    retry_after_s,
)
from gym_models.wire.http import Answer
from gym_runtime.errors import ModelError, ModelLimited, ModelRefused, ModelUnavailable
from tables import table

KEY = "sk-secret-0123456789"
ENDPOINT = Endpoint(
    url="http://e/v1", headers={"authorization": f"Bearer {KEY}"}, private=False, has_key=True
)


def answer(status: int, body: Any, **headers: str) -> Answer:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Answer(status, {name.replace("_", "-"): value for name, value in headers.items()}, data)


def error(message: str, code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": "t", "param": None, "code": code}}


@table(
    ("status", "body", "cls"),
    [
        (400, error("bad"), ModelRefused),
        (401, error("key"), ModelRefused),
        (403, error("no"), ModelRefused),
        (404, error("model"), ModelRefused),
        (408, error("slow"), ModelUnavailable),
        (409, error("conflict"), ModelUnavailable),
        (422, {"detail": [{"msg": "x"}]}, ModelRefused),
        (429, error("slow down", "rate_limit_exceeded"), ModelLimited),
        (429, error("pay", "insufficient_quota"), ModelRefused),
        (302, b"", ModelRefused),
        (500, error("oops"), ModelUnavailable),
        (500, error("image input is not supported - hint: …", "server_error"), ModelRefused),
        (502, b"<html><body><h1>502 Bad Gateway</h1></body></html>", ModelUnavailable),
        (503, b"", ModelUnavailable),
        (529, error("overloaded"), ModelUnavailable),
        (498, error("capacity"), ModelUnavailable),
        (501, error("never heard of it"), ModelRefused),
        (402, error("pay"), ModelRefused),
    ],
)
def test_classes(status: int, body: Any, cls: type[ModelError]) -> None:
    found = failure(answer(status, body), ENDPOINT)
    assert type(found) is cls
    assert found.stage == "model"
    assert str(status) in found.message


@table(
    ("body", "said"),
    [
        (error("bad thing", "some_code"), "bad thing (some_code)"),
        ({"error": "plain"}, "plain"),
        ({"message": "vllm", "object": "error"}, "vllm"),
        ({"detail": "Not Found"}, "Not Found"),
        (b"<html><h1>502 Bad Gateway</h1></html>", "502 Bad Gateway"),
        (b"two\n lines", "two lines"),
    ],
)
def test_messages(body: Any, said: str) -> None:
    assert failure(answer(500, body), ENDPOINT).message == f"http://e/v1 answered 500: {said}"


@pytest.mark.parametrize(
    ("body", "doubted"),
    [
        (b"<html><h1>404 Not Found</h1></html>", True),
        ({"detail": "Not Found"}, True),
        (error("The model `m` does not exist", "model_not_found"), False),
    ],
)
def test_a_path_that_is_not_there_casts_doubt_on_the_base_url(body: Any, doubted: bool) -> None:
    assert ("is that the base URL" in failure(answer(404, body), ENDPOINT).message) is doubted


def test_messages_are_short_and_hold_no_secrets() -> None:
    long = failure(answer(400, error("x" * 5000)), ENDPOINT).message
    assert len(long) <= MAX_MESSAGE_CHARS + 40
    leaky = failure(answer(401, error(f"Incorrect API key provided: {KEY} or sk-other-987654321")), ENDPOINT)
    assert "sk-" not in leaky.message
    assert "OPENAI_API_KEY" in leaky.message
    assert KEY not in repr(ENDPOINT)


@pytest.mark.parametrize(
    ("status", "message", "overflow"),
    [
        (400, "This model's maximum context length is 8192 tokens. However, you requested 9000", True),
        (400, "the request exceeds the available context size, try increasing it", True),
        (400, "Input is too long for requested model.", True),
        (400, "prompt is too long: 250000 tokens > 200000 maximum", True),
        (422, "`inputs` must have less than max_model_len tokens", True),
        (422, "`inputs` must have less than 4096 tokens. Given: 5000", True),
        (400, "`inputs` tokens + `max_new_tokens` must be <= 8193. Given: 9000 `inputs` tokens", True),
        (400, "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000", True),
        (400, "The input token count (1196265) exceeds the maximum number of tokens allowed", True),
        (400, "This model's maximum prompt length is 131072 but the request contains 537812", True),
        (400, "The sum of prompt length (72417.0), query length (0) should not exceed max_num_tokens", True),
        (400, "`inputs` must be a string", False),
        (400, "Invalid value for 'temperature'", False),
        (500, "maximum context length", False),
    ],
)
def test_context_overflow(status: int, message: str, overflow: bool) -> None:
    assert is_context_overflow(answer(status, error(message))) is overflow


def test_an_engine_that_has_moved_says_where_to() -> None:
    found = failure(answer(307, {}, location="https://new.example/v1/chat/completions"), ENDPOINT)
    assert found.message.endswith("answered 307: it has moved to https://new.example/v1; name that instead")


@table(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry_after": "3"}, 3.0),
        ({"Retry_After": "0.5"}, 0.5),
        ({"retry_after_ms": "250", "retry_after": "1"}, 0.25),
        ({"retry_after": "soon"}, None),
        ({"retry_after": "inf"}, None),
        ({"retry_after_ms": "nan"}, None),
        ({"retry_after": "-4"}, 0.0),
        ({"retry_after": formatdate(0, usegmt=True)}, 0.0),
        ({"retry_after": "Fri, 27 Nov 2099 12:00:00 +" + "9" * 20}, None),
        ({"x_ratelimit_remaining_requests": "0", "x_ratelimit_reset_requests": "20ms"}, 0.02),
        (
            {
                "x_ratelimit_remaining_requests": "9",
                "x_ratelimit_reset_requests": "1s",
                "x_ratelimit_remaining_tokens": "0",
                "x_ratelimit_reset_tokens": "1m30s",
            },
            90.0,
        ),
        ({"x_ratelimit_reset_tokens": "7"}, 7.0),
    ],
)
def test_how_long_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    found = failure(answer(429, error("slow down"), **headers), ENDPOINT)
    assert isinstance(found, ModelUnavailable)
    assert found.retry_after_s == (pytest.approx(seconds) if seconds is not None else None)
    assert retry_after_s({}) is None


@pytest.mark.parametrize(("status", "limited"), [(429, True), (503, False)])
def test_an_engine_that_limits_its_calls_is_told_by_its_status_not_by_its_words(
    status: int, limited: bool
) -> None:
    found = failure(answer(status, error("an engine behind me answered 429")), ENDPOINT)
    assert isinstance(found, ModelUnavailable)
    assert isinstance(found, ModelLimited) == limited


@pytest.mark.parametrize(
    ("body", "cls", "said"),
    [
        ({"error": {"code": 502, "message": "upstream is gone"}}, ModelUnavailable, "answered 502: upstream"),
        ({"error": {"code": 403, "message": "flagged"}}, ModelRefused, "answered 403: flagged"),
        ({"error": {"code": "oops", "message": "m"}}, ModelUnavailable, "is no response"),
        (b"<html>", ModelUnavailable, "is no response"),
    ],
)
def test_what_a_router_says_with_status_200(body: Any, cls: type[ModelError], said: str) -> None:
    found = not_an_answer(answer(200, body), ENDPOINT, "no 'choices'")
    assert type(found) is cls
    assert said in found.message

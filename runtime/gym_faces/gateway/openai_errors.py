"""Errors as OpenAI's two APIs write them."""

from __future__ import annotations

from gym_faces.gateway.dialect import Kind, Problem, encode

_FORMS: dict[Kind, tuple[int, str, str | None]] = {
    "invalid": (400, "invalid_request_error", None),
    "unauthorized": (401, "invalid_request_error", "invalid_api_key"),
    "forbidden": (403, "invalid_request_error", "forbidden"),
    "slow": (408, "invalid_request_error", "request_timeout"),
    "media_type": (415, "invalid_request_error", "unsupported_media_type"),
    "too_large": (413, "invalid_request_error", "request_too_large"),
    "not_found": (404, "invalid_request_error", "not_found"),
    "rate_limit": (429, "requests", "rate_limit_exceeded"),
    "overloaded": (503, "server_error", "server_overloaded"),
    "timeout": (504, "server_error", "timeout"),
    "internal": (500, "server_error", None),
}


def error(problem: Problem) -> tuple[int, bytes]:
    """Status and body."""
    status, kind, code = _FORMS[problem.kind]
    return status, encode({"error": {"message": problem.message, "type": kind, "param": None, "code": code}})

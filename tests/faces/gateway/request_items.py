"""Requests of each API, and what becomes of them."""

from __future__ import annotations

import json
from typing import Any

from gym_faces.dialects.dialect import ApiDialect, Asked

USER = {"role": "user", "content": "hi"}


def read(dialect: ApiDialect, body: Any) -> Asked:
    return dialect.read(body if isinstance(body, bytes) else json.dumps(body).encode())


def chat(**more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [USER], **more}


def said(*messages: Any) -> dict[str, Any]:
    return chat(messages=list(messages))


def anthropic(**more: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 9, "messages": [USER], **more}


def items(asked: Asked) -> list[Any]:
    return [json.loads(bytes(raw)) for raw in asked.call.input]


def params(asked: Asked) -> dict[str, Any]:
    found = json.loads(bytes(asked.call.params))
    if "metadata" in found and "extra_body" in found["metadata"]:
        found["metadata"]["extra_body"] = json.loads(found["metadata"]["extra_body"])
    return found

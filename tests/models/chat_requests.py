"""Requests to a chat engine."""

from __future__ import annotations

import json
from typing import Any

from gym_faces.dialects import chat_request
from gym_faces.dialects.chat_request import ChatVariant
from gym_runtime.messages.calls import ModelCall
from msgspec import Raw


def converted(
    items: list[dict[str, Any]],
    params: dict[str, Any] | None = None,
    *,
    extra: dict[str, Any] | None = None,
    dialect: ChatVariant | None = None,
    return_tokens: bool = False,
) -> dict[str, Any]:
    call = ModelCall(
        params=Raw(json.dumps(params or {}).encode()),
        input=[Raw(json.dumps(item).encode()) for item in items],
        return_tokens=return_tokens,
    )
    return json.loads(
        chat_request.write_request(call, "m", json.dumps(extra or {}).encode(), dialect or ChatVariant())
    )


def messages(items: list[dict[str, Any]], **more: Any) -> list[dict[str, Any]]:
    return converted(items, **more)["messages"]


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def said(*texts: str) -> dict[str, Any]:
    parts = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": parts}

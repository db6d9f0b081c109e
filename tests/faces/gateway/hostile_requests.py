"""Connections and requests of hostile clients."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from anyio.abc import SocketStream
from faces.gateway.running_gateway import RunningGateway

CHAT = {"model": "policy", "messages": [{"role": "user", "content": "hi"}]}


ANTHROPIC = {**CHAT, "max_tokens": 9}


RESPONSES = {"model": "policy", "input": "hi"}


ALL: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", CHAT),
    ("/v1/responses", RESPONSES),
    ("/v1/messages", ANTHROPIC),
]


def message_of(body: Any) -> str:
    """An error's message, whose form is checked: all dialects have it there."""
    assert isinstance(body["error"]["type"], str)
    return body["error"]["message"]


@asynccontextmanager
async def connection(stand: RunningGateway) -> AsyncGenerator[SocketStream]:
    host, _, port = stand.url.removeprefix("http://").rpartition(":")
    async with await anyio.connect_tcp(host, int(port)) as stream:
        yield stream


def head(path: str = "/v1/responses", *lines: str, length: int | None = None) -> bytes:
    said = [f"POST {path} HTTP/1.1", "host: localhost", "content-type: application/json", *lines]
    return "\r\n".join([*said, *([] if length is None else [f"content-length: {length}"]), "", ""]).encode()

"""Answers of a server: as they should be, and everything else."""

from __future__ import annotations

from typing import Any

import anyio
from aiohttp import web


def saying(answer: Any, status: int = 200) -> Any:
    async def handler(request: web.Request) -> web.Response:
        return web.json_response(answer, status=status)

    return handler


def raw(body: bytes, status: int = 200, **headers: str) -> Any:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(body=body, status=status, headers=headers)

    return handler


async def hang(request: web.Request) -> web.Response:
    await anyio.sleep_forever()
    raise AssertionError


async def echo(request: web.Request) -> web.Response:
    return web.json_response({"detail": dict(request.headers)}, status=500)


WRONG: dict[str, Any] = {
    "garbage": raw(b"\xff\x00<html>"),
    "nothing": raw(b""),
    "deep": raw(b"[" * 50_000),
    "another answer": saying({"hello": [1]}),
    "null": saying(None),
    "403": saying({"detail": "no"}, 403),
    "500": saying({"detail": "Traceback\n ValueError('boom')"}, 500),
    "503": raw(b"down", 503),
    "echo": echo,
    "giant": raw(b"[" + b"1," * 60_000 + b"1]"),
    "hang": hang,
    "elsewhere": raw(b"", 302, Location="http://localhost:1/reset"),
}

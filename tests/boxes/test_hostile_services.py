"""Services and boxes that answer with redirects, floods, echoes and nonsense."""

from __future__ import annotations

import gzip
import struct
from collections.abc import AsyncGenerator

import anyio
import pytest
from aiohttp import web
from boxes.hostile_service import answering
from gym_boxes import BoxUnknown, Provider
from gym_boxes.e2b import E2B
from gym_boxes.kubernetes import Kubernetes
from gym_runtime import ResourceError

pytestmark = pytest.mark.anyio
KEY, TOKEN = "e2b_0123456789abcdef", "token-of-an-account"


class Service:
    """Both services at once: boxes are there, and all that concerns a box is answered by the test."""

    def __init__(self, url: str) -> None:
        self.e2b = E2B(KEY, api_url=url, sandbox_url=url)
        self.pods = Kubernetes(url, token=TOKEN)

    @property
    def both(self) -> tuple[Provider, Provider]:
        return self.e2b, self.pods


@pytest.fixture
def seen() -> list[str]:
    """The paths of requests."""
    return []


@pytest.fixture
async def elsewhere(seen: list[str]) -> AsyncGenerator[str]:
    """Another server, to which nothing must be sent."""

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.path)
        return web.Response(body=b"secret")

    async with answering(answer) as url:
        yield url


def frame(body: bytes, flags: int = 0) -> bytes:
    return struct.pack(">BI", flags, len(body)) + body


def known(request: web.Request) -> web.Response | None:
    """The answers that a box needs before it is asked for anything."""
    if request.path.endswith("/connect"):
        return web.json_response({"sandboxID": "b"})
    if request.path.endswith("/pods/gym-b"):
        return web.json_response({"metadata": {"name": "gym-b"}, "status": {"phase": "Running"}})
    return None


async def test_no_redirect_is_followed(seen: list[str], elsewhere: str) -> None:
    async def answer(request: web.Request) -> web.Response:
        if found := known(request):
            return found
        raise web.HTTPTemporaryRedirect(f"{elsewhere}/metadata")

    async with answering(answer) as url:
        service = Service(url)
        for box, provider in (("b", service.e2b), ("gym-b", service.pods)):
            with pytest.raises(BoxUnknown):
                await provider.exec(box, "true", timeout_s=5)
            with pytest.raises(BoxUnknown):
                await provider.list("a.")
        with pytest.raises(BoxUnknown, match="307"):
            await service.e2b.get("b", "/f")
        with pytest.raises(BoxUnknown, match="307"):
            await service.e2b.put("b", "/f", b"data")
        for provider in service.both:
            await provider.aclose()
    assert seen == []


async def test_a_box_that_sends_more_than_was_asked_for_is_not_read_to_the_end() -> None:
    sent = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        if found := known(request):
            return found
        if request.query.get("path") == "/zip":
            return web.Response(body=gzip.compress(bytes(1 << 20)), headers={"Content-Encoding": "gzip"})
        endless = web.StreamResponse()
        await endless.prepare(request)
        while True:
            await endless.write(bytes(1 << 16))
            sent += 1 << 16

    async with answering(answer) as url:
        service = Service(url)
        with pytest.raises(ResourceError, match="more than 1,000 bytes"):
            await service.e2b.get("b", "/f", most_bytes=1000)
        with pytest.raises(BoxUnknown, match="compresses"):
            await service.e2b.get("b", "/zip")
        for provider in service.both:
            with pytest.raises(BoxUnknown, match="more than"):
                await provider.list("a.")
            await provider.aclose()
    assert sent < 100 << 20


async def test_a_flood_of_frames_leaves_the_loop_to_others() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        if found := known(request):
            return found
        flood = web.StreamResponse()
        await flood.prepare(request)
        await flood.write(frame(b"{}") * 40_000 + frame(b"{}", 2))
        return flood

    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    async with answering(answer) as url:
        service = Service(url)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turn)
            with pytest.raises(BoxUnknown, match="does not say how"):
                await service.e2b.exec("b", "true", timeout_s=30)
            tasks.cancel_scope.cancel()
        assert turns > 40_000, "there is a turn for others between two frames"
        await service.e2b.aclose()


async def test_no_key_is_in_an_error() -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=500, text=f"bad gateway: {dict(request.headers)}")

    async with answering(answer) as url:
        for provider in Service(url).both:
            with pytest.raises(BoxUnknown, match=r"bad gateway.*\[key\]") as raised:
                await provider.list("a.")
            assert KEY not in str(raised.value)
            assert TOKEN not in str(raised.value)
            await provider.aclose()


@pytest.mark.parametrize(
    "body", [b'[{"sandboxID":"b","x":' + b"[" * 100_000, b'[{"sandboxID":"\xff"}]', b"<html>"]
)
async def test_nonsense_is_one_clear_line(body: bytes) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=body)

    async with answering(answer) as url:
        for provider in Service(url).both:
            with pytest.raises(BoxUnknown, match="something else than its API says"):
                await provider.list("a.")
            await provider.aclose()

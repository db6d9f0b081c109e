"""Engines that answer without an end, that unpack to gigabytes, that speak no HTTP, or that repeat keys."""

from __future__ import annotations

import gzip
import json
import resource
import traceback
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from gym_models.openai import Adapter
from gym_models.wire.aiohttp_client import AiohttpClient
from gym_models.wire.endpoint import at, base_url
from gym_models.wire.http import Pool
from gym_models.wire.quoted import Quoted, hide, secrets_of
from gym_models.wire.reply import READING, Reading
from gym_runtime.errors import DeadlineExceeded, GymError, ModelRefused, ModelUnavailable, UsageError
from gym_runtime.workers.adapter import ModelSettings
from models.model_calls import context, model_call, output
from stubs import stub_dialects
from tables import table

pytestmark = pytest.mark.anyio

KEY = "zq7Xw2Lp9Rt4Vb8Nc3Md6Kf1"
Speak = Callable[[SocketStream], Awaitable[None]]
SOUND = stub_dialects.responses_answer(stub_dialects.decode_call(b'{"model":"m","input":"hi"}'), 100)


def head(status: int = 200, **headers: Any) -> bytes:
    lines = [
        f"HTTP/1.1 {status} Said",
        *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def whole(body: bytes, status: int = 200, **headers: Any) -> Speak:
    async def speak(stream: SocketStream) -> None:
        await stream.send(head(status, content_length=len(body), **headers) + body)

    return speak


def without_end(piece: bytes, status: int = 200, pause_s: float = 0.0, **headers: Any) -> Speak:
    async def speak(stream: SocketStream) -> None:
        await stream.send(head(status, transfer_encoding="chunked", **headers))
        while True:
            await stream.send(b"%x\r\n%b\r\n" % (len(piece), piece))
            await anyio.sleep(pause_s)

    return speak


@asynccontextmanager
async def engine(speak: Speak, **more: Any) -> AsyncGenerator[Adapter]:
    """An adapter before a server that speaks so; each connection is one request."""

    async def serve(stream: SocketStream) -> None:
        async with stream:
            received = b""
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                while b"\r\n\r\n" not in received:
                    received += await stream.receive()
                lower = received.lower()
                length = int(lower.partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
                while len(received.partition(b"\r\n\r\n")[2]) < length:
                    received += await stream.receive()
                await speak(stream)

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, serve)
        port = listener.extra(SocketAttribute.local_port)
        settings = ModelSettings(
            provider="openai",
            name="m",
            urls=(f"http://127.0.0.1:{port}/v1",),
            api="responses",
            options={"check_model": False},
            **more,
        )
        adapter = Adapter(settings)
        made = adapter._engine(  # pyright: ignore[reportPrivateUsage] - no check before the first call
            at(settings.urls[0], settings)
        )
        async with made:
            yield made  # type: ignore[misc]
        tasks.cancel_scope.cancel()


async def said(speak: Speak, *, limit_s: float | None = None, **more: Any) -> GymError:
    """The error that such an engine's answer becomes; nothing of the key is in it or in its traceback."""
    async with engine(speak, **more) as adapter:
        with pytest.raises(GymError) as caught:
            await adapter.respond(model_call(), context(limit_s=limit_s))
    whole_story = "".join(traceback.format_exception(caught.value)) + repr(caught.value.fault())
    for start in range(len(KEY) - 7):
        assert KEY[start : start + 8] not in whole_story
    return caught.value


# -- bounds --------------------------------------------------------------------------------------------


def bomb(size_bytes: int) -> bytes:
    """Zeros, packed by gzip, without the check sum at the end."""
    packing = zlib.compressobj(9, wbits=31)
    piece = bytes(2**20)
    first = packing.compress(piece) + packing.flush(zlib.Z_FULL_FLUSH)
    further = packing.compress(piece) + packing.flush(zlib.Z_FULL_FLUSH)  # the same each time
    return first + further * (size_bytes // len(piece) - 1)


BOMB = bomb(2**30)


@table(
    "speak",
    [
        whole(BOMB, content_encoding="gzip"),
        whole(BOMB, content_encoding="deflate"),
        without_end(b" " * 2**18),
        without_end(b"data: {}\n\n" * 2**14, content_type="text/event-stream"),
        whole(b'{"output":[' + b"{}," * 2**20 + b"{}]}"),
        whole(b'{"output":[' + b"1," * 2**23 + b"1]}"),
    ],
    ids=["gzip", "deflate", "no end", "a stream without an end", "objects", "values"],
)
async def test_what_is_read_has_a_bound(speak: Speak) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    error = await said(speak)
    grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown_mib < 250
    assert isinstance(error, ModelRefused)
    assert "more than 64 MiB" in error.message


@table(
    "speak",
    [without_end(b" " * 2**18), whole(BOMB, content_encoding="gzip")],
    ids=["no end", "gzip"],
)
@pytest.mark.slow
async def test_what_all_calls_read_together_has_a_bound(
    speak: Speak, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(READING, "_most_bytes", 2**26)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with engine(speak) as adapter, anyio.create_task_group() as tasks:

        async def refused() -> None:
            with pytest.raises(ModelRefused, match="more than 64 MiB"):
                await adapter.respond(model_call(), context())

        for _ in range(12):
            tasks.start_soon(refused)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 < 350


@table("secure", [False, True])
async def test_large_answers_wait_for_each_other_and_all_come(
    secure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(READING, "_most_bytes", 2**20)
    if secure:  # the client of hosts

        def made(pool: Pool) -> AiohttpClient:
            return AiohttpClient(pool.endpoint.url, {}, reuse=True, proxied=False)

        monkeypatch.setattr(Pool, "_made", made)
    large = SOUND.rstrip()[:-1] + b',"more":"' + b"x" * 2**22 + b'"}'
    answered = 0
    async with engine(whole(large)) as adapter, anyio.create_task_group() as tasks:

        async def call() -> None:
            nonlocal answered
            assert output(await adapter.respond(model_call(), context()))
            answered += 1

        for _ in range(8):
            tasks.start_soon(call)
    assert answered == 8


def test_the_first_large_answer_never_waits() -> None:
    reading, gone_on = Reading(2**20), list[str]()

    def grows(name: str, size_bytes: int) -> bool:
        return reading.waits(name, size_bytes, lambda: gone_on.append(name))

    assert not grows("first", 2**20)
    assert not grows("small", 1000)
    assert grows("second", 2**19)
    assert grows("third", 2**20)
    assert not grows("first", 2**21)
    reading.ended("first")
    assert gone_on == ["second"]  # the first now; together they are still too large
    reading.ended("second")
    assert gone_on == ["second", "third"]
    reading.ended("third")
    assert not grows("fourth", 2**20)


async def test_a_length_beyond_the_bound_is_not_waited_for() -> None:
    async def speak(stream: SocketStream) -> None:
        await stream.send(head(content_length=10 * 2**30))
        await anyio.sleep_forever()

    assert "more than 64 MiB" in (await said(speak)).message


async def test_what_drips_ends_with_the_deadline() -> None:
    error = await said(without_end(b" ", pause_s=0.01), limit_s=0.3)
    assert isinstance(error, DeadlineExceeded)


async def test_an_error_without_an_end_is_still_that_error() -> None:
    error = await said(without_end(b"overloaded " * 1000, status=503))
    assert isinstance(error, ModelUnavailable)
    assert "answered 503: overloaded overloaded" in error.message
    assert len(error.message) < 400


@pytest.mark.parametrize(
    ("speak", "reason"),
    [
        (whole(SOUND, content_encoding="br"), "packed as 'br'"),
        (whole(b"not gzip", content_encoding="gzip"), "packed, and broken"),
        (whole(gzip.compress(SOUND)[:-20], content_encoding="gzip"), "packed, and breaks off"),
        (whole(b"[" * 2**20), "is no response"),
        (whole(b'{"output":' + b"[" * 2**20), "is no response"),
    ],
)
async def test_bodies_that_cannot_be_read(speak: Speak, reason: str) -> None:
    error = await said(speak)
    assert isinstance(error, ModelUnavailable)
    assert reason in error.message


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "deflate", "identity"])
async def test_packed_answers_are_read(encoding: str) -> None:
    packed = {"identity": SOUND, "deflate": zlib.compress(SOUND)}.get(encoding, gzip.compress(SOUND))
    if encoding == "gzip":  # as one piece after the other
        packed = gzip.compress(SOUND[:50]) + gzip.compress(SOUND[50:])
    async with engine(whole(packed, content_encoding=encoding)) as adapter:
        assert output(await adapter.respond(model_call(), context()))


# -- secrets -------------------------------------------------------------------------------------------


FAILED = {"output": [], "status": "failed", "error": {"code": "server_error", "message": f"I know {KEY}"}}


@table(
    "speak",
    [
        whole(json.dumps(FAILED).encode()),
        whole(json.dumps({**FAILED, "error": {"code": KEY, "message": "m"}}).encode()),
        whole(json.dumps({**FAILED, "id": 3}).encode()),
        whole(b"HTTP/1.1 200 OK\r\n", status=f"{KEY}"),  # type: ignore[arg-type]
        whole(b"", x_bad=f"Bearer {KEY}\x01\x00"),
        whole(json.dumps({"error": {"message": "x" * 285 + KEY}}).encode(), status=400),
        whole(("x " * 9990 + KEY).encode(), status=500),
        whole(b"{" + b" " * 70 + KEY.encode()),
        whole(KEY.encode()),
        whole(json.dumps({"output": KEY}).encode()),
        whole(f"<p>{KEY[:14]}</p><p>{KEY[10:]}</p>".encode(), status=502),
        whole(json.dumps({"detail": [{"headers": {"authorization": f"Bearer {KEY}"}}]}).encode(), status=422),
    ],
)
@table("header", ["authorization", "X-Api-Key"])
async def test_no_key_comes_back_in_an_error(speak: Speak, header: str) -> None:
    value = f"Bearer {KEY}" if header == "authorization" else KEY
    await said(speak, headers={header: value})


async def test_a_placeholder_garbles_no_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    error = await said(whole(b'{"error":{"message":"max_tokens exceeds the context box"}}', status=500))
    assert error.message.endswith("answered 500: max_tokens exceeds the context box")


def test_a_quotation_cannot_be_printed_with_its_secret() -> None:
    quoted = Quoted(f"key={KEY}.", (KEY,))
    for text in (str(quoted), repr(quoted), f"{quoted}", f"{quoted!r:>40}", "%s" % quoted, quoted.cut(300)):  # noqa: UP031
        assert KEY not in text
        assert "[key]" in text
    assert not hasattr(quoted, "__dict__")


@table("before", range(275, 300))
def test_a_text_is_cut_after_its_secrets_are_out(before: int) -> None:
    shown = Quoted("x" * before + KEY, (KEY,)).cut(300)
    assert KEY[:1] not in shown
    assert len(shown) <= 300


@table(
    ("text", "secrets", "shown"),
    [
        ("a short1234 b", ["short1234"], "a [key] b"),
        ("ashort1234b", ["short1234"], "ashort1234b"),
        (f"{KEY}{KEY}", [KEY], "[key]"),
        (f"…{KEY[:13]}", [KEY], "…[key]"),
        (f"{KEY[-12:]}…", [KEY], "[key]…"),
        ("the organization", ["organization-token-of-mine"], "the organization"),
        ("sk-proj-0123456789abc, hf_hub_download", [], "[key], hf_hub_download"),
        ("at https://me:hunter2@host/v1", [], "at https://[key]@host/v1"),
        ("AIzaSyA0123456789abcdefghij", [], "[key]"),
        ("eyJhbGciOiJI.eyJzdWIiOiIx.c2ln", [], "[key]"),
    ],
)
def test_what_is_hidden(text: str, secrets: list[str], shown: str) -> None:
    assert hide(text, secrets) == shown


def test_secrets_have_several_forms() -> None:
    found = secrets_of({"authorization": 'Bearer a/b"c d+e=fgh', "x-team": "blue-team-1", "api-key": "x"})
    assert set(found) == {'a/b"c d+e=fgh', 'a/b\\"c d+e=fgh', "a%2Fb%22c%20d%2Be%3Dfgh"}


# -- logins in URLs ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "http://me:hunter2@host:8000/v1",
        "https://hunter2@host/v1",
        "me:hunter2@host:8000/v1",
        "http://me:hun/ter2hunter2@host/v1",
        "http://me:?hunter2@host/v1",
        "http://host/v1?api_key=hunter2",
        "http://host/v1#hunter2",
        "dns:me:hunter2@host:8000",
    ],
)
def test_a_url_with_a_login_is_refused_and_not_shown(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="a model URL holds") as caught:
        ModelSettings(provider="openai", name="m", urls=(url,))
    assert "hunter2" not in caught.value.message
    with pytest.raises(UsageError) as caught:  # from the environment, or a file of replicas
        base_url(url)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))
    assert "me:hu" not in caught.value.message


@pytest.mark.parametrize(
    "url", ["http://host:8000/@cf/v1", "http://[::1]:8000/v1", "file:me@home?/replicas.txt", "dns:host:80"]
)
def test_urls_without_a_login(url: str) -> None:
    assert ModelSettings(provider="openai", name="m", urls=(url,)).urls == (url,)


def test_settings_do_not_show_their_headers() -> None:
    assert KEY not in repr(ModelSettings(provider="openai", name="m", headers={"x-key": KEY}))

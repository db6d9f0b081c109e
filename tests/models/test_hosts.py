"""What hosted engines ask of a client: who we are, through which proxy, how fast."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import time
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import anyio
import pytest
from gym_models.openai import Adapter
from gym_models.wire import rate_limit
from gym_models.wire.endpoint import Endpoint
from gym_models.wire.http import Pool
from gym_models.wire.rate_limit import Limit
from gym_runtime import clock
from gym_runtime.errors import ModelRefused, ModelUnavailable, UsageError
from gym_runtime.workers.adapter import ModelSettings
from models.json_server import JsonHandler, serving
from models.model_calls import context, decoded, model_call, output
from models.proxy import proxied
from stubs import stub_engine
from stubs.stub_engine import StubEngine
from tables import table
from time_limits import busy

pytestmark = pytest.mark.anyio
HOST = "http://models.example.com/v1"
KEY = "sk-test-0123456789"


def settings(*urls: str, **more: Any) -> ModelSettings:
    return ModelSettings(provider="openai", name="stub", urls=urls, **more)


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


# -- who we are ---------------------------------------------------------------------------------------


async def test_a_host_is_told_who_we_are(stub: StubEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    async with proxied(stub.url) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
        monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-1")
        mine = settings(HOST, headers={"X-Team": "blue"}, extra_body={"metadata": {"run": "7"}})
        async with Adapter(mine) as adapter:
            await adapter.respond(model_call(), context(traceparent="00-1-2-01"))
    seen = stub.last()
    assert seen.headers["authorization"] == f"Bearer {KEY}"
    assert seen.headers["openai-organization"] == "org-1"
    assert seen.headers["openai-project"] == "proj-1"
    assert seen.headers["x-team"] == "blue"
    assert seen.headers["traceparent"] == "00-1-2-01"
    assert '"run":"7"' in seen.body
    assert "x-session-id" not in seen.headers


# -- through which proxy ------------------------------------------------------------------------------


@pytest.mark.parametrize("api", ["responses", "chat", "auto"])
async def test_a_host_is_reached_through_the_proxy(
    stub: StubEngine, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with proxied(stub.url) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        async with Adapter(settings(HOST, api=api)) as adapter:
            assert output(await adapter.respond(model_call(), context()))
        assert f"GET {HOST}/models" in proxy.requests
        path = "chat/completions" if api == "chat" else "responses"
        assert proxy.requests[-1] == f"POST {HOST}/{path}"


async def test_a_proxy_for_all_that_is_named_without_a_scheme(
    stub: StubEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with proxied(stub.url) as proxy:
        monkeypatch.setenv("ALL_PROXY", proxy.url.removeprefix("http://"))
        async with Adapter(settings(HOST)):
            assert f"GET {HOST}/models" in proxy.requests


async def test_a_proxy_that_is_not_spoken_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://me:pass@127.0.0.1:1080")
    with pytest.raises(UsageError, match=r"names a 'socks5' proxy for .* set HTTP_PROXY=") as caught:
        await Adapter(settings(HOST)).__aenter__()
    assert "pass" not in caught.value.message


async def test_a_proxy_that_wants_a_login(stub: StubEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    async with proxied(stub.url, login="me:pass") as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url.replace("//", "//me:pass@"))
        async with Adapter(settings(HOST)) as adapter:
            assert output(await adapter.respond(model_call(), context()))
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        # A page that is no list of models passes the look before the first call, which then says why.
        async with Adapter(settings(HOST, api="responses")) as adapter:
            with pytest.raises(ModelRefused, match="407"):
                await adapter.respond(model_call(), context())


async def test_an_engine_of_ours_is_reached_without_the_proxy(
    stub: StubEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with proxied(stub.url) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        async with Adapter(settings(stub.url)) as adapter:
            assert output(await adapter.respond(model_call(), context()))
        assert proxy.requests == []


async def test_a_proxy_that_lets_no_tls_through(stub: StubEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    async with proxied(stub.url) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        with pytest.raises(UsageError, match=r"models\.example\.com.*403"):
            await Adapter(settings("https://models.example.com/v1")).__aenter__()
        assert proxy.requests == ["CONNECT models.example.com:443"]


# -- TLS ----------------------------------------------------------------------------------------------


async def failure_of_tls(serve: Any, tls: ssl.SSLContext | None = None) -> ModelUnavailable | ModelRefused:
    """What a call fails with at a server that treats each connection so."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    async with server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        async with Pool(Endpoint(url=url, headers={}, private=False)) as pool:
            with pytest.raises((ModelUnavailable, ModelRefused)) as caught:
                await pool.post("/responses", b"{}", deadline_s=clock.monotonic() + 10 * busy())
    assert isinstance(caught.value, ModelUnavailable | ModelRefused)
    return caught.value


@table(
    ("said", "error"),
    [
        (b"\x15\x03\x03\x00\x02\x02\x50", ModelUnavailable),  # the alert "internal error"
        (b"\x15\x03\x03\x00\x02\x01\x00", ModelUnavailable),  # "close notify"
        (b"", ModelUnavailable),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", ModelRefused),
    ],
)
async def test_a_handshake_that_ends_early_may_be_tried_again(said: bytes, error: type[Exception]) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(said)
        writer.close()

    assert type(await failure_of_tls(serve)) is error


async def test_a_certificate_that_is_not_trusted_is_so_for_any_call(tmp_path: Path) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs openssl")
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    request = f"req -x509 -newkey rsa:2048 -nodes -keyout {key} -out {certificate} -subj /CN=localhost"
    await anyio.run_process([openssl, *request.split(), "-addext", "subjectAltName=IP:127.0.0.1"])
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(certificate, key)
    error = await failure_of_tls(lambda reader, writer: writer.close(), own)
    assert isinstance(error, ModelRefused)
    assert error.any_call  # so that another replica is asked
    assert "certificate verify failed" in error.message


# -- how fast -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("api", ["responses", "chat", "auto"])
@pytest.mark.slow
async def test_a_rate_limit_is_kept_to_before_the_host_refuses(api: str) -> None:
    with stub_engine.running("--rate-limit", "4", "--rate-window-s", "0.4") as stub:
        async with Adapter(settings(stub.url, api=api)) as adapter:
            started = time.perf_counter()
            for _ in range(10):
                await adapter.respond(model_call(), context())
            assert time.perf_counter() - started > 0.7
            assert stub.stats().limited == 0


@pytest.mark.slow
async def test_many_callers_share_a_rate_limit() -> None:
    """The first ones come before anybody knows of a limit; after that, hardly any is refused."""
    with stub_engine.running("--rate-limit", "20", "--rate-window-s", str(0.3 * busy())) as stub:
        async with Adapter(settings(stub.url, api="responses")) as adapter:
            await adapter.respond(model_call(), context())
            answered: list[str] = []

            async def call(number: int) -> None:
                while True:
                    try:
                        answer = await adapter.respond(model_call(), context(rollout=f"r.{number}.0"))
                    except ModelUnavailable:
                        continue  # held by the pace
                    else:
                        answered.append(decoded(answer).id)
                        return

            async with anyio.create_task_group() as tasks:
                for number in range(80):
                    tasks.start_soon(call, number)
            assert len(set(answered)) == 80
            assert stub.stats().limited <= 8


async def test_a_429_holds_the_other_calls_too() -> None:
    with stub_engine.running("--retry-after-s", "0.3") as stub:
        async with Adapter(settings(stub.url, api="responses")) as adapter:
            with pytest.raises(ModelUnavailable, match="429") as caught:
                await adapter.respond(model_call(), context(x_stub_fault="429"))
            assert caught.value.retry_after_s == pytest.approx(0.3)
            started = time.perf_counter()
            assert output(await adapter.respond(model_call(), context()))
            assert time.perf_counter() - started > 0.25


async def test_a_limit_that_outlasts_the_deadline_is_said_at_once() -> None:
    with stub_engine.running("--rate-limit", "1", "--rate-window-s", "50") as stub:
        async with Adapter(settings(stub.url, api="responses")) as adapter:
            await adapter.respond(model_call(), context())
            with pytest.raises(ModelUnavailable, match="rate limit that is used up") as caught:
                await adapter.respond(model_call(), context(limit_s=5))
            assert caught.value.retry_after_s == pytest.approx(50, abs=2)
            assert stub.stats().requests == 1


@pytest.mark.parametrize("said", ["-1", "0", "nan"])
async def test_an_engine_that_announces_no_limit_is_asked_without_a_pause(said: str) -> None:
    names = ("limit", "remaining", "reset")
    headers = {f"x-ratelimit-{name}-requests": "0" if name == "reset" else said for name in names}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Announcing)
    Announcing.headers_said, Announcing.status = headers, 200
    with serving(server) as url:
        async with Adapter(settings(url, api="chat")) as adapter:
            for _ in range(3):
                assert output(await adapter.respond(model_call(), context()))


async def test_an_absurd_pause_holds_the_other_calls_for_a_minute_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rate_limit, "LONGEST_HOLD_S", 0.2)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Announcing)
    Announcing.headers_said, Announcing.status = {"retry-after": "600000"}, 429
    with serving(server) as url:
        async with Adapter(settings(url, api="chat")) as adapter:
            with pytest.raises(ModelUnavailable, match="429") as caught:
                await adapter.respond(model_call(), context())
            assert caught.value.retry_after_s == 600000
            Announcing.status = 200
            assert output(await adapter.respond(model_call(), context()))


class Announcing(JsonHandler):
    """Answers each call with ``status`` and the headers ``headers_said``."""

    headers_said: ClassVar[dict[str, str]] = {}
    status = 200

    def do_GET(self) -> None:
        self.answer({"data": [{"id": "stub"}]})

    def do_POST(self) -> None:
        self.asked()
        self.answer(COMPLETION if self.status == 200 else {"error": {"message": "slow down"}}, self.status)

    def end_headers(self) -> None:
        for name, value in self.headers_said.items() if self.command == "POST" else ():
            self.send_header(name, value)
        super().end_headers()


COMPLETION = {"choices": [{"message": {"content": "yes"}, "finish_reason": "stop"}]}
NOW_S = 1_800_000_000.0


@pytest.mark.parametrize(
    ("status", "headers", "found"),
    [
        (200, {}, None),
        (200, {"x-ratelimit-remaining-requests": "3"}, None),
        (
            200,
            {
                "x-ratelimit-limit-requests": "60",
                "x-ratelimit-remaining-requests": "59",
                "x-ratelimit-reset-requests": "1s",
            },
            Limit(left=59, limit=60, reset_s=1),
        ),
        (
            200,
            {
                "x-ratelimit-remaining-requests": "9",
                "x-ratelimit-reset-requests": "1s",
                "x-ratelimit-remaining-tokens": "0",
                "x-ratelimit-reset-tokens": "6s",
            },
            Limit(left=0, limit=float("inf"), reset_s=6),
        ),
        (
            200,
            {
                "x-ratelimit-limit-requests": "14400",
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-requests": "24h0m0s",
            },
            Limit(left=0, limit=1, reset_s=6),
        ),
        (
            200,
            {
                "anthropic-ratelimit-requests-limit": "50",
                "anthropic-ratelimit-requests-remaining": "49",
                "anthropic-ratelimit-requests-reset": "2027-01-15T08:00:30Z",
            },
            Limit(left=49, limit=50, reset_s=30),
        ),
        (
            200,
            {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1800000012000", "x-ratelimit-limit": "20"},
            Limit(left=0, limit=20, reset_s=12),
        ),
        (429, {"retry-after": "7"}, Limit(left=0, limit=float("inf"), reset_s=7)),
        (429, {}, None),
        (429, {"retry-after": "86400"}, Limit(left=0, limit=float("inf"), reset_s=60)),
        (429, {"retry-after": "1000000000"}, None),
        (429, {"retry-after": "Wed, 21 Oct 2099 07:28:00 GMT"}, None),
        (
            200,
            {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "120", "x-ratelimit-limit": "0"},
            Limit(left=0, limit=float("inf"), reset_s=60),
        ),
        (
            200,
            {"x-ratelimit-remaining": "-1", "x-ratelimit-reset": "0", "x-ratelimit-limit": "-1"},
            None,
        ),
        (200, {"x-ratelimit-remaining-requests": "soon", "x-ratelimit-reset-requests": "1s"}, None),
    ],
)
def test_reading_limits(status: int, headers: dict[str, str], found: Limit | None) -> None:
    assert rate_limit.read(status, headers, NOW_S) == found

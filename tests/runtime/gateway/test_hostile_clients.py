"""Clients that want memory, time, another rollout's calls, or are a web page in somebody's browser."""

from __future__ import annotations

import gzip
import json
import resource
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream
from gym_runtime.errors import TaskError, UsageError
from gym_runtime.gateway.admission import Admission
from gym_runtime.gateway.capture import Captures
from gym_runtime.gateway.dialect import MAX_ITEMS, MAX_OBJECTS, Problem, Refusal
from gym_runtime.gateway.refusals import refusal
from gym_runtime.gateway.responses_api import RESPONSES as DIALECT
from gym_runtime.gateway.rollout_names import RolloutNames
from gym_runtime.testing.background import settled
from gym_runtime.testing.small_system import Hang, answer
from runtime.gateway.running_gateway import RunningGateway, standing

pytestmark = pytest.mark.anyio

CHAT = {"model": "policy", "messages": [{"role": "user", "content": "hi"}]}
ANTHROPIC = {**CHAT, "max_tokens": 9}
RESPONSES = {"model": "policy", "input": "hi"}
ALL: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", CHAT),
    ("/v1/responses", RESPONSES),
    ("/v1/messages", ANTHROPIC),
]
MIB = 2**20


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


async def status_of(stream: SocketStream) -> int:
    received = b""
    while b"\r\n" not in received:
        received += await stream.receive()
    return int(received.split(b" ", 2)[1])


# -- memory and time -----------------------------------------------------------------------------------


@pytest.mark.parametrize("chunked", [False, True])
async def test_unfinished_bodies_are_not_read_beyond_the_capacity(chunked: bool) -> None:
    piece = b" " * MIB
    statuses: list[int] = []
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    async def send(stand: RunningGateway) -> None:
        async with connection(stand) as stream:
            more = ["transfer-encoding: chunked"] if chunked else []
            await stream.send(head("/v1/responses", *more, length=None if chunked else 31 * MIB))

            async def flood() -> None:
                with suppress(anyio.BrokenResourceError):
                    for _ in range(30):
                        await stream.send(b"%x\r\n%b\r\n" % (MIB, piece) if chunked else piece)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(flood)
                statuses.append(await status_of(stream))
                tasks.cancel_scope.cancel()

    async with standing(answer("x"), capacity=2) as stand, anyio.create_task_group() as clients:
        for _ in range(25):
            clients.start_soon(send, stand)
        admission = stand.gateway.admission
        await settled(lambda: len(statuses) == 23 and admission.held_bytes == 60 * MIB, within_s=15)
        assert stand.gateway.admission.in_use == 2
        clients.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await settled(lambda: stand.gateway.admission.in_use == 0)
            assert stand.gateway.admission.held_bytes == 0
    assert statuses == [429] * 23
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 < 250


async def test_all_bodies_together_have_a_bound() -> None:
    admission = Admission(1024, max_bytes=8 * MIB)
    statuses: list[int] = []

    async def send(stand: RunningGateway) -> None:
        async with connection(stand) as stream:
            with suppress(anyio.BrokenResourceError):
                await stream.send(head(length=3 * MIB) + b" " * (2 * MIB))
            statuses.append(await status_of(stream))

    async with standing(answer("x"), admission=admission) as stand, anyio.create_task_group() as clients:
        for _ in range(25):
            clients.start_soon(send, stand)
        await settled(lambda: len(statuses) >= 21, within_s=15)
        assert 0 < admission.held_bytes <= 8 * MIB
        clients.cancel_scope.cancel()
    assert set(statuses) == {429}


@pytest.mark.parametrize(("path", "body"), ALL)
async def test_a_body_has_to_arrive_in_time(path: str, body: Any) -> None:
    async with standing(answer("x"), admission=Admission(9, body_s=0.1)) as stand:
        async with connection(stand) as stream:
            await stream.send(head(path, length=100) + b"{")
            assert await status_of(stream) == 408
        assert stand.gateway.admission.in_use == 0
        status, _, _ = await stand.post(path, body)
        assert status == 200


async def test_a_connection_that_asks_nothing_is_closed() -> None:
    async with standing(answer("x"), headers_s=0.1) as stand, connection(stand) as stream:
        await stream.send(head(length=9)[:-10])
        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await stream.receive()
        status, _, _ = await stand.post("/v1/responses", RESPONSES)  # one that asks stays
        await anyio.sleep(0.2)
        assert status == 200
        assert (await stand.get("/health"))[0] == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_does_not_read_gives_its_place_back(stream: bool) -> None:
    async with (
        standing(answer("x" * 48 * MIB), write_s=0.2) as stand,
        connection(stand) as client,
    ):
        body = json.dumps({**RESPONSES, "stream": stream}).encode()
        await client.send(head(length=len(body)) + body)
        await settled(lambda: stand.gateway.admission.in_use == 1)
        await settled(lambda: stand.gateway.admission.in_use == 0, within_s=15)
        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            while True:
                await client.receive(MIB)


@pytest.mark.parametrize(("path", "body"), ALL)
async def test_a_request_has_so_many_items_at_most(path: str, body: Any) -> None:
    field = "input" if "input" in body else "messages"
    many = {**body, field: [{"role": "user", "content": ""}] * (MAX_ITEMS + 1)}
    async with standing(answer("x")) as stand:
        status, said, _ = await stand.post(path, many)
        assert (status, field in message_of(said)) == (400, True)
        status, said, _ = await stand.post(path, b'{"a":[' + b"{}," * (MAX_OBJECTS + 1) + b"{}]}")
        assert (status, message_of(said)) == (400, f"the body has more than {MAX_OBJECTS} objects")
        large = {**body, field: [{"role": "user", "content": "x" * (2 * MIB)}]}
        assert (await stand.post(path, large))[0] == 200


# -- bodies that are not what they should be -----------------------------------------------------------


@pytest.mark.parametrize(("path", "body"), ALL)
@pytest.mark.parametrize(
    "kind",
    [
        *("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/json"),
        *("application/json; charset=latin-1", ""),
    ],
)
async def test_a_body_is_json_and_says_so(path: str, body: Any, kind: str) -> None:
    async with standing(answer("x")) as stand:
        status, said, _ = await stand.post(path, body, content_type=kind)
        assert (status, bool(message_of(said))) == (415, True)
        for good in ("application/json; charset=UTF-8", "application/vnd.api+json"):
            status, _, _ = await stand.post(path, body, content_type=good)
            assert status == 200


async def test_a_packed_body_is_not_unpacked() -> None:
    async with standing(answer("x")) as stand:
        packed = gzip.compress(json.dumps(RESPONSES).encode())
        status, said, _ = await stand.post("/v1/responses", packed, content_encoding="gzip")
    assert (status, message_of(said)) == (415, "the content-encoding 'gzip' is not supported")


@pytest.mark.parametrize(("path", "body"), ALL)
@pytest.mark.parametrize("text", ["caf\xe9".encode("latin-1"), b"\xff\xfe", b"\\ud800", b"\x00"])
async def test_a_text_that_is_none_is_the_clients_fault(path: str, body: Any, text: bytes) -> None:
    async with standing(answer("x")) as stand:
        status, said, _ = await stand.post(path, json.dumps(body).encode().replace(b"hi", text))
    assert status == 400
    assert message_of(said)


# -- whose calls they are ------------------------------------------------------------------------------


async def test_a_client_reaches_its_own_rollout_only() -> None:
    async with standing(answer("x"), captures=Captures()) as stand:
        names = stand.gateway.names
        await stand.post(f"/rollouts/{names.of('b')}/v1/responses", RESPONSES)
        (before,) = stand.captures.calls("b") or ()
        mine = f"gym-{names.of('a')}"
        tag = names.of("a").partition("~")[2]
        for target in ("b", "b~", f"b~{tag}", f"b~{'0' * 32}", "b~" + names.of("b")[2:-1]):
            for prefix in ("/rollouts", "/ng-rollout"):
                status, said, _ = await stand.post(
                    f"{prefix}/{target}/v1/responses", RESPONSES, authorization=f"Bearer {mine}"
                )
                assert (status, "name" in message_of(said)) == (401, True)
            for headers in ({}, {"authorization": f"Bearer {mine}"}, {"x-api-key": f"gym-{target}"}):
                for method in ("GET", "DELETE"):
                    url = f"{stand.url}/rollouts/{target}/calls"
                    async with stand.http.request(method, url, headers=headers) as refused:
                        assert refused.status == 401
            status, _, _ = await stand.post("/v1/messages", ANTHROPIC, x_api_key=f"gym-{target}")
            assert status == 401
        async with stand.http.post(f"{stand.url}/rollouts/b", headers={"authorization": mine}) as refused:
            assert refused.status == 401  # to be told the name
        async with stand.http.delete(stand.url + stand.at("b") + "/calls") as refused:
            assert refused.status == 401  # what was recorded stays, whatever its own client would like
        assert stand.captures.calls("b") == [before]
        assert stand.captures.calls("a") is None


async def test_the_launcher_asks_for_names_and_reaches_all() -> None:
    async with standing(answer("x"), names=RolloutNames("a secret of both sides")) as stand:
        launcher = {"authorization": "Bearer a secret of both sides"}
        async with stand.http.post(f"{stand.url}/rollouts/r.0.1", headers=launcher) as said:
            told = await said.json()
        assert told == {
            "rollout_id": "r.0.1",
            "name": RolloutNames("a secret of both sides").of("r.0.1"),
            "key": f"gym-{stand.gateway.names.of('r.0.1')}",
        }
        status, _, _ = await stand.post("/v1/responses", RESPONSES, authorization=f"Bearer {told['key']}")
        assert status == 200
        async with stand.http.get(f"{stand.url}/rollouts/r.0.1/calls", headers=launcher) as said:
            assert len((await said.json())["calls"]) == 1
        async with stand.http.delete(f"{stand.url}/rollouts/r.0.1/calls", headers=launcher) as said:
            assert await said.json() == {"forgotten": 1}


def test_names() -> None:
    one, other = RolloutNames(), RolloutNames()
    assert one.of("r") == one.of("r") != other.of("r") != other.of("s")
    assert one.whose(one.of("r"), "") == "r"
    for strange in (other.of("r"), "r", "r~", "~", one.of("r") + "x"):
        with pytest.raises((Refusal, TaskError)):
            one.whose(strange, "")
    with pytest.raises(UsageError, match="has 5 characters; it needs at least 16"):
        RolloutNames("short")


@pytest.mark.parametrize("name", ["a%0d%0ax-evil:%20y", "a%00", "%2e%2e%2f", "a b", "\u00e9", "a" * 201])
async def test_a_name_injects_nothing(name: str) -> None:
    async with standing(answer("x")) as stand, connection(stand) as stream:
        body = json.dumps(RESPONSES).encode()
        path = f"/rollouts/{name.replace(' ', '%20')}/v1/responses"
        await stream.send(head(path, length=len(body)).replace("\u00e9".encode(), b"%C3%A9") + body)
        said = await stream.receive()
    assert said.startswith((b"HTTP/1.1 400", b"HTTP/1.1 404"))
    assert b"\r\nx-evil" not in said.lower()


@pytest.mark.parametrize("wait_s", [float("inf"), float("nan"), 1e300])
def test_an_engine_that_asks_to_wait_for_ever(wait_s: float) -> None:
    answered = refusal(DIALECT, Problem(kind="overloaded", message="later", retry_after_s=wait_s))
    assert answered.headers["retry-after"] == "3600"


# -- browsers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"host": "evil.example"},
        {"host": "evil.example:80"},
        {"host": "127.0.0.1.nip.io"},
        {"host": "localhost@evil.example"},
        {"host": "[::1"},
        {"host": ""},
    ],
)
@pytest.mark.parametrize(("path", "body"), [*ALL, ("/rollouts/r", {})])
async def test_web_pages_are_not_answered(headers: dict[str, str], path: str, body: Any) -> None:
    async with standing(Hang()) as stand:
        data = json.dumps(body).encode()
        sent = {"content-type": "application/json", **headers}
        async with stand.http.post(stand.url + path, data=data, headers=sent) as said:
            assert said.status in (400, 403)
            assert "access-control-allow-origin" not in said.headers
        async with stand.http.get(f"{stand.url}/v1/models", headers=headers) as said:
            assert said.status in (400, 403)
        assert not stand.engine.calls.items


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:8080", "localhost", "node17", "[::1]:1", "gym.internal", "gateway.example.org", "10.0.0.9"],
)
async def test_its_own_names(host: str) -> None:
    async with (
        standing(answer("x"), hosts=("gateway.example.org",)) as stand,
        stand.http.get(f"{stand.url}/v1/models", headers={"host": host}) as said,
    ):
        assert said.status == 200

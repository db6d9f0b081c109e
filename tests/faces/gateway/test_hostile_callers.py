"""A client reaches its own rollout only; web pages reach none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from faces.gateway.hostile_requests import ALL, ANTHROPIC, RESPONSES, connection, head, message_of
from faces.gateway.running_gateway import standing
from gym_faces.dialects.dialect import Problem, Refusal
from gym_faces.dialects.responses_api import RESPONSES as DIALECT
from gym_faces.gateway.capture import Captures
from gym_faces.gateway.http_errors import refusal
from gym_faces.gateway.rollout_names import RolloutNames
from gym_runtime.errors import TaskError, UsageError
from gym_testing.small_system import Hang, answer
from tables import table

pytestmark = pytest.mark.anyio


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


@table("name", ["a%0d%0ax-evil:%20y", "a%00", "%2e%2e%2f", "a b", "\u00e9", "a" * 201])
async def test_a_name_injects_nothing(name: str) -> None:
    async with standing(answer("x")) as stand, connection(stand) as stream:
        body = json.dumps(RESPONSES).encode()
        path = f"/rollouts/{name.replace(' ', '%20')}/v1/responses"
        await stream.send(head(path, length=len(body)).replace("\u00e9".encode(), b"%C3%A9") + body)
        said = await stream.receive()
    assert said.startswith((b"HTTP/1.1 400", b"HTTP/1.1 404"))
    assert b"\r\nx-evil" not in said.lower()


@table(
    "name",
    ["authorization", "x-api-key", "content-encoding", "cookie", "sec-fetch-site", "x"],
)
async def test_a_header_that_is_not_utf_8_is_the_clients_fault(name: str) -> None:
    async with standing(answer("x")) as stand, connection(stand) as raw:
        # The client library would refuse to send it.
        body = json.dumps(RESPONSES).encode()
        await raw.send(
            head("/v1/responses", f"{name}: KEY", length=len(body)).replace(b"KEY", b"\xff") + body
        )
        said = await raw.receive()
    assert said.startswith(b"HTTP/1.1 400 ")
    assert f"the header '{name}' is not UTF-8".encode() in said


@pytest.mark.parametrize("wait_s", [float("inf"), float("nan"), 1e300])
def test_an_engine_that_asks_to_wait_for_ever(wait_s: float) -> None:
    answered = refusal(DIALECT, Problem(kind="overloaded", message="later", retry_after_s=wait_s))
    assert answered.headers["retry-after"] == "3600"


@table(
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
        {"host": "[::1]x"},
        {"host": "[localhost]"},
        {"host": "localhost:x"},
        {"host": "localhost:65536"},
        {"host": 'a"b'},
        {"host": ""},
    ],
)
@table(("path", "body"), [*ALL, ("/rollouts/r", {})])
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


@table(
    "host",
    ["127.0.0.1:8080", "localhost", "node17", "[::1]:1", "gym.internal", "gateway.example.org", "10.0.0.9"],
)
async def test_its_own_names(host: str) -> None:
    async with (
        standing(answer("x"), hosts=("gateway.example.org",)) as stand,
        stand.http.get(f"{stand.url}/v1/models", headers={"host": host}) as said,
    ):
        assert said.status == 200

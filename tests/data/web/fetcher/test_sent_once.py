"""Requests that change something at a service are sent once."""

from __future__ import annotations

import json

import msgspec
import pytest
from aiohttp import web
from data.web.fetcher.oracle import ORACLE, answers, used_keys
from data.web.site import Site
from gym_data.web.fetcher import Fetcher
from gym_data.web.outside_service import Service
from gym_data.web.web_request import WebAnswer, WebRequest
from gym_runtime.environment import usage
from gym_runtime.errors import ServiceUnavailable

pytestmark = pytest.mark.anyio


async def send(service: Service = ORACLE) -> WebAnswer:
    return await Fetcher().send(service, WebRequest(url=f"{service.base_url}/ask", body=b"{}"))


@pytest.mark.parametrize("status", [200, 400, 403, 404, 429, 500, 503])
async def test_what_changes_something_is_sent_once_whatever_is_answered(served: Site, status: int) -> None:
    answers(served, status)
    assert (await send()).status == status
    assert (await send()).status == 200, "no key rests"
    assert (served.asked, used_keys(served)) == (["/ask", "/ask"], ["key-one", "key-one"])
    counted = {200: "answered", 400: "answered", 404: "answered", 429: "limited"}.get(status, "failed")
    assert usage.taken() == ({("oracle", "answered"): 1} | {("oracle", counted): 1 + (counted == "answered")})


async def test_a_large_request_arrives_whole(served: Site) -> None:
    answers(served)
    body = json.dumps("x" * 2_000_000).encode()
    await Fetcher().send(ORACLE, WebRequest(url=f"{ORACLE.base_url}/ask", body=body))
    assert served.bodies == [body]


async def test_no_answer_to_what_is_sent_once_is_a_failure(
    served: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    served.answers["/ask"] = cut
    with pytest.raises(ServiceUnavailable, match="oracle is unavailable") as raised:
        await send()
    assert (raised.value.stage, raised.value.retryable, len(served.asked)) == ("resource", True, 1)
    monkeypatch.setenv("GYM_ORACLE_URL", f"{served.url}/type?type=x")
    with pytest.raises(ServiceUnavailable, match="larger than") as raised:
        await send(msgspec.structs.replace(ORACLE, size_bytes=0))
    assert not raised.value.retryable


async def test_a_service_says_which_variables_name_it(served: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    other = msgspec.structs.replace(ORACLE, url_variable="ORACLE_SERVER", key_optional=True)
    monkeypatch.delenv("ORACLE_KEY")
    with pytest.raises(ServiceUnavailable, match="ORACLE_SERVER is not set"):
        other.check()
    monkeypatch.setenv("ORACLE_SERVER", served.url)
    assert (other.keys, ORACLE.keys, ORACLE.url_variable) == ([""], [], "GYM_ORACLE_URL")
    answers(served)
    assert (await send(other)).status == 200
    assert served.headers[0]["Authorization"].strip() == "Bearer"

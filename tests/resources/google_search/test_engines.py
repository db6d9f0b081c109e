"""Searching with every engine: one shape of results, and engines that refuse or fail."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from aiohttp import web
from gym_runtime.environment import catalogue
from gym_runtime.environment.replaying import session_of
from gym_runtime.errors import GymError, ServiceUnavailable
from resources.google_search.searches import ENGINES, browse, search, task
from resources.web import World

pytest.importorskip("trafilatura", reason="needs pip install 'gym-runtime[search]'")
pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("engine", ENGINES)
async def test_every_engine_finds_in_the_shape_of_googles(out: World, engine: str) -> None:
    found = json.loads(await search("tides of skerrow", search_backend=engine))
    assert found["items"] == [
        {"title": "Tides", "link": "https://sea.example/tides", "snippet": "When the sea comes."},
        {"title": "Winds", "link": "https://www.air.example/winds", "snippet": "Where the wind goes."},
    ]
    assert "tides" in out.asked[0] + json.dumps(out.bodies[0])


@pytest.mark.parametrize("engine", ENGINES)
async def test_excluded_domains_are_not_found(out: World, engine: str) -> None:
    found = await search("x", search_backend=engine, exclude_domains=["Air.example"])
    assert [one["link"] for one in json.loads(found)["items"]] == ["https://sea.example/tides"]


async def test_the_operators_excluded_domains(
    out: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = tmp_path / "domains.json"
    monkeypatch.setenv("GYM_EXCLUDED_DOMAINS", str(listed))
    theirs = {"notices": [{"properties": [{"type": "domain", "value": "air.example"}, {"type": "x"}]}]}
    # Files that are written within a tick of the file system's clock have the same time.
    for changed_s, written in enumerate((["air.example"], theirs)):
        listed.write_text(json.dumps(written))
        os.utime(listed, (changed_s, changed_s))
        assert "air.example" not in await search("x", search_backend="google")
    assert "excluded domains" in await browse("https://air.example/")
    listed.write_text("{")
    with pytest.raises(ServiceUnavailable, match="GYM_EXCLUDED_DOMAINS"):
        await search("x", search_backend="google")


@pytest.mark.parametrize("engine", ENGINES)
async def test_what_is_not_configured_is_refused_at_the_start(
    out: World, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable = "GYM_SEARXNG_URL" if engine == "searxng" else f"{engine.upper()}_API_KEY"
    monkeypatch.delenv(variable)
    environment = catalogue.environment("google_search")
    assert environment.definition.opens_first
    with pytest.raises(ServiceUnavailable, match=variable) as raised:
        await environment.resource.open(task(search_backend=engine))
    assert raised.value.stage == "resource"
    monkeypatch.delenv("GOOGLE_CX")
    with pytest.raises(ServiceUnavailable, match=r"GOOGLE_CX|_KEY"):
        await environment.resource.open(task())


@pytest.mark.parametrize("engine", ["google", "tavily", "brave"])
async def test_a_key_that_is_not_taken_fails(
    out: World, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{engine.upper()}_API_KEY", "another")
    with pytest.raises(ServiceUnavailable, match=f"{engine} is unavailable") as raised:
        await search("x", search_backend=engine)
    assert not raised.value.retryable
    assert "another" not in raised.value.message


@pytest.mark.parametrize(
    ("engine", "status", "body", "retryable"),
    [
        ("google", 429, b"rateLimitExceeded", True),
        ("google", 403, b"userRateLimitExceeded", True),
        ("google", 403, b'{"reason": "dailyLimitExceeded"}', False),
        ("google", 429, b"Quota exceeded: Queries per day", False),
        ("tavily", 432, b"{}", False),
        ("tavily", 433, b"{}", False),
        ("brave", 429, b"{}", True),
        ("brave", 402, b"{}", False),
        ("searxng", 500, b"{}", True),
        ("searxng", 200, b"<html>a captcha</html>", True),
        ("google", 200, b"{", True),
        ("brave", 200, b'{"web": 3}', True),
        ("tavily", 200, b'{"results": [3]}', True),
        ("google", 200, b'{"items":' + b"[" * 100_000, True),
    ],
)
async def test_an_engine_that_does_not_serve_is_a_failure(
    out: World, engine: str, status: int, body: bytes, retryable: bool
) -> None:
    out.instead = lambda _: web.Response(status=status, body=body)
    with pytest.raises(ServiceUnavailable) as raised:
        await search("x", search_backend=engine)
    assert (raised.value.stage, raised.value.retryable) == ("resource", retryable)


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_query_that_breaks_the_engine_is_the_querys_fault(out: World, engine: str) -> None:
    """Else a model could spare itself a reward of 0."""

    def fails(request: web.Request) -> web.Response | None:
        asked = request.query.get("q") or out.bodies[-1]["query"]
        return web.Response(status=500) if asked == "a bomb" else None

    out.instead = fails
    assert await search("a bomb", search_backend=engine) == "Error: this cannot be answered"
    assert "items" in await search("something else", search_backend=engine)


async def test_queries_that_are_refused(out: World) -> None:
    assert await search(" ", search_backend="google") == "Error: the query is empty"
    assert "more than 2000 characters" in await search("x" * 3000, search_backend="google")
    out.instead = lambda _: web.Response(status=400, text="bad query")
    assert (
        await search("x", search_backend="google") == "Error: HTTP 400: the search engine refuses this query"
    )
    assert len(out.asked) == 1


async def test_a_session_that_fails_to_open_leaves_nothing(
    out: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GYM_GOOGLE_QUOTA", "many")
    with pytest.raises(GymError, match="GYM_GOOGLE_QUOTA"):
        async with session_of(catalogue.environment("google_search").resource, task()):
            pass

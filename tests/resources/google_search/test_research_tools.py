"""Several searches and pages in one call."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiohttp import web
from gym_runtime.errors import ServiceUnavailable
from resources.judging import outputs, row
from resources.web import World

pytest.importorskip("trafilatura", reason="needs pip install 'gym-runtime[search]'")
pytestmark = pytest.mark.anyio


async def use(name: str, arguments: dict[str, Any], **fields: Any) -> Any:
    task = row(question="Who?", ground_truth="Ada", **{"search_backend": "brave", **fields})
    (said,) = await outputs("browsecomp", task, [(name, arguments)])
    return json.loads(said)


async def test_queries_are_answered_by_name(out: World) -> None:
    found = await use("search", {"queries": ["tides", " ", "winds", "tides"]})
    assert list(found) == ["tides", " ", "winds"]
    assert found["tides"][0]["link"] == "https://sea.example/tides"
    assert found[" "] == "Error: the query is empty"
    assert len(out.asked) == 2


async def test_pages_are_read_and_excluded_sites_are_not(out: World) -> None:
    urls = [f"{out.url}/tides", f"{out.url}/gone", "https://spam.example/x"]
    found = await use("browse", {"urls": urls}, exclude_domains=["spam.example"])
    assert "the sea comes twice a day" in found[urls[0]]
    assert found[urls[1]] == "Error: HTTP 404"
    assert found[urls[2]].startswith("Error: ")
    assert len(out.asked) == 2


@pytest.mark.parametrize(
    ("name", "arguments"), [("search", {"queries": []}), ("browse", {"urls": ["https://a.example/"] * 4})]
)
async def test_too_many_or_none_are_refused(out: World, name: str, arguments: dict[str, Any]) -> None:
    assert (await use(name, arguments))["detail"][0]["type"] == "validation_error"


async def test_a_service_that_does_not_serve_is_a_failure(out: World) -> None:
    out.instead = lambda _: web.Response(status=401)
    with pytest.raises(ServiceUnavailable):
        await use("search", {"queries": ["a", "b"]})

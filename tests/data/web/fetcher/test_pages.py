"""Pages: what is fetched, at which pace, and what is an answer where one is gone."""

from __future__ import annotations

import time

import anyio
import pytest
from data.web.fetcher.oracle import ORACLE, answers, used_keys
from data.web.site import HERE, Site, site
from gym_data.web import fetcher as fetcher_module
from gym_data.web.fetcher import MAX_URL_CHARS, Fetcher
from gym_data.web.web_request import PageUnavailable
from gym_runtime.environment import usage
from gym_runtime.errors import ServiceUnavailable

pytestmark = pytest.mark.anyio


@pytest.mark.slow
async def test_a_page(served: Site) -> None:
    answer = await Fetcher(guard=HERE).page(f" {served.url}/page#there ")
    assert (answer.status, answer.body) == (200, b"<p>A page.</p>")
    assert usage.taken() == {("page", "answered"): 1}


async def test_no_page_inside() -> None:
    for url in ("http://127.0.0.1/", "http://169.254.169.254/", "file:///etc/passwd", "http://[", ""):
        with pytest.raises(PageUnavailable):
            await Fetcher().page(url)


async def test_an_address_has_a_bound() -> None:
    for url in ("http://" + "ä." * 100_000, "http://a/" + "a" * MAX_URL_CHARS):
        with pytest.raises(PageUnavailable, match="more than 2048 characters"):
            await Fetcher().page(url)


async def test_pages_of_one_host_are_paced(served: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetcher_module, "HOST_PAUSE_S", 0.15)
    start_s = time.monotonic()
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(Fetcher(guard=HERE).page, f"{served.url}/page")
    assert time.monotonic() - start_s >= 0.29


async def test_a_page_that_is_gone_is_an_answer_while_the_network_is_there(served: Site) -> None:
    async with site() as other:
        gone = other.url
    with pytest.raises(PageUnavailable, match="cannot be reached"):
        await Fetcher(guard=HERE, services=[ORACLE]).page(f"{gone}/page")


async def test_a_page_is_a_failure_when_the_network_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    async with site() as other:
        gone = other.url
    monkeypatch.setenv("GYM_ORACLE_URL", gone)
    with pytest.raises(ServiceUnavailable, match="network is gone") as raised:
        await Fetcher(guard=HERE, services=[ORACLE]).page(f"{gone}/page")
    assert raised.value.retryable
    assert raised.value.stage == "resource"


async def test_a_services_page_that_repeats_the_key_is_told_without_it(served: Site) -> None:
    answers(served)
    answer = await Fetcher(guard=HERE).page(f"{served.url}/ask", service=ORACLE)
    assert used_keys(served) == ["key-one"]
    assert b'"Bearer [key]"' in answer.body

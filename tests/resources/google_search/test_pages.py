"""Reading pages: their main text, and pages that are gone, inside, or hostile."""

from __future__ import annotations

import gc

import pytest
from aiohttp import web
from gym_runtime.environment.blocked_loop import watching
from resources.google_search.searches import browse
from resources.web import World
from time_limits import busy

pytest.importorskip("trafilatura", reason="needs pip install 'gym-runtime[search]'")
pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("one_loop")]


@pytest.mark.slow
async def test_a_page_is_read_as_its_main_text(out: World) -> None:
    text = await browse(f"{out.url}/tides")
    assert "the sea comes twice a day" in text
    assert "All pages" not in text
    assert "x()" not in text


async def test_a_long_page_is_shortened_at_words(out: World) -> None:
    words = [f"word{number}" for number in range(12_000)]
    paragraphs = [" ".join(words[place : place + 100]) for place in range(0, len(words), 100)]
    out.pages["/long"] = "<html><body><article>" + "".join(f"<p>{p}.</p>" for p in paragraphs)
    text = await browse(f"{out.url}/long")
    first, last = text.split("\n...\n")
    assert (len(first.split()), len(last.split())) == (5000, 5000)
    assert first.startswith("word0 ")
    assert last.endswith("word11999.")


async def test_plain_text_is_read_as_it_is(out: World) -> None:
    out.instead = lambda _: web.Response(text="<p>one & two</p>", content_type="text/plain")
    assert await browse(f"{out.url}/text") == "<p>one & two</p>"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "problem"),
    [("/none", "HTTP 404"), ("/empty", "no text was found"), ("/pdf", "application/pdf, not a page of text")],
)
async def test_what_cannot_be_read_is_a_text_for_the_model(out: World, path: str, problem: str) -> None:
    out.pages["/empty"] = "<html><body></body></html>"
    out.instead = lambda request: (
        web.Response(body=b"%PDF", content_type="application/pdf") if request.path == "/pdf" else None
    )
    assert problem in await browse(out.url + path)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1/x", "http://2130706433/", "http://[::1]/", "file:///etc/passwd", "nonsense", ""]
)
async def test_nothing_inside_is_read(out: World, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GYM_PRIVATE_HOSTS")
    assert (await browse(url)).startswith("Error: ")
    assert (await browse(out.url)).startswith("Error: ")
    assert out.asked == []


def nested(tag: str) -> str:
    return f"<html><body>{f'<{tag}>' * 100_000}text"


HOSTILE: dict[str, str | bytes] = {
    "deep": nested("div"),
    "tables": nested("table><tr><td"),
    "lists": nested("ul><li"),
    "attributes": "<html><body><p " + " ".join(f"a{n}=1" for n in range(100_000)) + ">text",
    "entities": "<html><body><p>" + "&lt;" * 500_000,
    "open": "<" * 1_000_000,
    "links": "<html><body>" + "<a href='http://x.example/'>x</a> " * 50_000,
    "paragraphs": "<html><body><article>" + "<p>A few words are here.</p>" * 40_000,
    "zeros": b"\0" * 1_000_000,
    "bytes": bytes(range(128, 256)) * 8000,
    "spaces": "<html><body><p>" + " " * 1_000_000,
    "dates": "<html><head><meta name='date' content='" + "1" * 500_000 + "'></head><body><p>text",
    "comments": "<html><body>" + "<!--" * 200_000,
}
OVERRUN = {"attributes", "paragraphs"}
"""These take as long as a page may take."""


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.soak] * (name in OVERRUN)) for name in HOSTILE]
)
async def test_no_page_blocks_the_loop_or_fails_the_rollout(out: World, name: str) -> None:
    out.pages["/hostile"] = HOSTILE[name]
    blocked: list[str] = []
    gc.collect()  # sandboxes of the event loops of other tests end now, and not below
    async with watching(0.2 * busy(), lambda place, _: blocked.append(place)):
        assert await browse(f"{out.url}/hostile")
    assert blocked == []

"""The tool packs that read the outside world, played from recordings written here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gym_data.web import Fetcher, Recording
from gym_resources.packs import arxiv, wikipedia
from gym_runtime import ToolPack, UsageError
from gym_runtime.environment.requirements import require_pack
from gym_runtime.environment.tools import tools_of

pytestmark = pytest.mark.anyio

ARTICLE = """A tide is the rise and fall of the sea. The Moon causes it. So does the Sun! Both pull. E. F too.

== Causes ==
Gravity pulls.

=== The Moon ===
It is near.

== Measurement ==
With gauges."""
FEED = """<feed xmlns="http://www.w3.org/2005/Atom"><entry><id>http://arxiv.org/abs/1706.03762v7</id>
<title>A  title\n of two lines</title><published>2017-06-12T17:57:34Z</published>
<updated>2023-08-02T00:41:18Z</updated>
<summary> An abstract. </summary><author><name>Ann</name></author><author><name>Bob</name></author>
<category term="cs.CL"/></entry></feed>"""
PAPER = """<html><head><title>x</title></head><body><nav>Menu</nav><h1>A title</h1>
<p>First <math alttext="x^2">x2</math>.</p>
<h2>1 Method</h2><p>We measure tides.</p><script>evil()</script></body></html>"""


def recording(path: Path, **texts: str) -> Fetcher:
    lines = [json.dumps({"asked": asked, "text": text}) + "\n" for asked, text in texts.items()]
    path.write_text("".join(lines))
    return Fetcher(recording=Recording(path), replay=True)


async def ask(pack: ToolPack, tool: str, **arguments: Any) -> Any:
    text = await tools_of(type(pack))[tool].call(pack, json.dumps(arguments))
    return json.loads(text) if text.startswith(("{", "[")) else text


@pytest.fixture
def articles(tmp_path: Path) -> wikipedia.Pack:
    found = [{"title": "Tide", "snippet": 'the <span class="searchmatch">tide</span> &amp; more'}]
    return wikipedia.Pack(
        recording(
            tmp_path / "wikipedia.jsonl",
            **{
                "wikipedia search: tides": json.dumps({"query": {"search": found}}),
                "wikipedia search: nothing": json.dumps({"query": {"search": []}}),
                "wikipedia page: Tide": json.dumps({"query": {"pages": [{"extract": ARTICLE}]}}),
                "wikipedia page: No": json.dumps({"query": {"pages": [{"missing": True}]}}),
            },
        )
    )


async def test_articles(articles: wikipedia.Pack) -> None:
    found = await ask(articles, "wikipedia-search", query="tides")
    assert found == {"results": [{"title": "Tide", "snippet": "the tide & more"}]}
    assert await ask(articles, "wikipedia-page", title="Tide") == ARTICLE
    assert (await ask(articles, "wikipedia-summary", title="Tide")).endswith("F too.")
    sections = await ask(articles, "wikipedia-sections", title="Tide")
    assert sections == {"sections": ["Causes", "The Moon", "Measurement"]}
    section = await ask(articles, "wikipedia-section", title="Tide", section="causes")
    assert section == "Gravity pulls.\n\nThe Moon\nIt is near."
    assert "no section 'x'" in await ask(articles, "wikipedia-section", title="Tide", section="x")
    summary = await ask(articles, "wikipedia-query-summary", query="tides")
    assert summary["title"] == "Tide"
    facts = (await ask(articles, "wikipedia-key-facts", title="Tide"))["facts"]
    assert facts[1:3] == ["The Moon causes it.", "So does the Sun!"]
    assert len(facts) == 5


async def test_what_wikipedia_does_not_have_is_told(articles: wikipedia.Pack) -> None:
    assert "There is no article 'No'" in await ask(articles, "wikipedia-page", title="No")
    assert "Nothing was found" in await ask(articles, "wikipedia-query-summary", query="nothing")
    assert "not in the recording" in await ask(articles, "wikipedia-page", title="Unheard")


@pytest.fixture
def papers(tmp_path: Path) -> arxiv.Pack:
    return arxiv.Pack(
        recording(
            tmp_path / "arxiv.jsonl",
            **{
                "arxiv search: attention": FEED,
                "arxiv paper: 1706.03762": FEED,
                "arxiv paper: 1706.00000": '<feed xmlns="http://www.w3.org/2005/Atom"/>',
                "https://ar5iv.labs.arxiv.org/html/1706.03762": PAPER,
            },
        )
    )


async def test_papers(papers: arxiv.Pack) -> None:
    found = await ask(papers, "arxiv-search", query="attention")
    assert found["papers"] == [
        {
            "paper_id": "1706.03762v7",
            "title": "A title of two lines",
            "authors": ["Ann", "Bob"],
            "published": "2017-06-12",
        }
    ]
    paper = await ask(papers, "arxiv-get", paper_id="arXiv:1706.03762")
    assert (paper["abstract"], paper["categories"]) == ("An abstract.", ["cs.CL"])
    assert "There is no paper" in await ask(papers, "arxiv-get", paper_id="1706.00000")
    for wrong in ("../../etc/passwd", "1706.03762/../x", "http://127.0.0.1/", "1" * 60):
        assert "not an id of arXiv" in await ask(papers, "arxiv-get", paper_id=wrong)


@pytest.mark.slow
async def test_the_text_of_a_paper(papers: arxiv.Pack) -> None:
    try:
        require_pack("arxiv", arxiv.Pack)
    except UsageError as error:
        pytest.skip(error.message)
    text = await ask(papers, "arxiv-read-chunk", paper_id="1706.03762")
    assert text == "A title\nFirst $x^2$.\n1 Method\nWe measure tides."
    sections = (await ask(papers, "arxiv-sections", paper_id="1706.03762"))["sections"]
    assert [one["heading"] for one in sections] == ["A title", "1 Method"]
    from_there = await ask(papers, "arxiv-read-chunk", paper_id="1706.03762", offset=sections[1]["offset"])
    assert from_there == "1 Method\nWe measure tides."
    assert await ask(papers, "arxiv-read-chunk", paper_id="1706.03762", query="TIDES") == "tides."
    assert "does not have the words" in await ask(
        papers, "arxiv-read-chunk", paper_id="1706.03762", query="x y"
    )
    assert "ends at" in await ask(papers, "arxiv-read-chunk", paper_id="1706.03762", offset=1000)
    assert "no text of the paper" in await ask(papers, "arxiv-sections", paper_id="1706.00000")

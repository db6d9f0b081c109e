"""Papers on arXiv: search, abstracts, sections, and the text in pieces.

Papers are found by arXiv's API, at most one request in four seconds from one machine. Their text is that of
arXiv's HTML, else of ar5iv's, and is parsed in a sandboxed process. Answers are kept on disk for a week. Each
paper has a licence of its own.
Source: the tools of NeMo Skills of these names, our own code; info.arxiv.org/help/api.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Annotated, Any
from xml.etree import ElementTree

from anyio import to_thread
from gym_data.web import Fetcher, PageUnavailable, Service, WebAnswer, WebRequest
from gym_runtime import ServiceUnavailable, Text, ToolError, ToolPack, run_isolated, tool
from msgspec import Meta

from gym_resources.web_search.outside import fetcher, replays
from gym_resources.web_search.web_pages import check

SERVICE = Service(
    name="arxiv", url="https://export.arxiv.org", per_s=0.25, timeout_s=30.0, size_bytes=2_000_000
)
TEXTS = ("https://arxiv.org/html/", "https://ar5iv.labs.arxiv.org/html/")
FOUND_AT_MOST, SECTIONS_AT_MOST, CHUNK_CHARACTERS = 3, 40, 3500
PAPER_CHARACTERS = 2_000_000
PARSED_S = 10.0
PROBE = "1706.03762"
_ATOM = "{http://www.w3.org/2005/Atom}"
_NEW, _OLD = r"\d{4}\.\d{4,5}", r"[a-z-]{2,20}(?:\.[a-z]{2})?/\d{7}"
_ID = re.compile(rf"(?:arxiv:)?((?:{_NEW}|{_OLD})(?:v\d{{1,2}})?)", re.IGNORECASE)

Query = Annotated[str, Meta(min_length=1, max_length=300, description="What to search for.")]
Paper = Annotated[str, Meta(min_length=1, max_length=60, description="A paper's id, such as 1706.03762.")]
Offset = Annotated[int, Meta(ge=0, le=PAPER_CHARACTERS, description="The first character to read.")]
Words = Annotated[str, Meta(max_length=300, description="Words; reading begins where they occur first.")]


class Pack(ToolPack):
    extra = "search"
    data_license = "each paper's own"

    def __init__(self, outside: Fetcher | None = None) -> None:
        self._outside = outside or fetcher("arxiv", [SERVICE], replay=replays(), cached=True)

    @tool(name="arxiv-search")
    async def search(self, query: Query) -> dict[str, Any]:
        """Search arXiv; up to three papers with their ids, titles, authors and dates."""
        words = " AND ".join(f'all:"{word}"' for word in query.replace('"', " ").split())
        if not words:
            raise ToolError("The query is empty.")
        params = {"search_query": words, "max_results": str(FOUND_AT_MOST)}
        found = await self._ask(f"arxiv search: {query}", params)
        short = ("paper_id", "title", "authors", "published")
        return {"papers": [{name: paper[name] for name in short} for paper in found]}

    @tool(name="arxiv-get")
    async def get(self, paper_id: Paper) -> dict[str, Any]:
        """Look up a paper: title, authors, dates, categories, abstract."""
        known = _known(paper_id)
        found = await self._ask(f"arxiv paper: {known}", {"id_list": known})
        if not found:
            raise ToolError(f"There is no paper {paper_id!r}.")
        return found[0]

    @tool(name="arxiv-sections")
    async def sections(self, paper_id: Paper) -> dict[str, Any]:
        """List the headings of a paper, each with the place of its first character for arxiv-read-chunk."""
        _, headings = await self._paper(paper_id)
        listed = [{"heading": heading, "offset": offset} for heading, offset in headings]
        return {"sections": listed[:SECTIONS_AT_MOST]}

    @tool(name="arxiv-read-chunk")
    async def read_chunk(self, paper_id: Paper, offset: Offset = 0, query: Words = "") -> Text:
        """Read up to 3500 characters of a paper, from a place on or from where some words occur first."""
        text, _ = await self._paper(paper_id)
        if query:
            offset = text.lower().find(query.lower(), offset)
            if offset < 0:
                raise ToolError(f"The paper does not have the words {query!r} behind this place.")
        if offset >= len(text):
            raise ToolError(f"The paper ends at {len(text)}.")
        return Text(text[offset : offset + CHUNK_CHARACTERS])

    async def _ask(self, asked: str, params: dict[str, str]) -> list[dict[str, Any]]:
        async def ask() -> WebAnswer:
            return await self._outside.ask(SERVICE, _request(params), probe=_request({"id_list": PROBE}))

        try:
            answer = await self._recorded(asked, ask)
        except PageUnavailable as error:
            raise ToolError(f"arXiv does not answer this: {error}") from error
        try:
            return await to_thread.run_sync(entries, answer.body)
        except ElementTree.ParseError as error:
            raise ServiceUnavailable(f"arxiv is unavailable: {error}", stage="resource") from error

    async def _recorded(self, asked: str, ask: Callable[[], Awaitable[WebAnswer]]) -> WebAnswer:
        answer = await self._outside.recorded(asked, ask)
        if answer is None:
            raise PageUnavailable("it is not in the recording")
        return answer

    async def _paper(self, paper_id: str) -> tuple[str, list[tuple[str, int]]]:
        """A paper's text, and its headings with their places.

        Raises:
            ToolError: neither site has it as HTML.
        """
        known, problem = _known(paper_id), ""
        for site in TEXTS:
            try:
                answer = await self._outside.page(site + known)
                check(answer)
                text, headings = await run_isolated(
                    paper_text, answer.body, timeout_s=PARSED_S, imports=("lxml.html",)
                )
            except (PageUnavailable, TimeoutError) as error:
                problem = str(error)
                continue
            if text:
                return text, headings
        raise ToolError(f"There is no text of the paper {known}: {problem or 'its page has none'}.")


def _request(params: dict[str, str]) -> WebRequest:
    return WebRequest(url=f"{SERVICE.base_url}/api/query", params=params)


def _known(paper_id: str) -> str:
    found = _ID.fullmatch(paper_id.strip())
    if found is None:
        raise ToolError(f"{paper_id!r} is not an id of arXiv, such as 1706.03762 or hep-th/9901001.")
    return found[1]


def entries(feed: bytes) -> list[dict[str, Any]]:
    """The papers in an answer of the API, which is an Atom feed; runs in a thread.

    Raises:
        ParseError: it is not.
    """
    return [
        {
            "paper_id": _text(entry, "id").rpartition("/abs/")[2],
            "title": _text(entry, "title"),
            "authors": [_text(author, "name") for author in entry.iter(f"{_ATOM}author")],
            "published": _text(entry, "published")[:10],
            "updated": _text(entry, "updated")[:10],
            "categories": [one.get("term", "") for one in entry.iter(f"{_ATOM}category")],
            "abstract": _text(entry, "summary"),
        }
        for entry in ElementTree.fromstring(feed).iter(f"{_ATOM}entry")
        if "/abs/" in _text(entry, "id")  # an error is an entry, too
    ]


def _text(element: ElementTree.Element, name: str) -> str:
    return " ".join((element.findtext(f"{_ATOM}{name}") or "").split())


def paper_text(html: bytes) -> tuple[str, list[tuple[str, int]]]:
    """The text of a page and its headings with their places. Runs in the sandboxed process."""
    from lxml import html as library  # pyright: ignore[reportMissingImports]

    page: Any = library
    try:
        document = page.document_fromstring(html, ensure_head_body=True)
    except (ValueError, page.etree.LxmlError):
        return "", []
    for element in document.xpath("//script|//style|//head|//noscript|//nav|//footer|//comment()"):
        element.drop_tree()
    for formula in document.xpath("//math[@alttext]"):
        formula.tail = f"${formula.get('alttext')}$" + (formula.tail or "")
        formula.drop_tree()
    blocks = document.xpath("//h1|//h2|//h3|//h4|//h5|//h6|//p|//li|//figcaption|//td")
    headings, pieces, length = list[tuple[str, int]](), list[str](), 0
    for block in blocks:
        piece = " ".join(block.text_content().split())
        if not piece:
            continue
        if block.tag in ("h1", "h2", "h3", "h4", "h5", "h6"):
            headings.append((piece[:200], length))
        pieces.append(piece)
        length += len(piece) + 1
    text = "\n".join(pieces)[:PAPER_CHARACTERS]
    return text, [(heading, place) for heading, place in headings if place < len(text)]

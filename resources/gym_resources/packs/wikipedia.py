"""Articles of the English Wikipedia: search, summaries, sections.

Articles are read by the MediaWiki API, at most one request a second from one machine, and kept on disk for a
week. Their text is under CC BY-SA.
Source: the tools of NeMo Skills of these names, our own code; mediawiki.org/wiki/API.
"""

from __future__ import annotations

import re
from html import unescape
from typing import Annotated, Any

import msgspec
from gym_data.web import Fetcher, PageUnavailable, Service, WebAnswer, WebRequest
from gym_runtime import ServiceUnavailable, Text, ToolError, ToolPack, tool
from gym_runtime.errors import UNREADABLE
from msgspec import Meta

from gym_resources.web_search.outside import fetcher, replays

SERVICE = Service(name="wikipedia", url="https://en.wikipedia.org", per_s=1.0, size_bytes=4_000_000)
FOUND_AT_MOST, FACTS = 3, 5
PAGE_CHARACTERS, SUMMARY_CHARACTERS = 2500, 900
_TAG = re.compile(r"<[^<>]{0,200}>")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")

Title = Annotated[str, Meta(min_length=1, max_length=250, description="The title of an article.")]
Query = Annotated[str, Meta(min_length=1, max_length=300, description="What to search for.")]
Section = Annotated[str, Meta(min_length=1, max_length=250, description="The heading of a section.")]


class Pack(ToolPack):
    extra = "search"
    data_license = "CC-BY-SA-4.0"

    def __init__(self, outside: Fetcher | None = None) -> None:
        self._outside = outside or fetcher("wikipedia", [SERVICE], replay=replays(), cached=True)

    @tool(name="wikipedia-search")
    async def search(self, query: Query) -> dict[str, Any]:
        """Search Wikipedia; the titles of up to three articles, each with a few words of it."""
        return {"results": [{"title": one.title, "snippet": one.plain} for one in await self._find(query)]}

    @tool(name="wikipedia-page")
    async def page(self, title: Title) -> Text:
        """Read the beginning of an article."""
        return Text((await self._article(title))[:PAGE_CHARACTERS])

    @tool(name="wikipedia-summary")
    async def summary(self, title: Title) -> Text:
        """Read what an article says before its first heading."""
        return Text(introduction(await self._article(title)))

    @tool(name="wikipedia-sections")
    async def sections(self, title: Title) -> dict[str, list[str]]:
        """List the headings of an article."""
        return {"sections": [heading for _, heading, _ in parts(await self._article(title))[1:]]}

    @tool(name="wikipedia-section")
    async def section(self, title: Title, section: Section) -> Text:
        """Read a section of an article, with the sections below it."""
        found = under(parts(await self._article(title)), section)
        if found is None:
            raise ToolError(
                f"The article has no section {section!r}. The tool wikipedia-sections lists them."
            )
        return Text(found[:PAGE_CHARACTERS])

    @tool(name="wikipedia-query-summary")
    async def query_summary(self, query: Query) -> dict[str, str]:
        """Search Wikipedia, and read the summary of the first article that is found."""
        found = await self._find(query)
        if not found:
            raise ToolError(f"Nothing was found for {query!r}.")
        return {"title": found[0].title, "summary": introduction(await self._article(found[0].title))}

    @tool(name="wikipedia-key-facts")
    async def key_facts(self, title: Title) -> dict[str, list[str]]:
        """Read the first five sentences of an article."""
        start = introduction(await self._article(title), PAGE_CHARACTERS)
        return {"facts": _SENTENCE.split(start)[:FACTS]}

    async def _find(self, query: str) -> list[Found]:
        params = {"list": "search", "srsearch": query, "srlimit": str(FOUND_AT_MOST)}
        return (await self._ask(f"wikipedia search: {query}", params)).search

    async def _article(self, title: str) -> str:
        """The whole text of an article, with headings as ``== Heading ==``.

        Raises:
            ToolError: no article has this title.
        """
        params = {"prop": "extracts", "explaintext": "1", "exsectionformat": "wiki", "redirects": "1"}
        pages = (await self._ask(f"wikipedia page: {title}", {**params, "titles": title})).pages
        if not pages or not pages[0].extract:
            raise ToolError(f"There is no article {title!r}. The tool wikipedia-search finds titles.")
        return pages[0].extract

    async def _ask(self, asked: str, params: dict[str, str]) -> Queried:
        async def ask() -> WebAnswer:
            return await self._outside.ask(SERVICE, _request(params), probe=_PROBE)

        try:
            answer = await self._outside.recorded(asked, ask)
            if answer is None:
                raise PageUnavailable("it is not in the recording")
        except PageUnavailable as error:
            raise ToolError(f"Wikipedia does not answer this: {error}") from error
        try:
            return _decode(answer.body).query
        except UNREADABLE as error:
            raise ServiceUnavailable(f"wikipedia is unavailable: {error}", stage="resource") from error


class Found(msgspec.Struct):
    """An article that was found."""

    title: str
    snippet: str = ""

    @property
    def plain(self) -> str:
        """The snippet without its marks."""
        return unescape(_TAG.sub("", self.snippet))


class _Page(msgspec.Struct):
    extract: str = ""


class Queried(msgspec.Struct):
    """What the API answers."""

    search: list[Found] = []
    pages: list[_Page] = []


class _Answer(msgspec.Struct):
    query: Queried = msgspec.field(default_factory=Queried)


_decode = msgspec.json.Decoder(_Answer).decode


def _request(params: dict[str, str]) -> WebRequest:
    fixed = {"action": "query", "format": "json", "formatversion": "2"}
    return WebRequest(url=f"{SERVICE.base_url}/w/api.php", params={**fixed, **params})


_PROBE = WebRequest(
    url=f"{SERVICE.url}/w/api.php", params={"action": "query", "meta": "siteinfo", "format": "json"}
)


def parts(text: str) -> list[tuple[int, str, str]]:
    """An article as its beginning and its sections: level, heading, text. Takes linear time."""
    found: list[tuple[int, str, list[str]]] = [(0, "", [])]
    for line in text.splitlines():
        level = len(line) - len(line.lstrip("="))
        heading = line.strip("= ")
        if 2 <= level <= 6 and heading and line.endswith("=" * level):
            found.append((level, heading, []))
        else:
            found[-1][2].append(line)
    return [(level, heading, "\n".join(lines).strip()) for level, heading, lines in found]


def under(sections: list[tuple[int, str, str]], wanted: str) -> str | None:
    """A section with those below it; None without one of this heading, in any case."""
    for number, (level, heading, text) in enumerate(sections):
        if heading.lower() == wanted.strip().lower():
            kept = [text]
            for deeper, below, more in sections[number + 1 :]:
                if deeper <= level:
                    break
                kept.append(f"{below}\n{more}")
            return "\n\n".join(kept)
    return None


def introduction(text: str, characters: int = SUMMARY_CHARACTERS) -> str:
    """What stands before the first heading, at most so many characters, cut behind a sentence if possible."""
    start = parts(text)[0][2]
    if len(start) <= characters:
        return start
    cut = start[:characters]
    end = cut.rfind(". ")
    return cut[: end + 1] if end > characters // 2 else cut

"""Tavily's search and extraction, and how their answers are shown to a model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
from gym_data.web import Fetcher, PageUnavailable, WebAnswer, WebRequest, host_of
from gym_runtime import Reply, ServiceUnavailable
from gym_runtime.errors import UNREADABLE

from gym_resources.web_search.engines import PROBE, TAVILY, TavilyResults, plain, tavily_search

SNIPPET = 2000
LONGEST_QUERY = 400
ANSWER = '{"results_string":'
"""How a tool's answer begins unless the call failed."""


class _Extracted(msgspec.Struct):
    class Page(msgspec.Struct):
        raw_content: str | None = None

    class Failed(msgspec.Struct):
        error: Any = ""

    results: list[Page] = []
    failed_results: list[Failed] = []


_decode_results = msgspec.json.Decoder(TavilyResults).decode
_decode_extracted = msgspec.json.Decoder(_Extracted).decode


class Tavily:
    """Tavily's search and extraction.

    Args:
        excluded: domains that are not searched.
        options: further fields of each search.
    """

    def __init__(self, fetcher: Fetcher, excluded: Sequence[str] = (), **options: Any) -> None:
        self._fetcher = fetcher
        self._excluded = tuple(excluded)
        self._options = options

    async def search(self, query: str, **options: Any) -> TavilyResults | str:
        """The results; a text if Tavily refuses the query. In a recording, an unknown query finds nothing.

        Raises:
            ServiceUnavailable: Tavily is down, or gives no more.
        """
        request = partial(tavily_search, query, self._excluded, **{**self._options, **options})
        try:
            answer = await self._fetcher.recorded(f"search: {plain(query)}", lambda: self._ask(request()))
        except PageUnavailable as error:
            return str(error)
        if answer is None:
            return TavilyResults()
        if answer.status != 200:
            return f"HTTP {answer.status}: the search engine refuses this query"
        return _read(answer, _decode_results)

    async def page(self, url: str, query: str = "") -> str:
        """The text of a page; of a long one what fits the query.

        Raises:
            PageUnavailable: Tavily cannot read it.
            ServiceUnavailable: Tavily is down, or gives no more.
        """
        if not host_of(url):
            raise PageUnavailable("it is not a plain http or https address")
        body: dict[str, Any] = {"urls": [url], "extract_depth": "basic", "format": "text"}
        asked = f"extract: {url}"
        if query:
            body["query"] = query
            found = await self._extracted(f"{asked} {plain(query)}", body)
            answer = found or await self._extracted(asked, body)  # a recording may have the whole page only
        else:
            answer = await self._extracted(asked, body)
        if answer is None:
            raise PageUnavailable("it is not in the recording")
        if answer.status != 200:
            raise PageUnavailable(f"HTTP {answer.status}")
        extracted = _read(answer, _decode_extracted)
        texts = [page.raw_content for page in extracted.results if page.raw_content]
        if not texts:
            reasons = [str(failed.error) for failed in extracted.failed_results]
            raise PageUnavailable(reasons[0][:SNIPPET] if reasons else "no text was found on the page")
        return texts[0]

    async def _extracted(self, asked: str, body: dict[str, Any]) -> WebAnswer | None:
        def request() -> WebRequest:
            return WebRequest(url=f"{TAVILY.base_url}/extract", body=msgspec.json.encode(body))

        return await self._fetcher.recorded(asked, lambda: self._ask(request()))

    async def _ask(self, request: WebRequest) -> WebAnswer:
        return await self._fetcher.ask(TAVILY, request, probe=tavily_search(PROBE, ()))


def listed(found: TavilyResults) -> str:
    """Results as a numbered list, or the answer if Tavily gave one."""
    if found.answer:
        return found.answer
    if not found.results:
        return "No results were found."
    return "\n\n".join(
        f"[{number}] {one.title or 'Untitled'} ({host_of(one.url) or 'unknown'})\n"
        f"URL: {one.url}\nSummary: {cut_at_line(one.content or '', SNIPPET)}"
        for number, one in enumerate(found.results, 1)
    )


def numbered(text: str, characters: int) -> str:
    """The lines of a text with their numbers, as many as fit.

    >>> numbered("one\\ntwo", 100)
    'L0: one\\nL1: two'
    """
    lines: list[str] = []
    left = characters
    for number, line in enumerate(text[:characters].splitlines()):
        shown = f"L{number}: {line}"
        if len(shown) > left:
            lines.append(shown[:left])
            break
        lines.append(shown)
        left -= len(shown) + 1
    return "\n".join(lines)


def cut_at_line(text: str, characters: int) -> str:
    """The beginning of a text, up to the end of its last line that fits; of one long line what fits."""
    if len(text) <= characters:
        return text
    end = text.rfind("\n", 0, characters)
    return text[: end if end > 0 else characters]


def made(reply: Reply) -> list[dict[str, str | None]]:
    """The calls that were answered, in the order of the answers; without times, which cannot be repeated."""
    names = {call.call_id: call.name for call in reply.function_calls}
    return [
        {
            "function": names.get(one.call_id),
            "status": "success" if str(one.output).startswith(ANSWER) else "error",
            "time_taken": None,
        }
        for one in reply.tool_outputs
    ]


def _read(answer: WebAnswer, decode: Any) -> Any:
    try:
        return decode(answer.body)
    except UNREADABLE as error:
        raise ServiceUnavailable(
            f"tavily is unavailable: its answer cannot be read: {error}", stage="resource", retryable=True
        ) from error

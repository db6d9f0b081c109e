"""Search engines behind one interface: what each is asked, and how its answer is read.

An engine's results are given in the shape of Google's API: ``{"items": [{"title", "link", "snippet"}]}``.
Google's Custom Search JSON API takes no new customers and is announced to end on 1 January 2027.
Source: developers.google.com/custom-search, docs.tavily.com, api-dashboard.search.brave.com,
docs.searxng.org.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import msgspec
from gym_data.web import (
    Fetcher,
    PageUnavailable,
    Said,
    Service,
    WebAnswer,
    WebRequest,
    host_of,
    is_within,
    said,
)
from gym_runtime import ServiceUnavailable
from gym_runtime.errors import UNREADABLE

from gym_resources.web_search.outside import excluded, fetcher

SearchBackend = Literal["google", "tavily", "brave", "searxng", "replay"]

RESULTS = 10
LONGEST_QUERY = 2000
PROBE = "weather"
GOOGLE_ENGINE = "GOOGLE_CX"


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """One result."""

    title: str = ""
    link: str = ""
    snippet: str = ""


class Results(msgspec.Struct, frozen=True):
    """What a search found."""

    items: list[Found] = []


class _Brave(msgspec.Struct):
    class Web(msgspec.Struct):
        class Result(msgspec.Struct):
            title: str = ""
            url: str = ""
            description: str = ""

        results: list[Result] = []

    web: Web | None = None


class TavilyResults(msgspec.Struct):
    """An answer of Tavily's search."""

    class Result(msgspec.Struct):
        title: str | None = None
        url: str = ""
        content: str | None = None

    results: list[Result] = []
    answer: str | None = None


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """A search engine.

    Attributes:
        request: what to ask it for a query, without some domains.
        read: the results in an answer's JSON.
    """

    service: Service
    request: Callable[[str, Sequence[str]], WebRequest]
    read: Callable[[bytes], Results]


def _in_header(name: str, prefix: str, request: WebRequest, key: str) -> WebRequest:
    return msgspec.structs.replace(request, headers={**request.headers, name: prefix + key})


def _google_key(request: WebRequest, key: str) -> WebRequest:
    return msgspec.structs.replace(request, params={**request.params, "key": key})


def _google_said(answer: WebAnswer) -> Said:
    """A used-up day comes as 403 or 429, a wrong key as 400."""
    if answer.status in (403, 429):
        if b"dailyLimitExceeded" in answer.body or b"per day" in answer.body:
            return "used up"
        if b"rateLimitExceeded" in answer.body or b"userRateLimitExceeded" in answer.body:
            return "limited"
    if answer.status == 400 and (b"API_KEY_INVALID" in answer.body or b"keyInvalid" in answer.body):
        return "refused"
    return said(answer)


def _tavily_said(answer: WebAnswer) -> Said:
    """432 is the limit of a key or plan, 433 that of pay-as-you-go."""
    return "used up" if answer.status in (432, 433) else said(answer)


def _brave_said(answer: WebAnswer) -> Said:
    """A wrong key comes as 422, like a wrong query."""
    refused = answer.status == 422 and b"SUBSCRIPTION_TOKEN_INVALID" in answer.body
    return "refused" if refused else said(answer)


TAVILY = Service(
    name="tavily",
    url="https://api.tavily.com",
    key_variable="TAVILY_API_KEY",
    sign=partial(_in_header, "Authorization", "Bearer "),
    said=_tavily_said,
    timeout_s=30.0,
)
GOOGLE = Service(
    name="google",
    url="https://www.googleapis.com",
    key_variable="GOOGLE_API_KEY",
    sign=_google_key,
    said=_google_said,
)
BRAVE = Service(
    name="brave",
    url="https://api.search.brave.com",
    key_variable="BRAVE_API_KEY",
    sign=partial(_in_header, "X-Subscription-Token", ""),
    said=_brave_said,
)
SEARXNG = Service(name="searxng", timeout_s=30.0)


def _ask_google(query: str, excluded: Sequence[str]) -> WebRequest:
    engine = os.environ.get(GOOGLE_ENGINE, "").strip()
    if not engine:
        raise ServiceUnavailable(
            f"{GOOGLE_ENGINE} is not set: google needs the id of a Programmable Search Engine",
            stage="resource",
        )
    params = {"q": query, "cx": engine, "num": str(RESULTS)}
    return WebRequest(url=f"{GOOGLE.base_url}/customsearch/v1", params=params)


def _ask_tavily(query: str, excluded: Sequence[str]) -> WebRequest:
    return tavily_search(query, excluded, search_depth="basic")


def tavily_search(query: str, excluded: Sequence[str], **options: Any) -> WebRequest:
    """A search of Tavily's."""
    body = {"query": query, "max_results": RESULTS, "exclude_domains": list(excluded), **options}
    return WebRequest(url=f"{TAVILY.base_url}/search", body=msgspec.json.encode(body))


def _ask_brave(query: str, excluded: Sequence[str]) -> WebRequest:
    params = {"q": query, "count": str(RESULTS), "text_decorations": "false"}
    headers = {"Accept": "application/json"}
    return WebRequest(url=f"{BRAVE.base_url}/res/v1/web/search", params=params, headers=headers)


def _ask_searxng(query: str, excluded: Sequence[str]) -> WebRequest:
    return WebRequest(url=f"{SEARXNG.base_url}/search", params={"q": query, "format": "json"})


def _read_tavily(body: bytes) -> Results:
    found = msgspec.json.decode(body, type=TavilyResults).results
    return Results([Found(title=r.title or "", link=r.url, snippet=r.content or "") for r in found])


def _read_brave(body: bytes) -> Results:
    found = msgspec.json.decode(body, type=_Brave).web
    results = found.results if found else []
    return Results([Found(title=r.title, link=r.url, snippet=r.description) for r in results])


ENGINES: dict[SearchBackend, Engine] = {
    "google": Engine(service=GOOGLE, request=_ask_google, read=partial(msgspec.json.decode, type=Results)),
    "tavily": Engine(service=TAVILY, request=_ask_tavily, read=_read_tavily),
    "brave": Engine(service=BRAVE, request=_ask_brave, read=_read_brave),
    "searxng": Engine(service=SEARXNG, request=_ask_searxng, read=_read_tavily),
}


class Search:
    """Searches with one engine, or in a recording.

    Args:
        excluded: domains whose results are left out.
    """

    def __init__(self, backend: SearchBackend, fetcher: Fetcher, excluded: Sequence[str] = ()) -> None:
        self._engine = ENGINES.get(backend)
        self._fetcher = fetcher
        self._excluded = tuple(excluded)

    def check(self) -> None:
        """Refuse an engine that is not configured.

        Raises:
            ServiceUnavailable: its address, key or engine is missing.
        """
        if self._engine is not None:
            self._engine.service.check()
            self._engine.request("", ())

    async def find(self, query: str) -> Results | str:
        """What is found; a text if the engine refuses the query. A recording finds nothing for other queries.

        Raises:
            ServiceUnavailable: the engine is down, or gives no more.
        """
        if len(query) > LONGEST_QUERY:
            return f"the query has more than {LONGEST_QUERY} characters"
        try:
            answer = await self._fetcher.recorded(f"search: {plain(query)}", partial(self._ask, query))
        except PageUnavailable as error:
            return str(error)
        if answer is None:
            return Results()
        if answer.status != 200:
            return f"HTTP {answer.status}: the search engine refuses this query"
        found = msgspec.json.decode(answer.body, type=Results).items
        return Results(
            [one for one in found if not is_within(host_of(one.link).lower(), self._excluded)][:RESULTS]
        )

    async def _ask(self, query: str) -> WebAnswer:
        """The answer, in Google's shape: recordings of all engines are alike."""
        assert self._engine is not None
        request = self._engine.request(query, self._excluded)
        probe = self._engine.request(PROBE, ())
        answer = await self._fetcher.ask(self._engine.service, request, probe=probe)
        if answer.status != 200:
            return WebAnswer(
                status=answer.status, url=self._engine.service.name, media_type="application/json"
            )
        try:
            body = msgspec.json.encode(self._engine.read(answer.body))
        except UNREADABLE as error:
            name = self._engine.service.name
            raise ServiceUnavailable(
                f"{name} is unavailable: its answer cannot be read: {error}", stage="resource", retryable=True
            ) from error
        return WebAnswer(status=200, url=self._engine.service.name, media_type="application/json", body=body)


def opened(
    environment: str, backend: SearchBackend, excluding: Sequence[str], *, cached: bool
) -> tuple[Fetcher, Search]:
    """What a session searches and reads pages with.

    Args:
        environment: whose recording is shipped.
        excluding: the row's domains that are neither found nor read; the operator's come on top.
        cached: answers are kept on disk, and used again for a week.

    Raises:
        ServiceUnavailable: the engine is not configured, or the operator's list cannot be read.
    """
    denied = excluded(excluding)
    services = [ENGINES[backend].service] if backend in ENGINES else []
    fetching = fetcher(environment, services, replay=backend == "replay", cached=cached, denied=denied)
    engine = Search(backend, fetching, denied)
    engine.check()
    return fetching, engine


def plain(query: str) -> str:
    """A query as recordings have it: without regard to case and spaces.

    >>> plain("  Tides of  the SEA ")
    'tides of the sea'
    """
    return " ".join(query.split()).casefold()

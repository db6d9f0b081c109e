"""A server that speaks the protocols of search engines and of the SEC, and serves pages; on this machine."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

KEY = "key-of-the-tests"
FOUND = [
    {"title": "Tides", "url": "https://sea.example/tides", "text": "When the sea comes."},
    {"title": "Winds", "url": "https://www.air.example/winds", "text": "Where the wind goes."},
]
PAGE = (
    "<html><head><title>Tides</title><style>p{}</style></head><body><nav>Home | All pages</nav><article>"
    "<h1>Tides</h1><p>On Skerrow the sea comes twice a day, and it rises by two metres and a half at most, "
    "which the keepers of the old lighthouse wrote down for ninety years.</p></article><script>x()</script>"
    "</body></html>"
)
TICKERS = {"0": {"cik_str": 42, "ticker": "SKRW", "title": "Skerrow Lights"}}
SUBMISSIONS = {
    "name": "Skerrow Lights",
    "filings": {
        "recent": {
            "accessionNumber": ["0000000042-26-000001", "0000000042-25-000009"],
            "form": ["10-K", "10-Q"],
            "filingDate": ["2026-02-01", "2025-11-01"],
            "reportDate": ["2025-12-31", "2025-09-30"],
            "primaryDocument": ["annual.htm", "quarter.htm"],
        },
        "files": [],
    },
}


class World:
    """What is out there.

    Attributes:
        url: without a slash at the end.
        asked: method and path with the query, in order.
        headers: those of each request.
        bodies: those of each request.
        instead: what answers instead, if it is set, requests that it takes.
        pages: HTML by path, besides ``/tides``.
    """

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.bodies: list[Any] = []
        self.instead: Callable[[web.Request], web.Response | None] = lambda _: None
        self.pages: dict[str, str | bytes] = {"/tides": PAGE}

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(f"{request.method} {request.path_qs}")
        self.headers.append(dict(request.headers))
        self.bodies.append(json.loads(await request.read() or b"null"))
        instead = self.instead(request)
        if instead is not None:
            return instead
        answer = _ANSWERS.get(request.path)
        if answer is not None:
            return answer(self, request)
        page = self.pages.get(request.path)
        if page is None:
            return web.Response(status=404, text="not here")
        body = page.encode() if isinstance(page, str) else page
        return web.Response(body=body, headers={"Content-Type": "text/html; charset=utf-8"})

    def _google(self, request: web.Request) -> web.Response:
        if request.query.get("key") != KEY:
            error = {"error": {"code": 400, "details": [{"reason": "API_KEY_INVALID"}]}}
            return web.json_response(error, status=400)
        items = [{"title": f["title"], "link": f["url"], "snippet": f["text"], "kind": "x"} for f in FOUND]
        return web.json_response({"kind": "customsearch#search", "items": items})

    def _tavily(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {KEY}":
            return web.json_response({"detail": {"error": "Unauthorized"}}, status=401)
        results = [{"title": f["title"], "url": f["url"], "content": f["text"], "score": 1} for f in FOUND]
        return web.json_response({"query": self.bodies[-1]["query"], "answer": None, "results": results})

    def _extract(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {KEY}":
            return web.json_response({"detail": {"error": "Unauthorized"}}, status=401)
        (url,) = self.bodies[-1]["urls"]
        if "tides" not in url:
            failed = [{"url": url, "error": "it could not be fetched"}]
            return web.json_response({"results": [], "failed_results": failed})
        text = "Tides\n" + " ".join(f"word{number}" for number in range(3000))
        return web.json_response({"results": [{"url": url, "raw_content": text}], "failed_results": []})

    def _brave(self, request: web.Request) -> web.Response:
        if request.headers.get("X-Subscription-Token") != KEY:
            return web.json_response({"error": {"code": "SUBSCRIPTION_TOKEN_INVALID"}}, status=422)
        results = [{"title": f["title"], "url": f["url"], "description": f["text"]} for f in FOUND]
        return web.json_response({"type": "search", "web": {"type": "search", "results": results}})

    def _searxng(self, request: web.Request) -> web.Response:
        if request.method == "POST":
            return self._tavily(request)
        if request.query.get("format") != "json":
            return web.Response(status=403)
        results = [{"title": f["title"], "url": f["url"], "content": f["text"]} for f in FOUND]
        return web.json_response({"query": request.query["q"], "results": results})

    def _tickers(self, request: web.Request) -> web.Response:
        return web.json_response(TICKERS) if self._polite(request) else web.Response(status=403)

    def _submissions(self, request: web.Request) -> web.Response:
        return web.json_response(SUBMISSIONS) if self._polite(request) else web.Response(status=403)

    def _polite(self, request: web.Request) -> bool:
        return "ada@example.com" in request.headers["User-Agent"]

    def _robots(self, request: web.Request) -> web.Response:
        return web.Response(text="User-agent: *") if self._polite(request) else web.Response(status=403)


_ANSWERS: dict[str, Callable[[World, web.Request], web.Response]] = {
    "/customsearch/v1": World._google,
    "/res/v1/web/search": World._brave,
    "/search": World._searxng,
    "/extract": World._extract,
    "/files/company_tickers.json": World._tickers,
    "/submissions/CIK0000000042.json": World._submissions,
    "/robots.txt": World._robots,
}


@asynccontextmanager
async def world() -> AsyncGenerator[World]:
    served = World()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", served.answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    served.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield served
    finally:
        await runner.cleanup()

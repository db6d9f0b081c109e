"""The requests that the viewer's server accepts: with the token, to this machine's name, from its own page.

Rollouts are private and the server stands on a port that every program and every web page on this machine
can reach. So a request needs the token (in the address once, then in a cookie), a ``Host`` that is ours
(a foreign name that resolves to 127.0.0.1 is refused), and no foreign origin. The page may load nothing
but its own files, so that text of a model that became markup by mistake could neither run nor speak to
anyone.
"""

from __future__ import annotations

import hmac
import secrets

from aiohttp import web
from aiohttp.typedefs import Handler
from gym_data.web.listener import foreign_host

_NAMES = ("127.0.0.1", "localhost")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
WRITTEN = "/labels.json"
"""The end of the only paths that can be written to."""
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Access:
    """The checks of one server on one port of the loopback address."""

    def __init__(self, port: int, token: str | None = None) -> None:
        self.token = token or secrets.token_urlsafe(24)
        self.port = port
        self._origins = {f"http://{name}:{port}" for name in _NAMES}
        self._cookie = f"gym_viewer_{port}"  # cookies are shared by all ports of a host

    @property
    def url(self) -> str:
        """The address that opens the page."""
        return f"http://127.0.0.1:{self.port}/?token={self.token}"

    def refusal(self, request: web.BaseRequest) -> str | None:
        """Why a request is refused, or None."""
        writes = request.method == "POST" and request.path.endswith(WRITTEN)
        if request.method not in ("GET", "HEAD") and not writes:
            return "this server is only read from"
        # A browser says where a POST comes from, and asks first before another site sends JSON.
        if writes and ("Origin" not in request.headers or request.content_type != "application/json"):
            return "this server is written to by its own page only"
        if foreign_host(request, _NAMES, only_at=self.port):
            return "this server answers to its own name only"
        if request.headers.get("Origin", f"http://127.0.0.1:{self.port}") not in self._origins:
            return "this server answers its own page only"
        if request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin") and (
            request.headers.get("Sec-Fetch-Mode") != "navigate"
        ):
            return "this server answers its own page only"
        given = request.query.get("token") or request.cookies.get(self._cookie, "")
        if not hmac.compare_digest(given.encode(errors="replace"), self.token.encode()):
            return "open the address that gym-runtime view printed: it carries the token"
        return None

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse with 403, or answer; a request with the token in its address gets the cookie."""
        reason = self.refusal(request)
        if reason is not None:
            return web.Response(status=403, text=reason + "\n")
        response = await handler(request)
        if request.query.get("token"):
            response.set_cookie(self._cookie, self.token, httponly=True, samesite="Strict", path="/")
        return response

    async def protect(self, request: web.BaseRequest, response: web.StreamResponse) -> None:
        """Puts the protecting headers on every answer before it is sent."""
        for name, value in _HEADERS.items():
            response.headers[name] = value

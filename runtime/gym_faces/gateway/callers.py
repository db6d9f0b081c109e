"""Which requests a gateway accepts: those that use one of its own host names, and none of a web page.

A page in a browser can send requests to this machine, and DNS rebinding can make them look same-origin. So
the gateway refuses a request that a browser makes for a page (it has an ``Origin``), and one whose ``Host``
is foreign (`gym_data.web.host_names`). It refuses headers that are not UTF-8, so that no other code meets
them.
"""

from __future__ import annotations

from collections.abc import Iterable

from aiohttp import web
from gym_data.web.host_names import foreign_host

from gym_faces.dialects.dialect import Problem, Refusal


def check(request: web.BaseRequest, names: Iterable[str]) -> None:
    """
    Raises:
        Refusal: the request is a web page's, its ``Host`` is not one of the gateway's names, or a header is
            not UTF-8.
    """
    for name, value in request.raw_headers:
        try:
            value.decode()
        except UnicodeDecodeError:
            what = f"the header {name.decode('ascii', 'replace')[:100]!r} is not UTF-8"
            raise Refusal(Problem(kind="invalid", message=what)) from None
    # Browsers send it even where they leave out the origin; other clients send neither.
    site = request.headers.get("sec-fetch-site", "none").lower()
    if "origin" in request.headers or site not in ("none", "same-origin"):
        raise _forbidden("the gateway does not answer requests of web pages (with an Origin)")
    if problem := foreign_host(request, names):
        raise _forbidden(problem)


def _forbidden(message: str) -> Refusal:
    return Refusal(Problem(kind="forbidden", message=message))

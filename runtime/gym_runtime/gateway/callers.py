"""Who may speak to a gateway at all: programs that call it by one of its own names, and no web page.

A page in a browser can send requests to this machine, and by DNS rebinding make them look like its own. So
a request that a browser has made for a page is refused (it has an ``Origin``), and so is one whose ``Host``
is a name that somebody else's DNS could have. Addresses, names without a dot and the machine's own are fine.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

from aiohttp import web

from gym_runtime.gateway.dialect import Problem, Refusal

_OURS = (".localhost", ".local", ".internal", ".svc", ".lan")
"""Ends of names that no public DNS has."""


def own_names(*hosts: str) -> frozenset[str]:
    """These names and the machine's own. Asks no DNS."""
    return frozenset(name.lower().rstrip(".") for name in (*hosts, socket.gethostname()) if name)


def check(request: web.BaseRequest, names: Iterable[str]) -> None:
    """
    Raises:
        Refusal: a browser's page asks, or by a name that is not the gateway's.
    """
    site = request.headers.get("sec-fetch-site", "none").lower()
    if "origin" in request.headers or site not in ("none", "same-origin"):
        raise _forbidden("requests of web pages (with an Origin) are not answered here")
    said = request.headers.getall("host", [])
    if len(said) != 1 or not _is_ours(said[0], names):
        shown = ", ".join(said)[:100] or "no host"
        raise _forbidden(f"this gateway is not called {shown!r}; call it by its address, or by --host")


def _is_ours(host: str, names: Iterable[str]) -> bool:
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return False
    if not name or "@" in host:
        return False
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return "." not in name or name in names or name.endswith(_OURS)
    return True


def _forbidden(message: str) -> Refusal:
    return Refusal(Problem(kind="forbidden", message=message))

"""Which requests a gateway accepts: those that use one of its own host names, and none of a web page.

A page in a browser can send requests to this machine, and DNS rebinding can make them look same-origin. So
the gateway refuses a request that a browser makes for a page (it has an ``Origin``), and one whose ``Host``
is a name that a public DNS could resolve. It accepts addresses, names without a dot and the machine's own
names. It refuses headers that are not UTF-8, so that no other code meets them.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable

from aiohttp import web

from gym_faces.gateway.dialect import Problem, Refusal

_OURS = (".localhost", ".local", ".internal", ".svc", ".lan")
"""Suffixes that no public DNS resolves."""
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([A-Za-z0-9._-]{1,255}))(?::([0-9]{1,5}))?")
_MAX_PORT = 65_535


def own_names(*hosts: str) -> frozenset[str]:
    """These names and the machine's own. Asks no DNS."""
    return frozenset(name.lower().rstrip(".") for name in (*hosts, socket.gethostname()) if name)


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
    # Two Host headers may be read differently by a proxy and by us.
    hosts = request.headers.getall("host", [])
    if len(hosts) != 1 or not _is_ours(hosts[0], names):
        shown = ", ".join(hosts)[:100] or "no host"
        raise _forbidden(f"the host {shown!r} is not this gateway's; use its address, or the name of --host")


def _is_ours(host: str, names: Iterable[str]) -> bool:
    said = _HOST.fullmatch(host)
    if said is None or int(said[3] or 0) > _MAX_PORT:
        return False
    # A final dot is part of a complete DNS name, and means the same.
    name = said[1] or said[2].lower().rstrip(".")
    try:
        ipaddress.ip_address(name)
    except ValueError:
        bracketed = said[1] is not None
        return bool(name) and not bracketed and ("." not in name or name in names or name.endswith(_OURS))
    return True


def _forbidden(message: str) -> Refusal:
    return Refusal(Problem(kind="forbidden", message=message))

"""By which names of this machine the HTTP servers answer.

DNS rebinding makes a web page's requests to this machine look same-origin: a name of the page's own resolves
to an address of ours. So a server answers only requests whose ``Host`` is its own: an address, a name without
a dot, one of the machine's own names, or a name that no public DNS resolves.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable

from aiohttp import web

_OURS = (".localhost", ".local", ".internal", ".svc", ".lan")
"""Suffixes that no public DNS resolves."""
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([A-Za-z0-9._-]{1,255}))(?::([0-9]{1,5}))?")
_MAX_PORT = 65_535


def own_names(*hosts: str) -> frozenset[str]:
    """These names and the machine's own. Asks no DNS."""
    return frozenset(name.lower().rstrip(".") for name in (*hosts, socket.gethostname()) if name)


def foreign_host(request: web.BaseRequest, names: Iterable[str], *, only_at: int | None = None) -> str | None:
    """What is wrong with a request's ``Host``, in words; None if it is ours.

    Args:
        only_at: accept no host but these names at this port.
    """
    # Two Host headers may be read differently by a proxy and by us.
    hosts = request.headers.getall("host", [])
    if len(hosts) == 1 and _is_ours(hosts[0], names, only_at):
        return None
    shown = ", ".join(hosts)[:100] or "no host"
    return f"the host {shown!r} is not this server's; use its address, or the name of --host"


def _is_ours(host: str, names: Iterable[str], only_at: int | None) -> bool:
    said = _HOST.fullmatch(host)
    if said is None or int(said[3] or 0) > _MAX_PORT:
        return False
    # A final dot is part of a complete DNS name, and means the same.
    name = said[1] or said[2].lower().rstrip(".")
    if only_at is not None:
        return name in names and int(said[3] or 80) == only_at
    try:
        ipaddress.ip_address(name)
    except ValueError:
        bracketed = said[1] is not None
        return bool(name) and not bracketed and ("." not in name or name in names or name.endswith(_OURS))
    return True

"""Whether the network is there: whether a host that should be there can be dialled."""

from __future__ import annotations

import socket
import time

import anyio
from yarl import URL

OUTSIDE_DIAL_S = 3.0
"""How long a host is tried that may be out of reach: offline must fail within seconds."""
OUTSIDE_DIALLED_S = 10.0
"""For how long the result of that counts."""

_found: dict[str, tuple[float, bool]] = {}


async def can_be_dialled(base_url: str) -> bool:
    """Whether the host of a URL takes connections, as of the last seconds."""
    url = URL(base_url)
    host, port = url.host or "", url.port or 443
    known = _found.get(host)
    if known is None or time.monotonic() - known[0] > OUTSIDE_DIALLED_S:
        known = _found[host] = (time.monotonic(), await _dialled(host, port))
    return known[1]


async def _dialled(host: str, port: int) -> bool:
    with anyio.move_on_after(OUTSIDE_DIAL_S):
        try:
            async with await anyio.connect_tcp(host, port):
                return True
        except (OSError, socket.gaierror):
            return False
    return False

"""Serves an application at an address: closes silent connections, and does not decompress bodies.

DNS rebinding makes a web page's requests to this machine look same-origin: a name of the page's own resolves
to an address of ours. So a server answers only requests whose ``Host`` is its own (`foreign_host`): an
address, a name without a dot, one of the machine's own names, or a name that no public DNS resolves.
"""

from __future__ import annotations

import errno
import ipaddress
import logging
import re
import socket
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import Protocol

import anyio
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from gym_runtime.errors import UsageError
from gym_runtime.timing import HEADERS_S

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


GATEWAY_STOP_S = 5.0
"""How long calls in progress may take when the gateway stops."""
LINGER_S = 2.0
"""How long a refused body is still read, so that the client reads the refusal."""


class HasApp(Protocol):
    """Whatever can be served, such as a gateway."""

    def app(self) -> web.Application: ...


def _is_kept(record: logging.LogRecord) -> bool:
    """Whether aiohttp's log keeps a line: not those about requests that are not HTTP. Their clients are told
    what is wrong, and with a traceback for each request anyone could fill the disk.
    """
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


@asynccontextmanager
async def serving(
    served: HasApp,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    headers_s: float = HEADERS_S,
    stop_s: float = GATEWAY_STOP_S,
) -> AsyncGenerator[str]:
    """Serve until the context ends, which gives calls in progress ``stop_s``; yields ``http://HOST:PORT``.

    A connection has ``headers_s`` for the headers of each request, counted from its beginning or from the
    answer before, however slowly they come.

    Raises:
        UsageError: the address is in use, or is not this machine's.
    """
    logging.getLogger("aiohttp.server").addFilter(_is_kept)  # once: it is the same function
    runner = web.AppRunner(
        served.app(),
        # aiohttp lets a handler go on when its client has left, unless it is told otherwise.
        handler_cancellation=True,
        access_log=None,
        shutdown_timeout=stop_s,
        # It limits every wait for whole headers: since 3.14.4 also that for a connection's first ones.
        keepalive_timeout=headers_s,
        lingering_time=LINGER_S,
        auto_decompress=False,  # a small body may decompress to gigabytes
    )
    await runner.setup()
    try:
        # Thousands of rollouts may connect at the same moment; with asyncio's default of 100 some would have
        # to retry.
        site = web.TCPSite(runner, host, port, backlog=4096)
        try:
            await site.start()
        except OSError as error:
            where = f"{host}:{port}"
            other = "port" if error.errno in (errno.EADDRINUSE, errno.EACCES) else "host"
            raise UsageError(f"cannot listen on {where}: {error.strerror}; choose another {other}") from None
        port = runner.addresses[0][1]
        yield f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    finally:
        with anyio.CancelScope(shield=True):
            await runner.cleanup()

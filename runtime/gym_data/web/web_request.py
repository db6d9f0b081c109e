"""What is asked of the outside world and what it answers; which hosts may be asked.

Apart from the exchange, whose HTTP client is slow to import.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Literal

import msgspec

from gym_data.web.public_addresses import host_of, is_address, is_public, is_within, resolved


class PageUnavailable(Exception):
    """A page cannot be had; the message is for the model that asked for it."""


class Unreachable(PageUnavailable):
    """The connection failed, or the answer did not arrive: it may be the network's fault as well."""


if TYPE_CHECKING:
    from yarl import URL

PORTS = frozenset({80, 443, 8080, 8443})
"""Those of a page. Others belong to services that are no websites."""


class WebRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for.

    Attributes:
        body: JSON; sent with POST.
        headers: sent to the URL's own origin only.
    """

    url: str
    params: dict[str, str] = {}
    headers: dict[str, str] = {}
    body: bytes = b""

    @property
    def method(self) -> Literal["GET", "POST"]:
        return "POST" if self.body else "GET"


class WebAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What was answered.

    Attributes:
        url: after redirects.
        media_type: in lower case, without parameters; empty if it was not said.
        retry_after_s: the pause that the host asks for, in seconds; 0 if it asks for none.
    """

    status: int
    url: str
    media_type: str = ""
    body: bytes = b""
    retry_after_s: float = 0.0


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """What one request may take.

    Attributes:
        timeout_s: for everything, from the resolution of the name to the last byte.
        size_bytes: of the body, as it is sent and as it is decompressed.
        media_types: beginnings of those that are read; empty for all.
    """

    timeout_s: float
    size_bytes: int
    media_types: tuple[str, ...] = ()


class Guard(msgspec.Struct, frozen=True, kw_only=True):
    """Which hosts may be asked.

    Attributes:
        private_hosts: those that may be anywhere, at any port: the operator named them.
        denied: domains that are not asked, with those below them.
    """

    private_hosts: frozenset[str] = frozenset()
    denied: tuple[str, ...] = ()

    def check(self, url: URL) -> None:
        """
        Raises:
            PageUnavailable: the URL must not be asked for.
        """
        host = (url.host or "").rstrip(".").lower()
        if not host_of(str(url)) or not host:
            raise PageUnavailable("it is not a plain http or https address")
        if is_within(host, self.denied):
            raise PageUnavailable(f"{host} is in the excluded domains")
        if host in self.private_hosts:
            return
        if is_address(host) and not is_public(host):
            raise PageUnavailable(f"{host} is not a public address")
        if url.port not in PORTS:
            raise PageUnavailable(f"port {url.port} is not one of a website")

    async def addresses(self, host: str, port: int) -> list[tuple[socket.AddressFamily, str]]:
        """What a name resolves to, if all of it may be asked.

        Raises:
            PageUnavailable: one of the addresses is not public.
            OSError: the name cannot be resolved.
        """
        found = await resolved(host, port)
        if host.rstrip(".").lower() not in self.private_hosts:
            # All of them must be public: the connection may go to any.
            for _, address in found:
                if not is_public(address):
                    raise PageUnavailable(f"{host} is not at a public address")
        return found

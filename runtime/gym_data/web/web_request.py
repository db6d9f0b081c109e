"""Requests to the outside world and their answers; which hosts may be asked.

In a module without the HTTP client, which is slow to import.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Literal

import msgspec

from gym_data.web.public_addresses import host_of, is_address, is_public, is_within, resolved


class PageUnavailable(Exception):
    """A page cannot be fetched; the message is for the model that asked for it."""


class Unreachable(PageUnavailable):
    """The connection failed, or the answer did not arrive. The network may be the cause."""


if TYPE_CHECKING:
    from yarl import URL

PORTS = frozenset({80, 443, 8080, 8443})
"""The ports of websites. Other ports belong to other services."""


class WebRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request.

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
    """An answer.

    Attributes:
        url: after redirects.
        media_type: in lower case, without parameters; empty if the answer has none.
        retry_after_s: the pause that the host asks for, in seconds; 0 if it asks for none.
    """

    status: int
    url: str
    media_type: str = ""
    body: bytes = b""
    retry_after_s: float = 0.0


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one request.

    Attributes:
        timeout_s: for everything, from the resolution of the name to the last byte.
        size_bytes: of the body, as it is sent and as it is decompressed.
        media_types: prefixes of the types that are accepted; empty for all.
    """

    timeout_s: float
    size_bytes: int
    media_types: tuple[str, ...] = ()


class Guard(msgspec.Struct, frozen=True, kw_only=True):
    """Which hosts may be asked.

    Attributes:
        private_hosts: hosts that the operator named; they may have any address and any port.
        denied: domains that are refused, with their subdomains.
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
        """The addresses of a name, if all of them may be asked.

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

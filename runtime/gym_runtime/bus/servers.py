"""The servers of one cluster, and which of them to try next: a table without input or output.

It begins with those that the caller named. A server that is connected to names the others of its cluster;
they are tried too, and forgotten when they leave it.
"""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass
class Server:
    """One address, and how often in a row it could not be connected to.

    Attributes:
        tls: whether nothing may be said there in the clear.
        certified: the name that its certificate must hold.
        named: whether the caller named it, so that it is never forgotten.
        leaving: it said that it is about to close its connections.
    """

    host: str
    port: int
    tls: bool
    certified: str
    named: bool = True
    leaving: bool = False
    failures: int = 0

    @property
    def url(self) -> str:
        # `urlsplit` has removed the brackets of an IPv6 address.
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'tls' if self.tls else 'nats'}://{host}:{self.port}"


class Servers:
    """Those that are known."""

    def __init__(self, urls: Iterable[str], default_port: int = 4222) -> None:
        self._known: list[Server] = []
        self.current: Server | None = None
        for url in urls:
            parts = urlsplit(url)
            host = parts.hostname or ""
            self._known.append(Server(host, parts.port or default_port, parts.scheme == "tls", host))

    def next(self) -> Server:
        """The server that failed least, rather another than the one just lost; the choice is random."""
        # Shuffled: thousands of workers whose server died must not all go to the same one.
        candidates = random.sample(self._known, len(self._known))
        lost = self.current
        return min(candidates, key=lambda server: (server.failures, server.leaving, server is lost))

    def connected(self, server: Server) -> None:
        """It answered."""
        server.failures = 0
        server.leaving = False
        self.current = server

    def learn(self, connect_urls: Iterable[str], *, leaving: bool = False) -> None:
        """What the present server said of its cluster: ``host:port`` of each member."""
        here = self.current
        assert here is not None
        here.leaving = leaving
        told = {
            (parts.hostname or "", parts.port or 0) for parts in (urlsplit(f"//{u}") for u in connect_urls)
        }
        # A server that says nothing of its cluster is no reason to forget what others said.
        if told:
            self._known = [
                server
                for server in self._known
                if server.named or server is here or (server.host, server.port) in told
            ]
        known = {(server.host, server.port) for server in self._known}
        for host, port in sorted(told - known):
            # An address is in no certificate as a rule: then the name of the one that told counts. TLS is
            # kept, or a cluster's answer could make us speak in the clear.
            certified = here.certified if _is_address(host) else host
            self._known.append(Server(host, port, here.tls, certified, named=False))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True

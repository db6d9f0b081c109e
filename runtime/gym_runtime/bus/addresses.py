"""Where brokers are: the URLs a caller gives, what of them may be shown, and which server to try next.

The table of servers begins with those that the caller named. A server that is connected to names the others
of its cluster; they are tried too, and forgotten when they leave it.
"""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from gym_runtime.errors import UsageError

SCHEMES = ("nats", "tls")


class Addresses(msgspec.Struct, frozen=True, kw_only=True):
    """The brokers of one cluster, and who we are there: a user with a password, or a token, or neither.

    Credentials hold for all brokers, also for those that the cluster names later.
    """

    urls: tuple[str, ...]
    user: str | None = None
    password: str | None = None
    token: str | None = None

    @property
    def shown(self) -> str:
        """For messages: without credentials."""
        return ", ".join(without_credentials(url) for url in self.urls)


def parse(url: str | Sequence[str]) -> Addresses:
    """``nats://user:password@host:port``, ``tls://token@host``, ``host``; several, or joined by commas.

    Raises:
        UsageError: no URL is given, or one is not a NATS URL.
    """
    given = [url] if isinstance(url, str) else list(url)
    urls = [one.strip() for several in given for one in several.split(",") if one.strip()]
    if not urls:
        raise UsageError("no broker given: expected a URL such as nats://127.0.0.1:4222")
    urls = [one if "://" in one else f"nats://{one}" for one in urls]
    # The first URL with credentials counts for all, as `Addresses` promises.
    named: tuple[str | None, str | None] = (None, None)
    for one in urls:
        parts = _split(one)
        if parts.username and named[0] is None:
            named = (unquote(parts.username), None if parts.password is None else unquote(parts.password))
    user, password = named
    if password is None:
        # As with other NATS clients: a name without a password is a token.
        return Addresses(urls=tuple(urls), token=user)
    return Addresses(urls=tuple(urls), user=user, password=password)


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        if parts.scheme in SCHEMES and parts.hostname and parts.port != 0:
            return parts
    except ValueError:
        pass
    # The URL may hold a password, so the message shows it without its credentials.
    raise UsageError(f"broker {without_credentials(url)!r}: expected nats://HOST:PORT or tls://HOST:PORT")


def without_credentials(url: str) -> str:
    """A URL as it may be shown."""
    scheme, _, rest = url.rpartition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme or 'nats'}://{authority.rpartition('@')[2]}{slash}{path}"


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

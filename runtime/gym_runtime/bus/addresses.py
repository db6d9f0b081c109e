"""Where brokers are: the URLs a caller gives, and what of them may be shown."""

from __future__ import annotations

from collections.abc import Sequence
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

"""Which addresses are public, and which URLs may be asked for at all.

Rows, models and tools name addresses. Some of them lead to what only this network can reach: this machine,
private and link-local networks, a cloud's metadata service. An address counts as public only if the
registries of special addresses do not list it; Python's own ``is_global`` differs between its releases. An
IPv6 address that carries an IPv4 address is as public as that one.
Source: the special-purpose address registries of IANA (RFC 6890 and its updates).
"""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Iterable
from urllib.parse import urlsplit

import anyio
from yarl import URL

RESOLVE_S = 5.0
"""How long a name may take to be resolved."""


_V4 = tuple(
    map(
        ipaddress.IPv4Network,
        (
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "168.63.129.16/32",  # Azure's metadata and control, a public address that only its machines reach
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.31.196.0/24",
            "192.52.193.0/24",
            "192.88.99.0/24",
            "192.168.0.0/16",
            "192.175.48.0/24",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/3",  # multicast, reserved, broadcast
        ),
    )
)
_V6_PUBLIC = ipaddress.IPv6Network("2000::/3")
_V6 = tuple(map(ipaddress.IPv6Network, ("2001::/23", "2001:db8::/32", "2620:4f:8000::/48", "3fff::/20")))
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


def is_public(address: str) -> bool:
    """Whether a text is an address (not a name) in the public internet.

    >>> [is_public(one) for one in ("93.184.216.34", "10.0.0.1", "::ffff:10.0.0.1", "64:ff9b::808:808")]
    [True, False, False, True]
    """
    found = parsed(address)
    if isinstance(found, ipaddress.IPv6Address):
        carried = _carried(found)
        if carried is None:
            return found in _V6_PUBLIC and not any(found in network for network in _V6)
        found = carried
    return found is not None and not any(found in network for network in _V4)


def parsed(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """A text as an address, without its zone; None for a name."""
    try:
        return ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None


def is_address(host: str) -> bool:
    """Whether a URL's host is an address, not a name."""
    return parsed(host) is not None


def _carried(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address within an IPv6 address: mapped, 6to4 or NAT64."""
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour


def host_of(url: str) -> str:
    """The host of a plain ``http`` or ``https`` URL, without a dot at its end; empty for anything else.

    A URL with a login or a backslash is not plain: programs disagree on the host that it names.

    >>> host_of("https://example.com./x"), host_of("ftp://example.com"), host_of("http://me@example.com/")
    ('example.com', '', '')
    """
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").rstrip(".")
    except ValueError:
        return ""
    plain = parts.scheme.lower() in ("http", "https") and parts.username is None and "\\" not in url
    return host if plain else ""


def is_within(host: str, domains: Iterable[str]) -> bool:
    """Whether a host is one of some domains, or below one.

    >>> is_within("en.example.org", ["example.org"]), is_within("anexample.org", ["example.org"])
    (True, False)
    """
    return any(host == domain or host.endswith(f".{domain}") for domain in domains)


async def resolved(host: str, port: int | None = None) -> list[tuple[socket.AddressFamily, str]]:
    """The addresses of a name, with their families; at least one.

    Raises:
        OSError: it cannot be resolved, or not within `RESOLVE_S` seconds.
    """
    with anyio.move_on_after(RESOLVE_S):
        try:
            found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        # Python encodes names as IDNA, and refuses some with this error.
        except UnicodeError as error:
            raise socket.gaierror(socket.EAI_NONAME, f"{host!r} cannot be a name") from error
        if found:
            return [(family, str(address[0])) for family, *_, address in found]
    raise socket.gaierror(socket.EAI_AGAIN, f"no answer within {RESOLVE_S:g} s")


OUTSIDE_DIAL_S = 3.0
"""How long to try to connect to a host: without a network this must fail within seconds."""
OUTSIDE_DIALLED_S = 10.0
"""For how long the result of that counts."""

_dialled_hosts: dict[str, tuple[float, bool]] = {}


async def can_be_dialled(base_url: str) -> bool:
    """Whether the host of a URL accepts connections; the result is up to `OUTSIDE_DIALLED_S` seconds old."""
    url = URL(base_url)
    host, port = url.host or "", url.port or 443
    known = _dialled_hosts.get(host)
    if known is None or time.monotonic() - known[0] > OUTSIDE_DIALLED_S:
        known = _dialled_hosts[host] = (time.monotonic(), await _dials(host, port))
    return known[1]


async def _dials(host: str, port: int) -> bool:
    with anyio.move_on_after(OUTSIDE_DIAL_S):
        try:
            async with await anyio.connect_tcp(host, port):
                return True
        except (OSError, socket.gaierror):
            return False
    return False

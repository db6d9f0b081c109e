"""What counts as public, and as a plain URL."""

from __future__ import annotations

import doctest

from gym_data.web import public_addresses as addresses
from gym_data.web.public_addresses import host_of, is_public
from tables import table

INSIDE = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "100.100.100.200",
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",
    "169.254.169.254",
    "169.254.170.2",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.1",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:a9fe:a9fe",
    "::ffff:0:7f00:1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:a9fe:a9fe::1",
    "2002:c0a8:101::1",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
]
OUTSIDE = [
    "1.1.1.1",
    "8.8.8.8",
    "93.184.216.34",
    "100.63.255.255",
    "100.128.0.1",
    "172.15.0.1",
    "172.32.0.1",
    "192.0.1.1",
    "198.17.0.1",
    "223.255.255.255",
    "2001:4860:4860::8888",
    "2606:4700::1",
    "2a00:1450::1",
    "::ffff:8.8.8.8",
    "64:ff9b::808:808",
    "2002:808:808::1",
]
NO_ADDRESSES = ["", "localhost", "example.com", "2130706433", "0x7f.1", "127.1", "0177.0.0.1", "1.2.3.4.5"]


@table("address", INSIDE)
def test_addresses_inside(address: str) -> None:
    assert not is_public(address)


@table("address", OUTSIDE)
def test_addresses_outside(address: str) -> None:
    assert is_public(address)


@table("name", NO_ADDRESSES)
def test_what_is_no_address_is_not_public(name: str) -> None:
    """Python reads none of the old forms (decimal, octal, short) as an address; they are names to resolve."""
    assert not is_public(name)


@table(
    "url",
    [
        "",
        "example.com",
        "//example.com",
        "/etc/passwd",
        "file:///etc/passwd",
        "ftp://example.com/",
        "gopher://example.com/",
        "javascript:alert(1)",
        "http://",
        "http://me@example.com/",
        "http://me:word@example.com/",
        "http://example.com\\@127.0.0.1/",
        "http://[::1",
    ],
)
def test_what_is_no_plain_url(url: str) -> None:
    assert host_of(url) == ""


def test_examples() -> None:
    assert doctest.testmod(addresses).failed == 0

"""URLs of brokers: what is taken, and what is never shown."""

from __future__ import annotations

import pytest
from gym_runtime.bus.identity import Addresses, parse, without_credentials
from gym_runtime.errors import UsageError
from tables import table


@table(
    ("given", "meant"),
    [
        ("nats://h:1", Addresses(urls=("nats://h:1",))),
        ("h", Addresses(urls=("nats://h",))),
        ("h:1, tls://i", Addresses(urls=("nats://h:1", "tls://i"))),
        (["h:1", "i:2"], Addresses(urls=("nats://h:1", "nats://i:2"))),
        ("nats://[::1]:1", Addresses(urls=("nats://[::1]:1",))),
        ("nats://u:p%40s@h", Addresses(urls=("nats://u:p%40s@h",), user="u", password="p@s")),
        ("nats://h,nats://secret@i", Addresses(urls=("nats://h", "nats://secret@i"), token="secret")),
    ],
)
def test_what_is_taken(given: str | list[str], meant: Addresses) -> None:
    assert parse(given) == meant


@table("given", ["", [], ",", "http://h", "ws://h", "nats://", "nats://h:x", "nats://h:70000"])
def test_what_is_refused(given: str | list[str]) -> None:
    with pytest.raises(UsageError, match="expected"):
        parse(given)


def test_credentials_are_not_shown() -> None:
    assert without_credentials("nats://u:p@h:1") == "nats://h:1"
    assert parse("u:p@h:1,tls://t@i").shown == "nats://h:1, tls://i"
    with pytest.raises(UsageError) as caught:
        parse("http://user:secret@h")
    assert "secret" not in str(caught.value)

"""Why an HTTP call has no answer: the one vocabulary of `plain_client` and `aiohttp_client`."""

from __future__ import annotations

REFUSED = "nothing listens at {url}"
UNRESOLVED = "the host of {url} cannot be resolved"
NO_CONNECTION = "no connection to {url}: {reason}"
UNTRUSTED = "no trusted TLS connection to {url}: {reason}"
PROXY = "the proxy on the way to {url} answered {reason}"
NOT_HTTP = "{url} does not answer in HTTP as it should"
BROKE = "the connection to {url} broke in mid-answer: {reason}"


class NoAnswer(Exception):
    """``said`` is a sentence of this module, ``reason`` another program's words, which may hold a key."""

    def __init__(self, said: str, reason: str = "") -> None:
        super().__init__(said)
        self.said = said
        self.reason = reason

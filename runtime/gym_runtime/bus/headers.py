"""Headers of messages: names and values, and a broker's status in place of a payload.

nats-py hands over the status line of a message, such as ``NATS/1.0 503``, as two headers of its own
(`STATUS`, `DESCRIPTION`); senders may not use these names.
"""

from __future__ import annotations

import re

from gym_runtime.bus.interface import Headers
from gym_runtime.errors import UsageError

NO_HEADERS: Headers = {}
STATUS, DESCRIPTION = "Status", "Description"

# Visible ASCII without the colon, which ends a name.
_NAME = re.compile(r"[!-9;-~]+")
_FRAME_BYTES = len("NATS/1.0\r\n\r\n")
_LINE_BYTES = len(": \r\n")


def checked(headers: Headers) -> dict[str, str]:
    """Headers as they arrive: without white space around values.

    Raises:
        UsageError: A name is not a token or is one of nats-py's own, or a value has a line break.
    """
    for name, value in headers.items():
        # A line break in a value would begin a header that its sender did not mean.
        if not _NAME.fullmatch(name) or name in (STATUS, DESCRIPTION) or "\r" in value or "\n" in value:
            raise UsageError(
                f"header {name!r}: names are visible ASCII without ':', not '{STATUS}' or '{DESCRIPTION}'; "
                "values are one line"
            )
    return {name: value.strip() for name, value in headers.items()}


def size_bytes(headers: Headers) -> int:
    """How many bytes of a message's limit they take."""
    if not headers:
        return 0
    lines = sum(len(name) + len(value.encode()) + _LINE_BYTES for name, value in headers.items())
    return _FRAME_BYTES + lines


def status(headers: Headers) -> int:
    """The status code, such as 404 or 503; 0 for an ordinary message."""
    code = headers.get(STATUS)
    return int(code) if code and code.isdigit() else 0


def description(headers: Headers) -> str:
    """The text after the status code."""
    return headers.get(DESCRIPTION, "")


def decode(raw: bytes) -> dict[str, str]:
    """Raw headers, as a stream stores them; lines that are none are skipped."""
    found: dict[str, str] = {}
    for line in raw.decode("utf-8", "replace").split("\r\n")[1:]:
        name, colon, value = line.partition(":")
        if colon:
            found[name] = value.strip()
    return found

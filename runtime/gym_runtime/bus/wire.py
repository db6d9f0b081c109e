"""How subjects and headers look on the wire: prefixes, checks, streams' names, and what the broker adds.

Callers write ``task.mcqa``; the wire says ``gym.task.mcqa``; the stream ``gym_TASKS`` stores it. Reply
subjects (``_INBOX.…``) are the one kind that callers pass on and that has no prefix.
"""

from __future__ import annotations

import re

import msgspec

from gym_runtime.bus.interface import Headers
from gym_runtime.errors import UsageError

# A broker's control line has 4 KB by default, which a subject shares with a reply subject and sizes.
MAX_SUBJECT_BYTES = 1024
MAX_PREFIX_CHARS = 128

_TOKEN = r"[^\s.*>\x00-\x1f]+"
_SUBJECT = re.compile(rf"{_TOKEN}(?:\.{_TOKEN})*")
_PATTERN = re.compile(rf"(?:{_TOKEN}|\*)(?:\.(?:{_TOKEN}|\*))*(?:\.>)?|>")
_PREFIX = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_INBOX = "_INBOX."

STREAMS = {
    "task": "TASKS",
    "rollout": "ROLLOUTS",
    "journal": "JOURNAL",
    "runs": "RUNS",
    "blob": "BLOBS",
}
"""The stream of each first token."""


_RUN_AT = {"task": 3, "rollout": 1, "journal": 1, "runs": 1}
"""Which token of a stored subject names the run."""


def run_of(subject: str) -> str:
    """The run that a stored message is part of, by its subject; empty if that says nothing."""
    tokens = subject.split(".")
    at = _RUN_AT.get(tokens[0], 0)
    return tokens[at] if 0 < at < len(tokens) else ""


class Names:
    """The translation for one prefix."""

    def __init__(self, prefix: str) -> None:
        if not _PREFIX.fullmatch(prefix) or len(prefix) > MAX_PREFIX_CHARS:
            raise UsageError(
                f"prefix {prefix[:200]!r}: tokens of letters, digits, '_' and '-', separated by '.', "
                f"{MAX_PREFIX_CHARS} characters at most"
            )
        self._root = f"{prefix}."
        self._length = len(self._root)
        self._store = _NOT_IN_NAMES.sub("_", prefix)

    def subject(self, subject: str) -> str:
        """A subject as the wire has it.

        Raises:
            UsageError: It has empty tokens, wildcards or white space, or is too long.
        """
        # A subject from a message could otherwise end the line and begin another command.
        if not _SUBJECT.fullmatch(subject) or len(subject) > MAX_SUBJECT_BYTES:
            raise UsageError(
                f"subject {subject[:200]!r}: tokens without spaces, '*' or '>', separated by '.'"
            )
        return subject if subject.startswith(_INBOX) else self._root + subject

    def pattern(self, pattern: str) -> str:
        """A subject or pattern as the wire has it.

        Raises:
            UsageError: As for `subject`, or ``>`` is not the last token.
        """
        if not _PATTERN.fullmatch(pattern) or len(pattern) > MAX_SUBJECT_BYTES:
            raise UsageError(f"pattern {pattern[:200]!r}: tokens separated by '.'; '>' only as the last one")
        return self._root + pattern

    def bare(self, subject: str) -> str:
        """A subject from the wire, without the prefix."""
        # Not checked: the broker sends only what was subscribed to, which has the prefix.
        return subject[self._length :]

    def stream(self, subject: str) -> str:
        """The name of the stream that stores a subject or pattern.

        Raises:
            UsageError: No stream does.
        """
        kind = subject.partition(".")[0]
        if kind not in STREAMS:
            raise UsageError(
                f"nothing is stored under {subject!r}: it starts with one of {', '.join(STREAMS)}"
            )
        return f"{self._store}_{STREAMS[kind]}"

    def inbox(self, role: str) -> str:
        """The root of the reply subjects of one role."""
        return f"{_INBOX}{self._root}{role}"

    @staticmethod
    def consumer(name: str) -> str:
        """A consumer's name in the characters that the broker takes; different names stay different."""
        return _NOT_IN_NAMES.sub(lambda found: f"={ord(found[0]):x}=", name)


def is_pattern(subject: str) -> bool:
    """Whether a subject has wildcards."""
    return "*" in subject or ">" in subject


# -- headers

NO_HEADERS: Headers = {}
STATUS, DESCRIPTION = "Status", "Description"
"""nats-py hands over the status line of a message, such as ``NATS/1.0 503``, as two headers of its own, whose
names senders may not use."""

# Visible ASCII without the colon, which ends a name.
_HEADER = re.compile(r"[!-9;-~]+")
_FRAME_BYTES = len("NATS/1.0\r\n\r\n")
_LINE_BYTES = len(": \r\n")


def checked(headers: Headers) -> dict[str, str]:
    """Headers as they arrive: without white space around values.

    Raises:
        UsageError: A name is not a token or is one of nats-py's own, or a value has a line break.
    """
    for name, value in headers.items():
        # A line break in a value would begin a header that its sender did not mean.
        if not _HEADER.fullmatch(name) or name in (STATUS, DESCRIPTION) or "\r" in value or "\n" in value:
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


def is_completed(headers: Headers) -> bool:
    """Whether a status says that a pull with a limit of bytes has brought what it may."""
    return description(headers) in ("Batch Completed", "Message Size Exceeds MaxBytes")


class Stamp(msgspec.Struct, frozen=True):
    """What the broker writes into the reply subject of a stored message.

    Attributes:
        sequence: in the stream.
        consumed: how many its consumer has delivered, this one included.
        stored_s: by the broker's clock, in seconds since the epoch.
        pending: how many the consumer still has to deliver.
    """

    deliveries: int
    sequence: int
    consumed: int
    stored_s: float
    pending: int

    @staticmethod
    def of(reply: str) -> Stamp:
        """``$JS.ACK.[domain.account.]stream.consumer.deliveries.sequence.consumed.time.pending[.token]``"""
        words = reply.split(".")
        # Two forms are in use: without a domain and an account hash in front, and with them.
        at = 4 if len(words) < 11 else 6
        deliveries, sequence, consumed, stored_ns, pending = map(int, words[at : at + 5])
        return Stamp(deliveries, sequence, consumed, stored_ns / 1e9, pending)

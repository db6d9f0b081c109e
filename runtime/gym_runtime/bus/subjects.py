"""Subjects with and without the prefix, and which stream keeps what is stored under them.

Callers write ``task.mcqa``; the wire says ``gym.task.mcqa``; the stream ``gym_TASKS`` stores it. Reply
subjects (``_INBOX.…``) are the one kind that callers pass on and that has no prefix.
"""

from __future__ import annotations

import re

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


_REPEATED = ("model.", "resource.")
"""The prefixes of request subjects: few, and used several times for each rollout."""
KNOWN = 4096


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
        self._known: dict[str, str] = {}
        self._store = _NOT_IN_NAMES.sub("_", prefix)

    def subject(self, subject: str) -> str:
        """A subject as the wire has it.

        Raises:
            UsageError: It has empty tokens, wildcards or white space, or is too long.
        """
        known = self._known.get(subject)
        if known is not None:
            return known
        # A subject from a message could otherwise end the line and begin another command.
        if not _SUBJECT.fullmatch(subject) or len(subject) > MAX_SUBJECT_BYTES:
            raise UsageError(
                f"subject {subject[:200]!r}: tokens without spaces, '*' or '>', separated by '.'"
            )
        whole = subject if subject.startswith(_INBOX) else self._root + subject
        # Subjects with ids come once each and would fill the table.
        if subject.startswith(_REPEATED) and len(self._known) < KNOWN:
            self._known[subject] = whole
        return whole

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

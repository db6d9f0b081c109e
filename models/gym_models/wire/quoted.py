"""An engine's text in an error: it cannot be shown with a secret in it.

Engines, routers and HTTP libraries repeat in their errors what they were sent, keys included, whole or in
part. So their text is a `Quoted`, and every conversion to ``str`` hides the secrets: they are removed first,
then the text is cut.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from urllib.parse import quote

HIDDEN = "[key]"
LEAST_CHARS = 8
"""A shorter secret is a placeholder such as ``x`` or ``EMPTY``: hiding it would garble words."""
PIECE_CHARS = 12
_LONGEST_CHARS = 10_000
_SECRET_HEADERS = re.compile(r"auth|key|token|secret|password|cookie|credential", re.IGNORECASE)
_LOOKS_LIKE_KEY = re.compile(
    r"\b(?:sk|pk|nvapi|hf|gsk|xai)[-_](?=[\w.-]*[\d*])[\w*.-]{8,}"
    r"|\bAIza[\w-]{16,}"
    r"|\beyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?"  # a JSON web token
    r"|(?<=://)[^\s/@'\"]+(?=@)"  # a user and a password in a URL
)


class Quoted:
    """Foreign text. ``str``, ``repr`` and formatting hide the secrets in it.

    Args:
        text: bytes are decoded as UTF-8, with errors replaced.
        secrets: what must not be shown: see `secrets_of`.
    """

    __slots__ = ("_secrets", "_text")

    def __init__(self, text: str | bytes, secrets: Iterable[str] = ()) -> None:
        self._text = text
        self._secrets = tuple(secrets)

    def __str__(self) -> str:
        # In bytes a character takes up to four.
        text = self._text[: 4 * _LONGEST_CHARS]
        return hide(text.decode(errors="replace") if isinstance(text, bytes) else text, self._secrets)

    def __repr__(self) -> str:
        return repr(str(self))

    def __format__(self, form: str) -> str:
        return format(str(self), form)

    def cut(self, chars: int) -> str:
        """One line of at most so many characters, after the secrets were removed."""
        said = " ".join(str(self).split())
        return said if len(said) <= chars else said[: chars - 1] + "…"


def secrets_of(headers: Mapping[str, str]) -> tuple[str, ...]:
    """The secrets in headers, in every form in which an error may repeat them.

    >>> "hunter2hunter2" in secrets_of({"authorization": "Basic bWU6aHVudGVyMmh1bnRlcjI="})
    True
    """
    return _secrets_of(
        tuple((name, value) for name, value in headers.items() if _SECRET_HEADERS.search(name))
    )


# The headers are the same for all calls of an engine.
@lru_cache(maxsize=256)
def _secrets_of(headers: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for _, value in headers:
        scheme, _, rest = value.partition(" ")
        found[rest.strip() or scheme] = None
        if scheme.lower() == "basic":
            try:
                login = base64.b64decode(rest).decode()
            except (binascii.Error, UnicodeDecodeError):
                continue
            found[login] = found[login.partition(":")[2]] = None
    # A copy: each secret adds its escaped forms.
    for secret in list(found):
        found |= dict.fromkeys((json.dumps(secret)[1:-1], repr(secret)[1:-1], quote(secret, safe="")))
    return tuple(secret for secret in found if len(secret) >= LEAST_CHARS)


def hide(text: str, secrets: Iterable[str] = ()) -> str:
    """10,000 characters of a text, without these secrets, large pieces of them, and what looks like a key.

    A secret below `PIECE_CHARS` is hidden where it is a whole word.
    """
    text = text[:_LONGEST_CHARS]
    # Marked first and replaced at the end, because secrets may overlap.
    hidden = bytearray(len(text))
    for secret in secrets:
        if len(secret) < PIECE_CHARS:
            whole = rf"(?<![A-Za-z0-9]){re.escape(secret)}(?![A-Za-z0-9])"
            for found in re.finditer(whole, text):
                hidden[found.start() : found.end()] = b"\1" * len(secret)
            continue
        # An error may show a part of a key only: every half of one is hidden.
        size = max(PIECE_CHARS, len(secret) // 2)
        pieces = {secret[start : start + size] for start in range(len(secret) - size + 1)}
        for start in range(len(text) - size + 1):
            if text[start : start + size] in pieces:
                hidden[start : start + size] = b"\1" * size
    for found in _LOOKS_LIKE_KEY.finditer(text):
        hidden[found.start() : found.end()] = b"\1" * (found.end() - found.start())
    shown: list[str] = []
    end = 0
    for run in re.finditer(rb"\x01+", hidden):
        shown += [text[end : run.start()], HIDDEN]
        end = run.end()
    return "".join([*shown, text[end:]])

"""The query in a reply: in a block of code, or in the text itself."""

from __future__ import annotations

import re

_KEYWORDS = "SELECT|INSERT|UPDATE|DELETE|WITH|CREATE|ALTER|DROP"
_BEGINS = re.compile(rf"\s*(?:{_KEYWORDS})\b", re.IGNORECASE)
_BARE = re.compile(
    rf"^[ \t]*+(?:[^\n:]{{1,99}}:[ \t]*+(?=SELECT\b))?({_KEYWORDS})\b", re.IGNORECASE | re.MULTILINE
)
_KEYWORD = re.compile(rf"\b(?:{_KEYWORDS})\b", re.IGNORECASE)
_LANGUAGE = re.compile(r"\w*")


def extracted(text: str) -> str | None:
    """The query in a reply, with one semicolon at its end at most; None if the reply has no query.

    Without a semicolon, a bare query is what stands from the first line that begins as a query, or does so
    behind a label and a colon, to the end.

    >>> extracted("The query: select 3")
    'select 3;'
    >>> extracted("So:\\n```sql\\nSELECT 1;;\\n```"), extracted("It is select 2; Fine."), extracted("None.")
    ('SELECT 1;', 'select 2;', None)
    """
    parts = text.split("```")
    blocks = [(_language(part), part[len(_language(part)) :]) for part in parts[1 : len(parts) - 1 : 2]]
    marked = [body for language, body in blocks if language.lower() == "sql" and body.strip()]
    plain = [
        body if _BEGINS.match(body) else language + body
        for language, body in blocks
        if _BEGINS.match(body) or _BEGINS.match(language + body)
    ]
    found = (marked or plain or [""])[-1]
    if not found:
        start, end = _KEYWORD.search(text), text.rfind(";")
        bare = _BARE.search(text)
        if start and end > start.start():
            found = text[start.start() : end]
        elif bare:
            found = text[bare.start(1) :]
    return f"{found.strip().rstrip(';').rstrip()};" if found.strip(" \t\r\n;") else None


def _language(block: str) -> str:
    word = _LANGUAGE.match(block)
    return word[0] if word else ""

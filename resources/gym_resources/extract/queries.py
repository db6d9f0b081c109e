"""SQL in a model's text."""

from __future__ import annotations

import re

FENCE = "```"
_SQL_FENCE = re.compile("```sql", re.IGNORECASE)
_STATEMENT = re.compile(r"(?:SELECT|INSERT|UPDATE|DELETE|WITH|CREATE|ALTER|DROP)\s", re.IGNORECASE)
_START = re.compile(r"(?:SELECT|INSERT|UPDATE|DELETE|WITH)\s", re.IGNORECASE)


def last_query(text: str) -> str | None:
    """The query that a text ends up with, in linear time; None without one.

    It is the last ```` ```sql ```` block; without any the last block that begins with a verb of SQL; else
    the text from the first ``SELECT``, ``INSERT``, ``UPDATE``, ``DELETE`` or ``WITH`` to the last
    semicolon, or to the end if no semicolon follows.

    >>> last_query("First ```sql\\nSELECT 1```, rather ```SQL SELECT 2;``` or ```SELECT 3```")
    'SELECT 2;'
    >>> last_query("It is select 1; as I said")
    'select 1;'
    """
    blocks = _sql_blocks(text)
    if blocks:
        return blocks[-1].strip() or None
    # Every second part is between two fences, unless the text ends before the second one.
    for block in reversed(text.split(FENCE)[1:-1:2]):
        query = block.strip()
        if _STATEMENT.match(query):
            return query
    start = _START.search(text)
    if start is None:
        return None
    end = text.rfind(";", start.start())
    query = text[start.start() : end] if end >= 0 else text[start.start() :]
    return query.strip().rstrip(";") + ";"


def _sql_blocks(text: str) -> list[str]:
    """The text between each fence of SQL and the next fence after it, from the left."""
    found: list[str] = []
    start = _SQL_FENCE.search(text)
    while start is not None:
        end = text.find(FENCE, start.end())
        if end < 0:
            break
        found.append(text[start.end() : end])
        start = _SQL_FENCE.search(text, end + len(FENCE))
    return found

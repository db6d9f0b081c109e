"""Rollouts as a notebook shows them. All foreign text is escaped, so none of it becomes markup or runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import msgspec

from gym_runtime.errors import UNREADABLE
from gym_runtime.messages.conversation import conversation

MOST_CHARACTERS = 4000
MOST_ITEMS = 200
MOST_ROWS = 64
_decode = msgspec.json.Decoder(dict[str, Any]).decode
_TEXT = "white-space:pre-wrap;text-align:left;margin:0;max-height:20em;overflow:auto"


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table of texts and numbers."""
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def transcript(row: bytes, title: str) -> str:
    """The conversation of a result row, folded under its title."""
    try:
        items = list(conversation(_decode(row)))
    except UNREADABLE:
        return f"<details><summary>{escape(title)}</summary>the row is no JSON object</details>"
    parts = [
        f"<b>{_cell(item.who)}</b><pre style='{_TEXT}'>{_cell(item.text)}</pre>"
        for item in items[:MOST_ITEMS]
    ]
    more = f"<p>… and {len(items) - MOST_ITEMS:,} more</p>" if len(items) > MOST_ITEMS else ""
    return f"<details><summary>{escape(title)}</summary>{''.join(parts)}{more}</details>"


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(value)
    more = f" … {len(text) - MOST_CHARACTERS:,} more characters" if len(text) > MOST_CHARACTERS else ""
    return escape(text[:MOST_CHARACTERS]) + more

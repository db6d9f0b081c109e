"""Foreign text on a terminal: what a terminal would obey is shown, not sent.

Names, rows, paths and errors come from elsewhere. An escape sequence in one of them could set the clipboard,
overwrite what stands above, or make a line read as another one.
"""

from __future__ import annotations

import re

_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters, line breaks and tabs apart
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # that turn the direction of writing
    "\u2028\u2029]"  # line breaks that are not seen as such
)


def in_json(text: str) -> str:
    r"""JSON with every character that a terminal would obey as an escape of JSON: the same to programs.

    >>> in_json('["\u202e"]')
    '["\\u202e"]'
    """
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def shown(text: str) -> str:
    r"""The text with every character that a terminal would obey as Python writes it.

    >>> shown("caf\u00e9\tok"), shown("\x1b]52;c;eA==\x07"), shown("\u202eexe.txt")
    ('café\tok', '\\x1b]52;c;eA==\\x07', '\\u202eexe.txt')
    """
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode(), text)

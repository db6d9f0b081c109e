"""The program in a reply that has to define a given function. All in linear time."""

from __future__ import annotations

import re

FENCE = "```"


def defining_program(text: str, function: str, given: str = "") -> str:
    """The last fenced block that defines the function, else the last block, else the whole text.

    A block that the text does not close ends with the text. ``given``, such as a prompt with the function's
    head, goes before a program that does not define the function.

    >>> defining_program("So:\\n```python\\n    return 1\\n```", "one", "def one():\\n")
    'def one():\\n    return 1'
    """
    defines = re.compile(rf"^[ \t]*(?:async[ \t]+)?def[ \t]+{re.escape(function)}[ \t]*\(", re.MULTILINE)
    programs = _blocks(text) or [text]
    program = next((block for block in reversed(programs) if defines.search(block)), programs[-1])
    return program if defines.search(program) or not program.strip() else given + program


def closed_block(text: str) -> str | None:
    """What stands in the last fenced block, as it is written; None without a closed one.

    >>> closed_block("```python\\n  x\\n```\\nOr:\\n```\\ny")
    '  x\\n'
    """
    end = text.rfind(FENCE)
    if text.count(FENCE) % 2:  # the last block is open
        end = text.rfind(FENCE, 0, max(end, 0))
    start = text.rfind(FENCE, 0, max(end, 0))
    if start < 0:
        return None
    head, newline, body = text[start + len(FENCE) : end].partition("\n")
    return body if newline else head


def between(prefix: str, piece: str, suffix: str) -> list[str]:
    """A piece as it is, and without what repeats the beginning of the suffix, the end of the prefix, both.

    >>> between("x = 1\\ny = ", "y = 2\\nz = 3", "\\nz = 3")
    ['y = 2\\nz = 3', 'y = 2', '2\\nz = 3', '2']
    """
    ahead, behind = piece[_overlap(prefix, piece) :], _overlap(piece, suffix)
    short, both = piece[: len(piece) - behind], ahead[: max(0, len(ahead) - behind)]
    return list(dict.fromkeys((piece, short, ahead, both)))


def _overlap(before: str, after: str) -> int:
    """The length of the longest end of one text with which the other begins, in linear time."""
    size = min(len(before), len(after))
    text = after[:size] + "\0" + before[len(before) - size :]
    border = [0] * len(text)
    for place in range(1, len(text)):
        length = border[place - 1]
        while length and text[place] != text[length]:
            length = border[length - 1]
        border[place] = length + (text[place] == text[length])
    return border[-1] if size else 0


def _blocks(text: str) -> list[str]:
    blocks: list[str] = []
    lines: list[str] | None = None
    for line in text.split("\n"):
        if not line.lstrip().startswith(FENCE):
            if lines is not None:
                lines.append(line)
        elif lines is None:
            lines = []
        else:
            blocks.append("\n".join(lines))
            lines = None
    return blocks if lines is None else [*blocks, "\n".join(lines)]

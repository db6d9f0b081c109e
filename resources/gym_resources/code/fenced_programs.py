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

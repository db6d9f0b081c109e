"""The documentation's pages as blocks of code.

How a block is tried follows from its language and from a comment before it:

- ``title="NAME"`` after the language: it is written to a file of that name.
- ``bash``: its commands are run, in the order of the page, in the folder with the page's files.
- ``python`` without a title: it is run as a script; after ``<!-- cell -->`` as a cell of the page's notebook.
- ``text``: its lines must stand in the output of the block before; ``…`` stands for anything.
- ``json``, ``toml``: it must be valid.
- ``py``, ``pycon``, ``console``: shown only.
- ``<!-- not run: REASON -->`` before a block: shown only. ``<!-- sampled -->`` before a ``text``: the same.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
SKILLS = ROOT / "runtime" / "gym_testing" / "skills"
PAGES = sorted([README, ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"), *SKILLS.glob("*.md")])
GENERATED = "<!-- Written by"

_BLOCK = re.compile(
    r"(?:<!-- ([^>]*?) -->\n\n?)?^( *)```(\w+)([^\n]*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL
)


class Block(NamedTuple):
    language: str
    title: str
    remark: str
    text: str

    @property
    def shown_only(self) -> bool:
        return self.remark.startswith(("not run: ", "sampled"))


def blocks(page: Path) -> list[Block]:
    """The blocks of a page, in order."""
    found: list[Block] = []
    for remark, indent, language, info, text in _BLOCK.findall(page.read_text()):
        title = re.search(r'title="([^"]+)"', info)
        body = "".join(line.removeprefix(indent) for line in text.splitlines(keepends=True))
        found.append(Block(language, title[1] if title else "", remark, body))
    return found


def commands(block: Block) -> list[str]:
    """The commands of a ``bash`` block, without comments."""
    text = re.sub(r"\\\n\s*", "", block.text)
    lines = [re.sub(r"(^|\s+)#.*$", "", line) for line in text.splitlines()]
    return [line for line in lines if line]


def first_command() -> str:
    """What the README's first block runs once it has installed the package."""
    first = next(block for block in blocks(README) if block.language == "bash")
    return first.text.strip().split(" && ")[-1].removeprefix(".venv/bin/")

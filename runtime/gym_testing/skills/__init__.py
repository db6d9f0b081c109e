"""Guides for coding assistants, a Markdown file for each task, with the commands that prove the work.

Each has the head of a skill (``name``, ``description``), so that assistants find it by themselves where it is
put into their folder of skills. Their commands are run by tests/docs/test_snippets.py.
"""

from __future__ import annotations

from importlib import resources
from typing import NamedTuple


class Skill(NamedTuple):
    """A guide; ``text`` is the whole file."""

    name: str
    description: str
    text: str


def skills() -> list[Skill]:
    """All guides, sorted by their names."""
    files = (file for file in resources.files(__name__).iterdir() if file.name.endswith(".md"))
    return sorted(_read(file.read_text("utf-8")) for file in files)


def _read(text: str) -> Skill:
    head = text.split("---\n")[1]
    fields = dict(line.split(": ", 1) for line in head.splitlines())
    return Skill(fields["name"], fields["description"], text)

"""Edits of files that a model writes as SEARCH/REPLACE blocks, and the patch that they make.

A fenced block has a line ``### path`` and then any number of edits. An edit is a line ``<<<<<<< SEARCH``,
lines of the file, a line ``=======``, the lines that take their place, and a line ``>>>>>>> REPLACE``.

The searched text must begin at the start of a line of the named file. All edits refer to the files as they
were; they are applied from the end of a file backwards.
Source: the format of Agentless (github.com/OpenAutoCoder/Agentless, MIT), read as NeMo Gym's ``swerl_gen``
reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from gym_resources.swe.patches import difference

FENCE = "```"
SEARCH, MIDDLE, REPLACE = "<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE"
MAX_EDITS = 1000
MAX_FILES_CHARS = 4_000_000


def patch_of(reply: str, files: Mapping[str, str], *, relaxed: bool = False) -> str | None:
    """The patch that a reply's edits make of the files; None without edits, or if one does not fit.

    Args:
        relaxed: the edits may stand outside of ``<solution>`` tags.
    """
    solution = _solution(reply.rpartition("</think>")[2], relaxed=relaxed)
    if solution is None:
        return None
    found: dict[str, list[tuple[int, int, str]]] = {}
    count = 0
    for path, search, replace in _edits(solution):
        text, count = files.get(path), count + 1
        if text is None or search == replace or count > MAX_EDITS or len(text) > MAX_FILES_CHARS:
            return None
        start = 0 if text.startswith(search) else text.find(f"\n{search}") + 1
        if not search.strip("\n") or (start == 0 and not text.startswith(search)):
            return None
        found.setdefault(path, []).append((start, start + len(search), replace))
    if not found:
        return None
    after = dict(files)
    for path, edits in found.items():
        ordered = sorted(edits, reverse=True)
        if any(one[0] < other[1] for one, other in pairwise(ordered)):
            return None
        after[path] = _applied(files[path], ordered)
    return difference(files, after) or None


def last_block(reply: str, language: str = "python") -> str | None:
    """The text of the last fenced block of a language, or None."""
    blocks = [text for label, text in _fenced(reply) if label == language]
    return blocks[-1] if blocks else None


def _applied(text: str, edits: list[tuple[int, int, str]]) -> str:
    parts: list[str] = []
    end = len(text)
    for start, stop, replace in edits:
        parts += [text[stop:end], replace]
        end = start
    return "".join(reversed([*parts, text[:end]]))


def _solution(reply: str, *, relaxed: bool) -> str | None:
    _, opened, rest = reply.partition("<solution>")
    inside, closed, _ = rest.partition("</solution>")
    if opened and closed:
        return inside
    return reply if relaxed else None


def _fenced(text: str) -> Iterator[tuple[str, str]]:
    """The label and the content of each fenced block."""
    label: str | None = None
    content: list[str] = []
    for line in text.split("\n"):
        if line.startswith(FENCE):
            if label is None:
                label, content = line[len(FENCE) :].strip(), []
            else:
                yield label, "\n".join(content) + "\n"
                label = None
        elif label is not None:
            content.append(line)


def _edits(solution: str) -> Iterator[tuple[str, str, str]]:
    """The path, the searched text and its replacement of each edit."""
    for _, block in _fenced(solution):
        path, part = "", ""
        sides = _sides()
        for line in block.split("\n"):
            mark = line.rstrip()
            if mark == SEARCH:
                part, sides = SEARCH, _sides()
            elif mark == MIDDLE and part == SEARCH:
                part = MIDDLE
            elif mark == REPLACE and part == MIDDLE:
                search, replace = ("".join(f"{one}\n" for one in side) for side in sides.values())
                yield path, search, replace
                part = ""
            elif part:
                sides[part].append(line)
            elif line.startswith("### "):
                path = line[4:].strip()


def _sides() -> dict[str, list[str]]:
    return {SEARCH: [], MIDDLE: []}

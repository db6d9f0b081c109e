r"""Answers in ``\boxed{...}``, the LaTeX convention for a final answer.

Only ``\boxed{`` opens a box, without a space before the brace.
"""

from __future__ import annotations

import re

from gym_resources.extract.braces import closing_brace

MARK = r"\boxed{"
_TEXT = re.compile(r"\\text\s*\{(.*)\}", re.DOTALL)


def last_boxed(text: str) -> str | None:
    r"""The content of the box that opens last, or None without one.

    Braces are balanced, so ``\boxed{\frac{1}{2}}`` holds ``\frac{1}{2}``; an escaped brace counts like any
    other. If the box is never closed the result is None: the text was cut off, and an earlier box is not its
    answer.

    >>> last_boxed(r"Either \boxed{1}, or rather \boxed{\text{two}}.")
    '\\text{two}'
    """
    start = text.rfind(MARK)
    if start < 0:
        return None
    start += len(MARK)
    end = closing_brace(text, start)
    return text[start:end] if end >= 0 else None


def last_boxed_text(text: str) -> str | None:
    r"""As `last_boxed`, without space around it, and without a ``\text{}`` around the whole of it.

    >>> last_boxed_text(r"\boxed{\text{Pacific Ocean}}")
    'Pacific Ocean'
    """
    content = last_boxed(text)
    if content is None:
        return None
    wrapped = _TEXT.fullmatch(content.strip())
    return (wrapped[1] if wrapped else content).strip()


def last_boxed_to_brace(text: str) -> str | None:
    r"""The text between the last ``\boxed{`` that a closing brace follows and the first ``}`` after it.

    >>> last_boxed_to_brace(r"\boxed{\text{B}} \boxed{")
    '\\text{B'
    """
    start = text.rfind(MARK, 0, max(text.rfind("}"), 0))
    return text[start + len(MARK) : text.index("}", start)] if start >= 0 else None


def first_boxed(text: str) -> str | None:
    r"""The content of the box that opens first, without spaces, a second pair of braces, or ``\text{}``.

    None without a box, or if it is never closed.

    >>> [first_boxed(text) for text in (r"\boxed{{C}}, not \boxed{D}", r"\boxed{ \text{B} }", r"\boxed{A")]
    ['C', 'B', None]
    """
    start = text.find(MARK)
    if start < 0:
        return None
    start += len(MARK)
    end = closing_brace(text, start)
    if end < 0:
        return None
    content = text[start:end].strip()
    for opening in ("{", r"\text{"):
        if content.startswith(opening) and content.endswith("}"):
            return content[len(opening) : -1].strip()
    return content


def all_boxed(text: str) -> list[str | None]:
    r"""The content of each box, as `first_boxed` reads it; None for one with a box within it.

    >>> all_boxed(r"\boxed{B}, \boxed{ \text{C} } or \boxed{\boxed{D}}")
    ['B', 'C', None, 'D']
    """
    return [first_boxed(MARK + part) for part in text.split(MARK)[1:]]


def alone(text: str, answer: str, own: str) -> bool:
    """Whether the boxes of a text agree, and an answer has nothing beside the row's own.

    >>> alone("It is 12.", "12.", "12"), alone("It is not 12.", "not 12", "12")
    (True, False)
    """
    boxes = {text[start:].partition("}")[0] for start in _after_each(text, MARK)}
    beside = answer.replace(own, "", 1) if own else ""
    return len(boxes) < 2 and (beside == answer or not beside.strip(" .\n"))


def _after_each(text: str, part: str) -> list[int]:
    """Where a text goes on after each of its first hundred places with a part."""
    found, start = list[int](), text.find(part)
    while start >= 0 and len(found) < 100:
        found.append(start + len(part))
        start = text.find(part, start + len(part))
    return found

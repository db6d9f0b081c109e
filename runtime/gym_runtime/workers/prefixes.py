"""The next turn's prompt, starting with the very tokens of the turns before: rules without a loop.

A template renders text, and text that a model wrote is not always tokenized to the tokens that it generated:
a tokenizer merges characters differently, a template formats a tool call again. So the tokens so far are
taken as they are, and from the template only what follows them:

    ``so_far``   what the engine saw and produced in the last turn: prompt and completion
    ``history``  the same items, rendered by the template, without a prompt to go on
    ``whole``    all items, rendered, with a prompt to answer

If ``whole`` starts with ``history``, the template leaves the past alone, and what it adds is
``whole[len(history):]``. Before that comes whatever the template writes after the token that ended the
model's turn, such as the newline after ``<|im_end|>``.

Where the rules do not hold (thinking of past turns is dropped, a turn was cut off at its length limit and
has no end), there is no splice: the prompt is ``whole``, and a new segment of tokens begins.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

MOST_AFTER_END = 3
"""Tokens that a template writes after the end of a turn at most; more would be another turn."""


def splice(
    so_far: Sequence[int], history: Sequence[int], whole: Sequence[int], special: Container[int] = ()
) -> list[int] | None:
    """The prompt that starts with ``so_far``, or None if the rules do not hold.

    Args:
        special: the tokenizer's special tokens, if they are known: where one of them ends the turn, a turn
            that was cut off at a token that the template writes after it, such as a newline, has no end.

    Template ``<user>…<end>\\n<assistant>…<end>\\n`` with ``<end>`` as 2, a newline as 9:

    >>> splice([1, 5, 5, 2], [1, 7, 2, 9], [1, 7, 2, 9, 3, 4])
    [1, 5, 5, 2, 9, 3, 4]
    >>> splice([1, 5, 5, 2], [1, 7, 2, 9], [1, 2, 9, 3, 4]) is None  # the past has changed
    True
    >>> splice([1, 5, 5], [1, 7, 2, 9], [1, 7, 2, 9, 3, 4]) is None  # the turn was cut off
    True
    >>> splice([1, 5, 9], [1, 7, 2, 9], [1, 7, 2, 9, 3, 4], special={2}) is None  # as well
    True
    """
    after = end_of(history, whole)
    if after is None or not so_far:
        return None
    last = so_far[-1]
    tail = list(history[-MOST_AFTER_END - 1 :])
    if last not in special and any(token in special for token in tail):
        return None
    for back in range(1, len(tail) + 1):
        if tail[-back] == last:
            return [*so_far, *whole[after - back + 1 :]]
    return None


def end_of(history: Sequence[int], whole: Sequence[int]) -> int | None:
    """Where in ``whole`` the new tokens begin, or None if it does not start with ``history``."""
    length = len(history)
    # As lists: the arguments may be arrays, whose `==` works by element.
    return length if length and list(whole[:length]) == list(history) else None


def moved(offset: int, length: int, so_far: Sequence[int], history: Sequence[int], shift: int) -> int | None:
    """Where the placeholder of an image at ``offset`` of ``whole`` is in the spliced prompt.

    ``shift`` is how much longer the spliced prompt is than ``whole``. What is in the history keeps its
    place if all tokens up to it are the same; None where they are not, for then it is unknown.

    >>> moved(9, 2, [1, 5, 5, 2], [1, 7, 2, 9], 3), moved(1, 2, [1, 7, 7, 2], [1, 7, 7, 2], 3)
    (12, 1)
    >>> moved(1, 2, [1, 5, 7, 2], [1, 7, 7, 2], 3) is None
    True
    """
    if offset >= len(history):
        return offset + shift
    end = offset + length
    return offset if list(so_far[:end]) == list(history[:end]) else None

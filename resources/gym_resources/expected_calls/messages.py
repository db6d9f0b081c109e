"""Messages of the model, where one is expected in place of a call."""

from __future__ import annotations

import re

from gym_runtime import Reply


def has_text(reply: Reply) -> bool:
    """Whether the model wrote a message with a text, as its content or as a part of it."""
    return any(
        isinstance(message.content, str) or any(part.type == "output_text" for part in message.parts)
        for message in reply.messages
    )


def shares_a_word(text: str, other: str) -> bool:
    """Whether two texts have a word of at least four letters in common, in either case."""
    return bool(_long_words(text) & _long_words(other))


def says_something(text: str) -> bool:
    """Whether a text has at least five different words, or ten different letters beyond ASCII.

    >>> says_something("All tests passed."), says_something("None of the tools tells the weather.")
    (False, True)
    """
    words = set(re.findall(r"[^\W\d_]{2,}", text.casefold()))
    return len(words) >= 5 or sum(one.isalpha() and not one.isascii() for one in set(text)) >= 10


def _long_words(text: str) -> set[str]:
    return set(re.findall(r"\w{4,}", text.casefold()))

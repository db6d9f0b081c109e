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


def shares_a_word(reply: Reply, expected: str) -> bool:
    """Whether the reply has a word of at least four letters of an expected text, in either case."""
    return bool(_long_words(reply.joined_text) & _long_words(expected))


def _long_words(text: str) -> set[str]:
    return set(re.findall(r"\w{4,}", text.casefold()))

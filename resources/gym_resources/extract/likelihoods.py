"""Log-probabilities of a text that an engine has given with its tokens (``echo``)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
from gym_runtime import Reply, ResourceError


class Token(msgspec.Struct):
    token: str
    logprob: float | None = None


class _Part(msgspec.Struct):
    logprobs: list[Token] | None = None


class _Said(msgspec.Struct):
    type: str = ""
    role: str = ""
    content: list[_Part] | str | None = None


_decode = msgspec.json.Decoder(_Said).decode


def said_tokens(reply: Reply) -> list[list[Token]]:
    """The tokens of each message of the assistant, in order; none of a message without them."""
    items = [_decode(item) for item in reply.response.output]
    said = [one for one in items if (one.type, one.role) == ("message", "assistant")]
    return [
        [token for part in one.content or () if isinstance(part, _Part) for token in part.logprobs or ()]
        for one in said
    ]


def likelihood(tokens: Sequence[Token], end: str) -> float:
    """The log-probability of the end of a text: the sum of the tokens that it is made of.

    A token that it shares with what is before counts as its own.

    Raises:
        ResourceError: there are no log-probabilities of all of it.
    """
    total, left = 0.0, len(end)
    for one in reversed(tokens):
        if left <= 0:
            return total
        if one.logprob is None or not math.isfinite(one.logprob):
            break
        total += one.logprob
        left -= len(one.token)
    if left > 0:
        raise ResourceError(
            "an answer has no log-probabilities of its whole option: the engine has to be asked with "
            "--model-api completions, and to know echo",
            stage="model",
        )
    return total
    return total

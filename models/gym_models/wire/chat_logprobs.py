"""The log-probabilities of a completion as a Responses API answer shows them, for calls that ask for them.

Chat Completions has them beside the message, one entry per token; the Responses API has them in the message's
text part. `chat_tokens` reads those for training.
"""

from __future__ import annotations

import msgspec

from gym_models.wire.pieces import encode

NONE = b"null"


# `gc=False`: an answer may have tens of thousands, and none is part of a cycle.
class _Candidate(msgspec.Struct, gc=False):
    token: str
    logprob: float
    bytes: list[int] | None = None


class _Entry(_Candidate):
    top_logprobs: list[_Candidate] = []


class _Logprobs(msgspec.Struct):
    content: list[_Entry] | None = None


class _Choice(msgspec.Struct):
    logprobs: _Logprobs | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]


_decode = msgspec.json.Decoder(_Completion).decode


def of(body: bytes) -> bytes:
    """The ``logprobs`` of an ``output_text`` part, as JSON: one entry per token, or ``null`` without any.

    Raises:
        msgspec.DecodeError: the engine writes them in another form.
    """
    logprobs = _decode(body).choices[0].logprobs
    if logprobs is None or not logprobs.content:
        return NONE
    for entry in logprobs.content:
        for one in (entry, *entry.top_logprobs):
            if one.bytes is None:  # a client may rely on them
                one.bytes = list(one.token.encode())
    return encode(logprobs.content)

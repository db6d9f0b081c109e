"""Token ids and log-probabilities out of a completion, where the engine gives them.

vLLM gives ``prompt_token_ids``, ``token_ids`` and ``logprobs``; llama.cpp has the generated ids within
``logprobs``; others write ``token_id:17`` in place of a token's text. What is missing stays empty.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence

import msgspec
from gym_runtime.messages.calls import Tokens

from gym_models.wire.chat_answer import Choice, Completion
from gym_models.wire.pieces import is_null

_PREFIX = "token_id:"


class _Logprob(msgspec.Struct, gc=False):
    logprob: float


class _Named(_Logprob, gc=False):
    token: str = ""
    id: int | None = None


class _Logprobs(msgspec.Struct):
    content: list[_Logprob] | None = None


class _NamedLogprobs(msgspec.Struct):
    content: list[_Named] | None = None


_decode_ids = msgspec.json.Decoder(list[int]).decode
_decode_logprobs = msgspec.json.Decoder(_Logprobs).decode
_decode_named = msgspec.json.Decoder(_NamedLogprobs).decode


def tokens(completion: Completion) -> Tokens:
    """What the engine says of the first choice's tokens.

    Raises:
        msgspec.DecodeError: it says it in another form.
    """
    choice = completion.choices[0]
    prompt = choice.prompt_token_ids if is_null(completion.prompt_token_ids) else completion.prompt_token_ids
    prompt_ids = [] if is_null(prompt) else _decode_ids(prompt)
    entries: Sequence[_Logprob]
    if is_null(choice.logprobs):
        generated, entries = _ids(choice), []
    elif not is_null(choice.token_ids):  # most of the cost is in the entries, whose names nobody needs then
        generated, entries = _ids(choice), _decode_logprobs(choice.logprobs).content or []
    else:
        entries = named = _decode_named(choice.logprobs).content or []
        generated = [one for entry in named if (one := _id(entry)) is not None]
        if len(generated) != len(named):
            generated = []
    return Tokens(
        prompt_ids=packed("i", prompt_ids),
        generation_ids=packed("i", generated),
        log_probs=packed("f", [entry.logprob for entry in entries]),
    )


def _ids(choice: Choice) -> list[int]:
    return [] if is_null(choice.token_ids) else _decode_ids(choice.token_ids)


def packed(kind: str, numbers: list[int] | list[float]) -> bytes:
    """Four bytes a number, little-endian: ``i`` for int32, ``f`` for float32."""
    packed_array = array(kind, numbers)
    if sys.byteorder == "big":
        packed_array.byteswap()
    return packed_array.tobytes()


def _id(entry: _Named) -> int | None:
    if entry.id is None and entry.token.startswith(_PREFIX):
        return int(entry.token.removeprefix(_PREFIX))
    return entry.id

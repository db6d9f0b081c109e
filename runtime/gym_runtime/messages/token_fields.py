"""Writes the token ids and log-probabilities of model calls into a row, as NeMo Gym has them.

They stand on the last output item of each call: ``prompt_token_ids``, ``generation_token_ids``,
``generation_log_probs``, and this runtime's ``token_segment`` and ``weight_versions``. Each prompt is written
whole, so a row is much larger than its tokens: it is written once, where it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from gym_runtime.messages.call_tokens import CallTokens, Past, Tokens
from gym_runtime.messages.packing import ID_BYTES, json_ids, unpack_ids, unpack_logprobs

Piece = bytes | Raw
_encode = msgspec.json.Encoder().encode
_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_items = msgspec.json.Decoder(list[Raw]).decode


def row_with_tokens(row: Raw, calls: Iterable[CallTokens]) -> Raw:
    """A result row with the tokens of its model calls.

    Raises:
        msgspec.DecodeError: it is no row with a response.
    """
    fields = _fields(row)
    response = _fields(fields["response"])
    output = _array(_with_tokens(_items(response["output"]), calls))
    return Raw(b"".join(_object(fields, "response", _object(response, "output", output))))


def with_tokens(output: Sequence[Raw], calls: Iterable[CallTokens]) -> list[Raw]:
    """A transcript, with each call's tokens on its last item."""
    return [Raw(b"".join(item)) for item in _with_tokens(output, calls)]


def _with_tokens(output: Sequence[Raw], calls: Iterable[CallTokens]) -> list[list[Piece]]:
    """The items of a transcript as pieces of JSON, to be joined once: prompts share theirs."""
    items: list[list[Piece]] = [[item] for item in output]
    past = _Written()
    for call in calls:
        # Not decoded: the item's numbers and spaces must stay as the engine wrote them.
        head = bytes(output[call.item]).rstrip()[:-1].rstrip()
        comma = b"" if head.endswith(b"{") else b","
        items[call.item] = [
            *(head, comma, b'"prompt_token_ids":['),
            *past.prompt(call.tokens),
            *(b"],", _encode(_other_fields(call))[1:]),
        ]
    return items


def _other_fields(call: CallTokens) -> dict[str, Any]:
    tokens = call.tokens
    fields: dict[str, Any] = {
        "generation_token_ids": unpack_ids(tokens.generation_ids),
        "generation_log_probs": unpack_logprobs(tokens.log_probs),
    }
    if call.segment:
        fields["token_segment"] = call.segment
    if tokens.weights:
        fields["weight_versions"] = tokens.weights
    return fields


class _Written(Past):
    """The tokens of a conversation so far and their JSON, in pieces without brackets.

    Each call's prompt holds all tokens before it. If their JSON were made again for each call, the cost would
    grow with the square of the number of calls.
    """

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[bytes] = []

    def prompt(self, tokens: Tokens) -> list[bytes]:
        """The JSON of a call's prompt; from then on its answer counts as past, too."""
        if not self.continued_by(tokens):
            self._pieces = []
            self._add(bytes(self.ids[: tokens.same * ID_BYTES]))
        self._add(tokens.rest if tokens.same else tokens.prompt_ids)
        prompt = list(self._pieces)
        self._add(tokens.generation_ids)
        self.extend(tokens)
        return prompt

    def _add(self, ids: bytes) -> None:
        if ids:
            written = json_ids(ids)
            self._pieces.append(b",%b" % written if self._pieces else written)


def _object(fields: Mapping[str, Raw], name: str, value: Sequence[Piece]) -> list[Piece]:
    """A JSON object with another value under one of its names."""
    pieces: list[Piece] = []
    for key, old in fields.items():
        pieces += [b",%b:" % _encode(key), *(value if key == name else (old,))]
    return [b"{", bytes(pieces[0])[1:], *pieces[1:], b"}"]


def _array(items: Iterable[Sequence[Piece]]) -> list[Piece]:
    pieces: list[Piece] = []
    for item in items:
        pieces += [b",", *item]
    return [b"[", *pieces[1:], b"]"]

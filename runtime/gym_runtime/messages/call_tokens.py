"""The tokens of model calls: packed, short on the calls before them, and written into a row.

Ids travel as int32, log-probabilities as float32, both little-endian. A conversation's next prompt mostly
repeats all tokens before it. Between a model worker and its agent, in the journal and in a result's record a
prompt is therefore short: how many of its first ids are those before it (``same``), and the others
(``rest``). A reader needs the ids before it.

In a row they are as NeMo Gym has them, on the last output item of each call: ``prompt_token_ids``,
``generation_token_ids``, ``generation_log_probs``, ``routed_experts``, and this runtime's ``token_segment``
and ``weight_versions``. Each prompt is written whole, so a row is much larger than its tokens: it is written
once, where it is read.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from gym_runtime.errors import ModelUnavailable
from gym_runtime.messages.routed_experts import Experts, written

ID_BYTES = 4
_TEXT_BYTES = 16_000
"""So much JSON is read at once: its numbers stay in the processor's cache, which saves a third."""
_NUMBERS = _TEXT_BYTES // 4
_decode = msgspec.json.Decoder(list[int]).decode
_encode = msgspec.json.Encoder().encode


def pack_ids(ids: Sequence[int]) -> bytes:
    """As int32.

    >>> unpack_ids(pack_ids([1, 128_255]))
    [1, 128255]
    """
    return struct.pack(f"<{len(ids)}i", *ids)


def unpack_ids(data: bytes) -> list[int]:
    """From int32."""
    return _int32(data).tolist()


def _int32(data: bytes) -> array[int]:
    ids = array("i", data)  # a third faster than `struct.unpack`; its numbers have four bytes, too
    if sys.byteorder == "big":
        ids.byteswap()
    return ids


def pack_json_ids(text: bytes) -> bytes:
    """As int32, from a JSON array.

    Raises:
        msgspec.DecodeError: it is no array of whole numbers.
        struct.error: a number has more than 32 bits.
    """
    return b"".join([pack_ids(_decode(piece)) for piece in _arrays(text)])


def _arrays(text: bytes) -> Iterator[bytes]:
    """Cut a JSON array of numbers into several; if it is malformed, one of them is."""
    start, opened = 0, b""
    while 0 <= (end := text.find(b",", start + _TEXT_BYTES)) < len(text) - _TEXT_BYTES:
        yield b"%b%b]" % (opened, text[start:end])
        start, opened = end + 1, b"["
    yield opened + text[start:]


def json_ids(data: bytes) -> bytes:
    """The numbers of a JSON array, without its brackets, from int32.

    >>> json_ids(pack_ids([1, 128_255]))
    b'1,128255'
    """
    ids = _int32(data)
    pieces = (ids[start : start + _NUMBERS] for start in range(0, len(ids), _NUMBERS))
    return b",".join([_encode(piece.tolist())[1:-1] for piece in pieces])


def pack_logprobs(logprobs: Sequence[float]) -> bytes:
    """As float32."""
    return struct.pack(f"<{len(logprobs)}f", *logprobs)


def unpack_logprobs(data: bytes) -> list[float]:
    """From float32.

    >>> unpack_logprobs(pack_logprobs([-0.25]))
    [-0.25]
    """
    return list(struct.unpack(f"<{len(data) // 4}f", data))


Ids = tuple[bytes, ...]
"""Packed ids in pieces. A conversation's ids share the pieces of those before, which may take megabytes."""

PIECES_AT_MOST = 64  # then they are joined, because each turn looks at all of them


class Prefix(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The tokens of a conversation so far.

    Attributes:
        ids: int32, little-endian, shape (tokens,): the last call's prompt and completion.
        items: how many of the conversation's items they cover.
        completion: how many of the tokens are the last call's completion; 0 if an older peer did not say.
    """

    ids: bytes
    items: int
    completion: int = 0

    @property
    def prompt_and_completion(self) -> tuple[list[int], list[int]]:
        """Of the last call; the first token alone is the prompt where the length is not known."""
        ids = unpack_ids(self.ids)
        start = len(ids) - self.completion if 0 < self.completion < len(ids) else 1
        return ids[:start], ids[start:]


class WeightSpan(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens ``[start, end)`` of a completion were sampled from this version of the weights."""

    version: str
    start: int
    end: int


class Tokens(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Exactly what the engine saw and produced in one call.

    Attributes:
        prompt_ids: int32, little-endian, shape (prompt tokens,); empty where the prompt is short.
        generation_ids: int32, little-endian, shape (generated tokens,).
        log_probs: float32, little-endian, shape (generated tokens,): natural logarithms.
        weights: which version of the weights sampled which tokens; empty if the engine does not say.
        same: of a short prompt, how many of its ids, from the first one on, are those before it; else 0.
        rest: of a short prompt, the other ids, as ``prompt_ids``.
        experts: which experts each token went to, of engines that were asked for it.
    """

    prompt_ids: bytes = b""
    generation_ids: bytes = b""
    log_probs: bytes = b""
    weights: list[WeightSpan] = []
    same: int = 0
    rest: bytes = b""
    experts: Experts | None = None


class CallTokens(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The tokens of one model call of a rollout, short on those of the call before.

    Attributes:
        item: the index of the call's last item in the response's output.
        segment: the number of the token sequence to which the call belongs, from 0.
    """

    item: int
    tokens: Tokens
    segment: int = 0


def shortened(tokens: Tokens, before: bytes | bytearray) -> Tokens:
    """Whole tokens with a short prompt, if the prompt shares ids with ``before``."""
    same = shared_ids(tokens.prompt_ids, before)
    if not same:
        return tokens
    # The last id before may have been sampled last, and then has its experts from this call.
    experts = tokens.experts and tokens.experts.since(same - 1)
    return msgspec.structs.replace(
        tokens, prompt_ids=b"", same=same, rest=tokens.prompt_ids[same * ID_BYTES :], experts=experts
    )


def lengthened(tokens: Tokens, before: Ids) -> Tokens:
    """The tokens with their whole prompt.

    Raises:
        ModelUnavailable: the prompt is short on more ids than ``before`` has.
    """
    if not tokens.same:
        return tokens
    prompt = b"".join(_prompt(tokens, before))
    return msgspec.structs.replace(tokens, prompt_ids=prompt, same=0, rest=b"")


def _prompt(tokens: Tokens, before: Ids) -> Ids:
    if not tokens.same:
        return (tokens.prompt_ids,)
    kept: list[bytes] = []
    missing = tokens.same * ID_BYTES
    for piece in before:
        if not missing:
            break
        kept.append(piece[:missing])
        missing -= len(kept[-1])
    if missing:
        raise ModelUnavailable("the model's answer leaves out token ids that are not known", stage="model")
    return (*kept, tokens.rest)


def ids_after(tokens: Tokens | None, before: Ids) -> Ids:
    """The ids of a conversation, including its last answer; nothing if they are not reported.

    Raises:
        ModelUnavailable: as `lengthened`.
    """
    if tokens is None or not (tokens.prompt_ids or tokens.same):
        return ()
    ids = (*_prompt(tokens, before), tokens.generation_ids)
    return ids if len(ids) <= PIECES_AT_MOST else (b"".join(ids),)


def prefix_after(tokens: Tokens | None, items: int) -> Prefix | None:
    """The tokens of a conversation of ``items`` items, including its last answer, whose prompt is whole.

    None if they are not reported.
    """
    if tokens is None or not tokens.prompt_ids:
        return None
    sampled = len(tokens.generation_ids) // ID_BYTES
    return Prefix(ids=tokens.prompt_ids + tokens.generation_ids, items=items, completion=sampled)


def chained(calls: Mapping[int, Tokens]) -> list[CallTokens]:
    """The calls of a transcript, each short on the one before it in the mapping, if it is not already.

    Within a segment every prompt starts with exactly the tokens of the call before, prompt and completion; so
    a segment is one sequence to train on. Where the engine rewrote the history (it dropped thinking, or
    tokenized a tool call differently), the next segment starts.
    """
    chain: list[CallTokens] = []
    past, segment = Past(), 0
    for item, one in calls.items():
        tokens = one if one.same else shortened(one, past.ids)
        segment += bool(chain) and not past.continued_by(tokens)
        past.extend(tokens)
        chain.append(CallTokens(item=item, tokens=tokens, segment=segment))
    return chain


class Past:
    """The ids of a chain up to a call.

    Attributes:
        ids: packed.
    """

    def __init__(self) -> None:
        self.ids = bytearray()

    def continued_by(self, tokens: Tokens) -> bool:
        """Whether a short prompt begins with all ids so far."""
        return tokens.same * ID_BYTES == len(self.ids)

    def extend(self, tokens: Tokens) -> None:
        """Go on behind a call whose prompt is short, or whole."""
        del self.ids[tokens.same * ID_BYTES :]
        self.ids += (tokens.rest if tokens.same else tokens.prompt_ids) + tokens.generation_ids


def shared_ids(ids: bytes, before: bytes | bytearray) -> int:
    """How many ids both begin with."""
    size = min(len(ids), len(before))
    if ids.startswith(memoryview(before)[:size]):
        return size // ID_BYTES
    low, high = 0, size // ID_BYTES
    while low < high:  # the first `low` ids are the same, the first `high + 1` are not
        middle = (low + high + 1) // 2
        # Views compare number by number, bytes all at once.
        if ids.startswith(memoryview(before)[low * ID_BYTES : middle * ID_BYTES], low * ID_BYTES):
            low = middle
        else:
            high = middle - 1
    return low


Piece = bytes | Raw
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
    return fields if tokens.experts is None else fields | written(tokens.experts)


class _Written(Past):
    """The tokens of a conversation so far and their JSON, in pieces without brackets.

    Each call's prompt holds all tokens before it. If each call wrote their JSON again, the cost would grow
    with the square of the number of calls.
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

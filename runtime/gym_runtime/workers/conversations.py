"""The conversations that a model worker keeps, so that each turn sends only the new items.

A call that continues a conversation says how many items the worker has kept. If the worker has not kept
exactly these (another worker has them, they were evicted, a repeated call has added more), it raises
`ConversationUnknown`, and the rollout sends the whole conversation. So a conversation may be dropped at any
time: after `CONVERSATION_IDLE_S` without a new turn, and when all together exceed `LIMIT_BYTES`, the least
recently used first.
"""

from __future__ import annotations

import itertools
import random
from collections import OrderedDict

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from gym_runtime import clock
from gym_runtime.errors import UNREADABLE, ConversationUnknown, ModelUnavailable
from gym_runtime.messages.calls import ModelAnswer, ModelCall, Prefix, prefix_after
from gym_runtime.workers.adapter import ConversationNotes

CONVERSATION_IDLE_S = 30.0
"""A conversation without a new turn for so long is dropped; its next turn sends the whole conversation."""

LIMIT_BYTES = 256 * 1024 * 1024
CONVERSATION_BYTES = 1500
ITEM_BYTES = 300
"""Memory of the Python objects, in addition to the bytes that they hold."""


class _Output(msgspec.Struct, frozen=True):
    output: list[Raw] = []


_decode_output = msgspec.json.Decoder(_Output).decode


class _Kept(msgspec.Struct):
    params: Raw
    items: list[Raw]
    size_bytes: int
    used_s: float
    mark: int
    prefix: Prefix | None = None
    notes: ConversationNotes = msgspec.field(default_factory=ConversationNotes)


class Conversations:
    """The conversations of one worker, by name."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self.size_bytes = 0
        self._limit_bytes = limit_bytes
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        # Random, so that a later worker with the same name does not repeat these marks.
        self._marks = itertools.count(random.getrandbits(48) + 1)

    def __len__(self) -> int:
        return len(self._kept)

    def complete(self, call: ModelCall) -> ModelCall:
        """The call with its whole conversation.

        Raises:
            ConversationUnknown: the conversation that it continues is not kept here.
        """
        if not call.known:
            return call
        kept = self._kept.get(call.conversation)
        # A repeated call may have had a different answer from the one that the rollout got.
        if kept is None or len(kept.items) != call.known or call.mark not in (0, kept.mark):
            raise ConversationUnknown(
                f"conversation {call.conversation} is not on this worker", stage="model"
            )
        return replace(
            call, params=kept.params, input=[*kept.items, *call.input], known=0, prefix=kept.prefix
        )

    def notes(self, call: ModelCall) -> ConversationNotes:
        """Take the adapter's notes on the conversation that a call continues.

        `keep` puts the notes back. A second call that continues the same items, because the first is repeated
        or fails, gets no notes: it may bring other new items.
        """
        kept = self._kept.get(call.conversation) if call.known else None
        if kept is None:
            return ConversationNotes()
        notes, kept.notes = kept.notes, ConversationNotes()
        return notes

    def keep(
        self, call: ModelCall, answer: ModelAnswer, notes: ConversationNotes | None = None
    ) -> ModelAnswer:
        """Keep a complete call and its answer for the next turn; return the answer with ``kept`` set.

        Raises:
            ModelUnavailable: the answer is not a response.
        """
        if not call.conversation:
            return answer
        try:
            output = _decode_output(answer.response).output
        except UNREADABLE as error:
            raise ModelUnavailable(f"the model's answer is not a response: {error}", stage="model") from error
        # Copies: a slice would keep the answer's whole buffer in memory, log-probabilities included.
        items = [*call.input, *[item.copy() for item in output]]
        prefix = prefix_after(answer.tokens, len(items))
        notes = ConversationNotes() if notes is None else notes
        size_bytes = _size_bytes(call.params, items, prefix) + notes.size_bytes
        mark = next(self._marks)
        now_s = clock.monotonic()
        kept = _Kept(call.params, items, size_bytes, now_s, mark, prefix, notes)
        # Removed and inserted again, which moves it to the end as the most recently used.
        self._drop(call.conversation)
        self._kept[call.conversation] = kept
        self.size_bytes += kept.size_bytes
        self._tidy(now_s - CONVERSATION_IDLE_S)
        if call.conversation not in self._kept:
            return replace(answer, kept=0)
        return replace(answer, kept=len(items), mark=mark)

    def _tidy(self, before_s: float) -> None:
        """Drop conversations, the least recently used first."""
        while self._kept:
            name, oldest = next(iter(self._kept.items()))
            if oldest.used_s >= before_s and self.size_bytes <= self._limit_bytes:
                return
            self._drop(name)

    def _drop(self, name: str) -> None:
        gone = self._kept.pop(name, None)
        if gone is not None:
            self.size_bytes -= gone.size_bytes


def _size_bytes(params: Raw, items: list[Raw], prefix: Prefix | None) -> int:
    # `Raw` has no length of its own; a memoryview does not copy.
    text = len(memoryview(params)) + sum(map(len, map(memoryview, items)))
    ids = len(prefix.ids) if prefix is not None else 0
    return CONVERSATION_BYTES + ITEM_BYTES * len(items) + text + ids

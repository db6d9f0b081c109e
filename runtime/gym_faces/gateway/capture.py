"""Captures the calls of each rollout: in memory up to a limit, and also in a file if one is given.

At the limit, the rollout with the oldest last call is dropped as a whole, because a part of a rollout would
look like a whole one.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec
from gym_runtime.adapters import ModelCall, Tokens
from msgspec import Raw
from msgspec.structs import replace

from gym_faces.recordings.calls_file import CallEntry, CallsFile, encode_entry
from gym_faces.recordings.transcript import Transcript, off_loop

MAX_BYTES = 256 * 2**20


class _Rollout(msgspec.Struct):
    calls: list[bytes] = []
    transcript: Transcript = msgspec.field(default_factory=Transcript)


class Captures:
    """The calls of many rollouts.

    Args:
        max_bytes: of all rollouts together, as JSON; their transcripts take about as much again.
        file: where each call is also written, before its answer is given.
    """

    def __init__(self, *, max_bytes: int = MAX_BYTES, file: CallsFile | None = None) -> None:
        self.size_bytes = 0
        self._max_bytes = max_bytes
        self._file = file
        self._rollouts: OrderedDict[str, _Rollout] = OrderedDict()

    async def continued(self, rollout_id: str, call: ModelCall) -> ModelCall:
        """A call whose history has the bytes and the tokens that the model produced."""
        rollout = self._rollouts.get(rollout_id)
        if rollout is None:
            return call
        transcript = rollout.transcript

        def continued() -> ModelCall:
            items = transcript.restore(call.input)
            return replace(call, input=items, prefix=transcript.prefix(items))

        return await off_loop(call.input, continued)

    async def add(self, entry: CallEntry, items: list[Raw], tokens: Tokens | None) -> None:
        """
        Args:
            items: the call's conversation.
            tokens: the entry's tokens.

        Raises:
            UsageError: the file cannot be written.
        """
        # First of all: a call that cannot be stored is not answered.
        line = encode_entry(entry) if self._file is None else self._file.append(entry)
        rollout = self._rollouts.setdefault(entry.rollout_id, _Rollout())
        # The order is that of the last calls: the first one is the one to be dropped.
        self._rollouts.move_to_end(entry.rollout_id)
        rollout.calls.append(line)
        self.size_bytes += len(line)
        while self.size_bytes > self._max_bytes:
            # It may be this rollout, if it alone is over the limit.
            self.forget(next(iter(self._rollouts)))
        if entry.error is None:
            answer, transcript = entry.output_items, rollout.transcript
            await off_loop([*items, *answer], lambda: transcript.add(items, answer, tokens))

    def calls(self, rollout_id: str) -> list[bytes] | None:
        """A rollout's calls as JSON, in the order of their answers; None for an unknown rollout."""
        rollout = self._rollouts.get(rollout_id)
        return None if rollout is None else rollout.calls

    def forget(self, rollout_id: str) -> int:
        """Forget a rollout; return how many calls it had."""
        rollout = self._rollouts.pop(rollout_id, None)
        lines = rollout.calls if rollout is not None else []
        self.size_bytes -= sum(map(len, lines))
        return len(lines)

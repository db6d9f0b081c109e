"""Answers from recorded rollouts: ``--model replay/PATH.jsonl``. For tests, demos and debugging at no cost.

The file holds result rows (ours or NeMo Gym's) or recorded calls (of the ``record`` adapter or a gateway),
in any mixture. A recorded conversation gets its recorded answer, with its tokens; any other conversation is
refused with the point at which it differs from the recording.

Where several recorded rollouts share a conversation, rollout *i* of a task is given the recorded rollout
*i* of it, or of another task that began in the same way; after the last one the first one follows again. So
the answer depends only on the file and the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import anyio.to_thread
import msgspec
from gym_faces import recordings
from gym_faces.recordings import RecordedRollout, digests, fold
from gym_runtime import UsageError
from gym_runtime.adapters import CallContext, ModelAnswer, ModelCall, ModelSettings
from gym_runtime.errors import UNREADABLE, ModelRefused

_SHOWN_CHARS = 200


class _Place(NamedTuple):
    """Where an answer is in the file: its rollout, its line's first byte and length, and its turn."""

    task: int
    rollout: int
    start: int
    size: int
    turn: int


class Adapter:
    """Gives recorded answers. See the module."""

    def __init__(self, settings: ModelSettings) -> None:
        if not settings.name.endswith(".jsonl"):
            raise UsageError(
                f"replay needs a file of rollouts: --model replay/PATH.jsonl, not '{settings.name}'"
            )
        if settings.options:
            raise UsageError(f"the replay adapter has no options, hence no '{next(iter(settings.options))}'")
        self._path = Path(settings.name)
        self._places: dict[bytes, list[_Place]] = {}
        self._examples: dict[bytes, tuple[_Place, int]] = {}

    async def __aenter__(self) -> Self:
        await anyio.to_thread.run_sync(self._read)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    async def respond(self, call: ModelCall, context: CallContext) -> ModelAnswer:
        """The recorded answer.

        Raises:
            ModelRefused: this conversation is not in the file.
        """
        asked = fold([*recordings.opening(call.params), *call.input])
        keys = digests(asked)
        found = self._places.get(keys[-1])
        if not found:
            raise ModelRefused(self._difference(asked, keys), stage="model")
        task, rollout = recordings.indices(context.rollout)
        same_task = [place for place in found if place.task == task] or found
        place = next(
            (place for place in same_task if place.rollout == rollout), same_task[rollout % len(same_task)]
        )
        answer = await anyio.to_thread.run_sync(lambda: self._recording(place).answer(place.turn))
        return answer if call.return_tokens else msgspec.structs.replace(answer, tokens=None)

    def _read(self) -> None:
        """Index each conversation of the file by its next turn.

        Raises:
            UsageError: the file does not exist or holds no answer, or a line is neither a row nor a call.
        """
        try:
            with self._path.open("rb") as file:
                start = 0
                for number, line in enumerate(file, start=1):
                    if line.strip():
                        self._note(line, start, number)
                    start += len(line)
        except OSError as error:
            raise UsageError(f"the rollouts {self._path} cannot be read: {error.strerror}") from error
        if not self._places:
            raise UsageError(f"{self._path} holds no answer of a model")
        for places in self._places.values():
            places.sort()

    def _note(self, line: bytes, start: int, number: int) -> None:
        try:
            found = recordings.read(line)
            for index, turn in enumerate(found.turns):
                place = _Place(found.task, found.rollout, start, len(line), index)
                before = [*found.opening, *turn.before]
                self._places.setdefault(digests(fold(before))[-1], []).append(place)
                for length, key in enumerate(digests(fold([*before, *turn.said]))):
                    self._examples.setdefault(key, (place, length))
        except UNREADABLE as error:
            if not line.endswith(b"\n"):
                return  # the last line of a recording that a crash cut off
            raise UsageError(
                f"{self._path}:{number}: neither a rollout's row nor a recorded call: {error}"
            ) from error

    def _recording(self, place: _Place) -> RecordedRollout:
        with self._path.open("rb") as file:
            file.seek(place.start)
            return recordings.read(file.read(place.size))

    def _difference(self, asked: Sequence[bytes], keys: Sequence[bytes]) -> str:
        """Where a conversation first differs from the recorded one with which it shares the longest
        beginning.
        """
        shared = max(index for index, key in enumerate(keys) if key in self._examples)
        place, length = self._examples[keys[shared]]
        found = self._recording(place)
        last = found.turns[-1]
        recorded = fold([*found.opening, *last.before, *last.said])
        there = _shown(recorded[length]) if length < len(recorded) else "its end"
        here = _shown(asked[shared]) if shared < len(asked) else "its end"
        return (
            f"{self._path} has no answer to this conversation: it departs at its element {shared + 1} from "
            f"rollout {place.rollout} of task {place.task}, which has {there} where this one has {here}"
        )


def _shown(element: bytes) -> str:
    text = element.decode()
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"

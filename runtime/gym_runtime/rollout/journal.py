"""The journal of a rollout: what its attempts have already had done, so that the next one goes on.

One record per turn holds the model's answer and, before it, what the environment answered since the turn
before. It is stored before the next effect starts. So a later attempt, on whatever worker, is given back
every answer of the model; of the environment's answers at most those since the last turn are asked for
anew, with the same keys, so that a session that is still there answers them from memory, and one that is
rebuilt comes to the same state.

A record is stored only on top of the one that its writer knows of. An attempt that was overtaken (its
worker was frozen, and somebody else goes on) is refused by the broker and stops: `Fenced`. A journal
that does not match what the agent now asks (its code or its settings changed) is given up:
`JournalMismatch`, and the rollout starts anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from hashlib import blake2b

import anyio
import msgspec
from msgspec import Raw

from gym_runtime.bus.interface import Bus
from gym_runtime.errors import Fenced, JournalMismatch
from gym_runtime.messages.names import token

BLOCK = 64
"""Tasks whose journals are forgotten together, once all of their rollouts are committed."""

DIGEST_BYTES = 9
READ_S = 10.0
FRESH_S = 6.0
"""Who has stored a turn within this time still has the task; for longer a worker may have been frozen."""


class Answered(msgspec.Struct, frozen=True):
    """One answer of the environment, and the digest of the call that it answers."""

    digest: str
    body: Raw


class TurnRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One turn: what the environment answered before it, and the model's answer.

    Attributes:
        digest: of the conversation and the parameters that the model was given.
        session, worker: the session so far and who held it; empty before it was opened.
    """

    digest: str
    answer: Raw
    environment: list[Answered] = []
    session: str = ""
    worker: str = ""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(TurnRecord).decode


def journal_subject(run: str, task_index: int, rollout_index: int) -> str:
    """Where a rollout's journal stands."""
    return f"journal.{token(run, 'run')}.{task_index // BLOCK}.{task_index}.{rollout_index}"


def digest(body: Raw | bytes) -> str:
    """What identifies a call."""
    return blake2b(body, digest_size=DIGEST_BYTES).hexdigest()


class Journal:
    """One rollout's journal in the hands of one attempt.

    Attributes:
        turns: how many recorded turns this attempt was given back.
        session, worker: the rollout's session and who holds it, as far as is known; empty if nothing is.
        on_turn: called when a turn was stored.
    """

    def __init__(self, bus: Bus | None, subject: str) -> None:
        self.on_turn: Callable[[], None] | None = None
        self.turns = 0
        self.session = ""
        self.worker = ""
        self._bus = bus
        self._subject = subject
        self._records: list[TurnRecord] = []
        self._position = 0
        self._open: list[Answered] = []
        self._fresh: list[Answered] = []
        self._sequence = 0
        self._known_s = 0.0

    @property
    def shared(self) -> bool:
        """Whether there is a record from which another attempt may go on, in the session that it names."""
        return self._sequence > 0

    @property
    def length(self) -> int:
        """How many turns earlier attempts have stored, as far as was read."""
        return len(self._records)

    async def load(self) -> None:
        """Read what earlier attempts have stored, to be given back from the start."""
        self._records, self._sequence = [], 0
        if self._bus is not None:
            await self._read(self._bus)
        if self._records and not self.session:
            self.session, self.worker = self._records[-1].session, self._records[-1].worker
        self._position, self.turns, self._fresh = 0, 0, []
        self._open = list(self._records[0].environment) if self._records else []

    async def _read(self, bus: Bus) -> None:
        while count := (await bus.counts(self._subject)).get(self._subject, 0):
            self._records, self._sequence = [], 0
            # What is counted may be forgotten before it is read, and reading goes on to what comes.
            with anyio.move_on_after(READ_S):
                async for record in bus.records(self._subject):
                    self._records.append(_decode(record.payload))
                    self._sequence, self._known_s = record.sequence, anyio.current_time()
                    if len(self._records) == count:
                        return
        self._records, self._sequence = [], 0

    async def discard(self) -> None:
        """Forget everything: the rollout starts anew."""
        if self._bus is not None and self._sequence:
            await self._bus.forget(self._subject)
        self.session = self.worker = ""
        await self.load()

    def environment_answer(self, call: str) -> Raw | None:
        """The recorded answer to a call of the environment; None once the record has come to its end.

        Raises:
            JournalMismatch: another call stands in the record.
        """
        if self._position >= len(self._records):
            return None
        for index, known in enumerate(self._open):
            if known.digest == call:
                del self._open[index]
                return known.body
        raise JournalMismatch("the agent makes a tool call that its journal does not have", stage="agent")

    def model_answer(self, request: str) -> Raw | None:
        """The recorded answer to a request to the model; None once the record has come to its end.

        Raises:
            JournalMismatch: another request stands in the record.
        """
        if self._position >= len(self._records):
            return None
        record = self._records[self._position]
        if record.digest != request or self._open:
            raise JournalMismatch("the agent asks the model what its journal does not have", stage="agent")
        self._position += 1
        self.turns += 1
        following = self._records[self._position] if self._position < len(self._records) else None
        self._open = list(following.environment) if following else []
        return record.answer

    def note(self, call: str, body: Raw) -> None:
        """The environment answered a call; it is stored with the next turn."""
        if self._bus is not None:
            self._fresh.append(Answered(call, body))

    async def store(self, request: str, answer: Raw) -> None:
        """The model answered; returns when the turn is stored.

        Raises:
            Fenced: another attempt has stored a turn meanwhile.
        """
        if self._bus is None:
            return
        record = TurnRecord(
            digest=request,
            answer=answer,
            environment=self._fresh,
            session=self.session,
            worker=self.worker,
        )
        sequence = await self._bus.append(self._subject, _encode(record), expect=self._sequence)
        if sequence is None:
            raise Fenced("another attempt goes on with this rollout", stage="agent")
        self._sequence, self._known_s = sequence, anyio.current_time()
        self._fresh = []
        if self.on_turn is not None:
            self.on_turn()

    async def confirm(self) -> None:
        """See before the end that nobody else has gone on, unless a turn was stored a moment ago.

        Raises:
            Fenced: another attempt has stored a turn meanwhile, or has finished, and all is forgotten.
        """
        if self._bus is None or not self._sequence or anyio.current_time() < self._known_s + FRESH_S:
            return
        newest = await self._bus.latest(self._subject)
        if not newest or newest[-1].sequence != self._sequence:
            raise Fenced("another attempt goes on with this rollout", stage="agent")


class Sweep:
    """Says which journals of a run can be forgotten: whole blocks of tasks, when all of it is committed.

    Journals are forgotten by the block, because forgetting costs the broker more than a turn's record
    does. The block that is being published is left alone, and those after it.
    """

    def __init__(self, run: str) -> None:
        self._run = run
        self._left: Counter[int] = Counter()
        self._publishing = -1

    def published(self, task_index: int) -> None:
        """One more rollout of a task is on its way."""
        block = task_index // BLOCK
        self._publishing = max(self._publishing, block)  # a replacement in an older one may come between
        self._left[block] += 1

    def expected(self, task_index: int) -> None:
        """The result of a rollout will come that was published by an earlier client."""
        self._left[task_index // BLOCK] += 1

    def committed(self, task_index: int) -> str | None:
        """One rollout of a task is done; a pattern to forget, or None."""
        block = task_index // BLOCK
        self._left[block] -= 1
        if self._left[block] > 0 or block >= self._publishing:
            return None
        del self._left[block]
        return f"journal.{token(self._run, 'run')}.{block}.>"

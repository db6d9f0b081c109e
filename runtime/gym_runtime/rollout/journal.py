"""The journal of a rollout: the answers that its attempts have received, so that the next attempt continues.

One record per turn holds the environment's answers since the turn before, and the model's answer. It is
stored before the next call starts. So a later attempt, on any worker, gets every recorded answer of the model
from the journal. Only the environment's calls since the last turn are repeated, with the same keys: a
session that still exists answers them from memory, and a rebuilt one reaches the same state.

The broker stores a record only if its writer knows the last stored one (optimistic concurrency). If
another attempt has taken over, because this worker was frozen, the broker refuses and this attempt stops:
`Fenced`. If the agent's calls differ from the journal, because its code or settings changed, the journal is
discarded (`JournalMismatch`) and the rollout starts again. The same happens if a record cannot be read: a
journal with a gap would give the answers of other turns.

The calls of a program that runs as an agent come in any order, and differ from attempt to attempt in clocks
and ids. Its agent stores a note with each turn, by which it finds the turn of a call (`Journal.notes`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from hashlib import blake2b

import anyio
import msgspec
from msgspec import Raw

from gym_runtime import clock
from gym_runtime.bus.interface import Bus
from gym_runtime.errors import Fenced, GymError, JournalMismatch
from gym_runtime.logs import logger
from gym_runtime.messages.names import token
from gym_runtime.messages.repeated_images import RepeatedImages
from gym_runtime.messages.responses import NULL
from gym_runtime.messages.stored_records import Stored
from gym_runtime.timing import JOURNAL_FRESH_S, JOURNAL_READ_S

BLOCK = 64
"""How many tasks' journals are deleted together, once all of their rollouts are committed."""

LOOK_S = 2.0
"""How long an attempt looks whether a turn was stored whose asker is gone."""

FAILED_TASK = "task"
"""The last token of the subject, beside the journal, where the task of a failed rollout is kept."""

# 72 bits: enough to tell the calls of one rollout apart, and short in each record.
DIGEST_BYTES = 9


class Answered(msgspec.Struct, frozen=True):
    """One answer of the environment, and the digest of the call that it answers."""

    digest: str
    body: Raw


class TurnRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One turn: the environment's answers before it, and the model's answer.

    Attributes:
        digest: of the conversation and the parameters that the model was given.
        session, worker: the session and the worker that held it; empty before it was opened.
        images: names stand for images that earlier records have.
        note: what the agent recognises the turn by, as JSON; null where ``digest`` does.
    """

    digest: str
    answer: Raw
    environment: list[Answered] = []
    images: bool = False
    session: str = ""
    worker: str = ""
    note: Raw = NULL


_encode = msgspec.json.Encoder().encode
_TURNS = Stored(msgspec.json.Decoder(TurnRecord).decode)


def journal_subject(run: str, task_index: int, rollout_index: int) -> str:
    """The subject of a rollout's journal."""
    return f"journal.{token(run, 'run')}.{task_index // BLOCK}.{task_index}.{rollout_index}"


def digest(body: Raw | bytes) -> str:
    """The digest that identifies a call."""
    return blake2b(body, digest_size=DIGEST_BYTES).hexdigest()


class Journal:
    """One rollout's journal, as one attempt uses it.

    Attributes:
        turns: how many turns this attempt has got from the journal, shared ones included.
        shared_turns: the model's answers with which a forked rollout begins; they come before the journal's.
        session, worker: the rollout's session and the worker that holds it; empty while not known.
        on_turn: called when a turn was stored.
        before_turn: called before the model is asked; it ends this attempt, which is parked.
        hold: called before the model is asked; returns when its engines have room.
        bus: where it is stored; None for a rollout without a journal.
    """

    def __init__(self, bus: Bus | None, subject: str) -> None:
        self.on_turn: Callable[[], None] | None = None
        self.before_turn: Callable[[], None] | None = None
        self.hold: Callable[[], Awaitable[None]] | None = None
        self.turns = 0
        self.shared_turns: Sequence[Raw] = ()
        self.session = ""
        self.worker = ""
        self.bus = bus
        self._subject = subject
        self._records: list[TurnRecord] = []
        self._position = 0
        self._open: list[Answered] = []
        self._fresh: list[Answered] = []
        self._sequence = 0
        self._known_s = 0.0
        self._resumes = False
        self._images = RepeatedImages()

    @property
    def shared(self) -> bool:
        """Whether a stored record lets another attempt continue in the session that it names."""
        return self._sequence > 0

    @property
    def length(self) -> int:
        """How many turns of earlier attempts were read."""
        return len(self._records)

    @property
    def resumed(self) -> int:
        """How many turns of earlier attempts this attempt has got."""
        return max(0, self.turns - len(self.shared_turns))

    @property
    def is_replaying(self) -> bool:
        """Whether the next answer of the model is known already."""
        return self.turns < len(self.shared_turns) + len(self._records)

    async def load(self) -> None:
        """Read the records of earlier attempts; their answers are replayed from the first one on."""
        self._records, self._sequence = [], 0
        if self.bus is not None:
            self._resumes = True
            await self._read(self.bus)
        # This attempt's own session counts more than one of the journal.
        if self._records and not self.session:
            self.session, self.worker = self._records[-1].session, self._records[-1].worker
        self._position, self.turns, self._fresh = 0, 0, []
        # A copy, because answers are removed from it as they are used.
        self._open = list(self._records[0].environment) if self._records else []

    async def _read(self, bus: Bus) -> None:
        while count := (await bus.counts(self._subject)).get(self._subject, 0):
            self._records, self._sequence, self._images = [], 0, RepeatedImages()
            # Records may be deleted between counting and reading; reading would then wait for ever for new
            # ones. So they are counted again if none comes for `JOURNAL_READ_S`.
            with anyio.move_on_after(JOURNAL_READ_S) as reading:
                async for record in bus.records(self._subject):
                    reading.deadline = anyio.current_time() + JOURNAL_READ_S
                    turn = _TURNS.read(record)
                    try:
                        turn = turn and _with_images(turn, self._images)
                    except KeyError:
                        turn = None
                    if turn is None:
                        logger().warning("the journal is discarded; the rollout starts again")
                        await bus.forget(self._subject)
                        break
                    self._records.append(turn)
                    self._sequence, self._known_s = record.sequence, clock.monotonic()
                    if len(self._records) == count:
                        self._images.forget_what_was_read()
                        return
        # The journal was deleted while it was read.
        self._records, self._sequence, self._images = [], 0, RepeatedImages()

    async def discard(self) -> None:
        """Delete the journal: the rollout starts again."""
        if self.bus is not None and self._sequence:
            await self.bus.forget(self._subject)
        self.session = self.worker = ""
        await self.load()

    def environment_answer(self, call: str) -> Raw | None:
        """The recorded answer to a call of the environment; None after the last recorded turn.

        Raises:
            JournalMismatch: the turn's record does not have this call.
        """
        # By digest, not by order: parallel tool calls end in any order.
        for index, known in enumerate(self._open):
            if known.digest == call:
                del self._open[index]
                return known.body
        if self._position >= len(self._records):
            return None
        raise JournalMismatch("the agent makes a tool call that its journal does not have", stage="agent")

    def model_answer(self, request: str) -> Raw | None:
        """The recorded answer to a request to the model; None after the last recorded turn.

        Raises:
            JournalMismatch: the turn's record has another request.
        """
        if self.turns < len(self.shared_turns):
            # By order: a fork may change what the model was asked.
            self.turns += 1
            return self.shared_turns[self.turns - 1]
        if self._position >= len(self._records):
            return None
        record = self._records[self._position]
        # A recorded environment answer that the agent did not ask for is a mismatch, too.
        if record.digest != request or self._open:
            raise JournalMismatch(
                "the agent makes a model call that its journal does not have", stage="agent"
            )
        self._position += 1
        self.turns += 1
        following = self._records[self._position] if self._position < len(self._records) else None
        self._open = list(following.environment) if following else []
        return record.answer

    def model_answers(self, requests: Sequence[str]) -> list[Raw | None]:
        """The recorded answers to concurrent requests, in the requests' order; None for an unanswered one.

        The journal has them in the order in which the model answered.

        Raises:
            JournalMismatch: as `model_answer`.
        """
        shared = self.shared_turns[self.turns : self.turns + len(requests)]
        found: list[Raw | None] = [*shared, *[None] * (len(requests) - len(shared))]
        self.turns += len(shared)
        while None in found and self._position < len(self._records):
            recorded = self._records[self._position].digest
            open_ones = [index for index, answer in enumerate(found) if answer is None]
            # If none fits, the first one raises the mismatch.
            index = next((one for one in open_ones if requests[one] == recorded), open_ones[0])
            found[index] = self.model_answer(requests[index])
        return found

    def notes(self) -> list[Raw]:
        """The notes of all recorded turns, in the order in which they were stored.

        From here on the agent finds its turns by them (`answer_of`), and the environment's recorded answers
        are found whatever turn they belong to.
        """
        for record in self._records[self._position + 1 :]:
            self._open += record.environment
        self._position = len(self._records)
        return [record.note for record in self._records]

    def answer_of(self, place: int) -> Raw:
        """The model's answer in the turn with the note at this place; to be used once."""
        self.turns += 1
        return self._records[place].answer

    async def turn(self) -> None:
        """The model is asked next; does not return if the rollout is parked.

        Raises:
            Fenced: this attempt continues an earlier one, and another has stored a turn since it was read.
        """
        if self._resumes and self.bus is not None:
            self._resumes = False
            await self._look_for_others(self.bus)
        if self.before_turn is None and self.hold is not None:
            await self.hold()
        if self.before_turn is not None:
            self.before_turn()
            await anyio.sleep_forever()

    def note(self, call: str, body: Raw) -> None:
        """The environment answered a call; it is stored with the next turn."""
        if self.bus is not None:
            self._fresh.append(Answered(call, body))

    async def store(self, request: str, answer: Raw, note: Raw = NULL) -> None:
        """The model answered; returns when the turn is stored. One call at a time.

        Raises:
            Fenced: another attempt has stored a turn meanwhile.
        """
        if self.bus is None:
            return
        # A new list, and at once: the environment may answer calls of a program meanwhile.
        environment, self._fresh = self._fresh, []
        record = TurnRecord(
            digest=request,
            answer=answer,
            environment=environment,
            session=self.session,
            worker=self.worker,
            note=note,
        )
        payload = _encode(record)
        if self._images.packed(payload) is not payload:
            payload = self._images.packed(_encode(msgspec.structs.replace(record, images=True)))
        try:
            sequence = await self.bus.append(self._subject, payload, expect=self._sequence)
        except anyio.get_cancelled_exc_class():
            await self._look(self.bus, payload)
            raise
        if sequence is None:
            raise Fenced("another attempt has taken over this rollout", stage="agent")
        self._images.keep(payload)
        self._sequence, self._known_s = sequence, clock.monotonic()
        if self.on_turn is not None:
            self.on_turn()

    async def _look(self, bus: Bus, payload: bytes) -> None:
        """Find out whether a turn was stored whose asker was gone before the broker answered.

        Otherwise the rollout's next turn would take it for another attempt's.
        """
        with anyio.move_on_after(LOOK_S, shield=True), suppress(GymError):
            newest = await bus.latest(self._subject)
            if newest and newest[-1].payload == payload:
                self._images.keep(payload)
                self._sequence, self._known_s = newest[-1].sequence, clock.monotonic()

    async def confirm(self) -> None:
        """Check that no other attempt has taken over, unless a turn was stored within `JOURNAL_FRESH_S`.

        Raises:
            Fenced: another attempt has stored a turn meanwhile, or has finished and its journal is deleted.
        """
        if self.bus is None or not self._sequence or clock.monotonic() < self._known_s + JOURNAL_FRESH_S:
            return
        await self._look_for_others(self.bus)

    async def _look_for_others(self, bus: Bus) -> None:
        newest = await bus.latest(self._subject)
        if (newest[-1].sequence if newest else 0) != self._sequence:
            raise Fenced("another attempt has taken over this rollout", stage="agent")


def _with_images(turn: TurnRecord, images: RepeatedImages) -> TurnRecord:
    """As it was before its images were packed."""
    environment = [
        Answered(one.digest, Raw(images.read(bytes(one.body), named=turn.images))) for one in turn.environment
    ]
    answer = Raw(images.read(bytes(turn.answer), named=turn.images))
    return msgspec.structs.replace(turn, answer=answer, environment=environment, images=False)


class Sweep:
    """Selects the journals of a run to delete: whole blocks of tasks, when all their rollouts are committed.

    Journals are deleted by the block, because a deletion costs the broker more than storing a turn's record.
    The block that is being published, and those after it, are kept until a rollout is committed later.
    """

    def __init__(self, run: str) -> None:
        self._run = run
        self._left: Counter[int] = Counter()
        self._ended: set[int] = set()
        self._publishing = self._looked = -1

    def published(self, task_index: int) -> None:
        """One more rollout of a task was published."""
        block = task_index // BLOCK
        self._publishing = max(self._publishing, block)  # a replacement may belong to an older block
        self._left[block] += 1

    def expected(self, task_index: int) -> None:
        """An earlier client has published a rollout that has no result yet."""
        self._left[task_index // BLOCK] += 1

    def committed(self, task_index: int) -> list[str]:
        """One rollout of a task is committed; return the patterns of the journals to delete."""
        block = task_index // BLOCK
        self._left[block] -= 1
        if self._left[block] <= 0:
            self._ended.add(block)
        elif self._looked == self._publishing:
            return []
        # A caller that waits for each batch publishes the next block when this one has ended.
        self._looked = self._publishing
        done = [one for one in self._ended if one < self._publishing and self._left[one] <= 0]
        for one in done:
            self._ended.remove(one)
            del self._left[one]
        return [f"journal.{token(self._run, 'run')}.{block}.>" for block in done]

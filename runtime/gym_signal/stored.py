"""A curriculum's state at the broker: a trainer that was killed goes on with all that its groups have shown.

The state is stored with each batch, and what was seen since then beside it. So the state after a crash is
that of the last batch, with all groups that have ended since then; what was in progress is drawn again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeVar

import anyio
import anyio.to_thread
import msgspec
from gym_runtime.bus import Bus
from gym_runtime.client import AnyRow, line
from gym_runtime.errors import UNREADABLE, UsageError
from gym_runtime.logs import logger
from gym_runtime.messages import token
from msgspec.structs import replace

from gym_signal.curricula import Curriculum, Posterior, Seen, kind_of

Kind = TypeVar("Kind")


class _Stored(msgspec.Struct, frozen=True):
    """As it is stored: the state, the number of the last observation that is in it, the newest version of the
    weights, and the digest of the rows; -1 and empty where an earlier release has stored it.
    """

    state: bytes
    seen: int
    version: int = -1
    rows: bytes = b""


class StoredCurriculum:
    """A curriculum whose state is stored under a name.

    A trainer that starts again counts its versions from 0: the curriculum is told those that follow the
    newest one before, so that what it saw fades on.

    Args:
        name: of the training run; two trainers must not use one name at the same time.
        rows: of the tasks, in their order; empty if they are unknown.
    """

    def __init__(self, curriculum: Curriculum, bus: Bus, name: str, rows: Sequence[AnyRow] = ()) -> None:
        self._curriculum, self._bus = curriculum, bus
        self._rows, self._digest = rows, b""
        self._subject = f"runs.curriculum.{token(name, 'curriculum')}"
        self._number = self._sequence = 0
        self._waiting: list[tuple[int, Seen]] = []
        self._tried: list[bytes] = []
        self._first_version = self._newest = 0
        self._storing = anyio.Lock()

    def next(self, count: int) -> list[tuple[int, int]]:
        """See `Curriculum.next`."""
        return self._curriculum.next(count)

    def observe(self, seen: Seen) -> None:
        """See `Curriculum.observe`; `store` stores it."""
        seen = replace(seen, version=self._first_version + seen.version)
        self._newest = max(self._newest, seen.version)
        self._curriculum.observe(seen)
        self._number += 1
        self._waiting.append((self._number, seen))

    def state(self) -> bytes:
        """See `Curriculum.state`."""
        return self._curriculum.state()

    def restore(self, state: bytes) -> None:
        """See `Curriculum.restore`."""
        self._curriculum.restore(state)

    async def load(self) -> None:
        """Continue from what is stored, if anything is; the log says if it was stored with other rows.

        Raises:
            UsageError: it is the state of another curriculum or of other rows, or cannot be read.
        """
        # Encoding very many rows takes seconds, in which a client that does not answer would count as gone.
        self._digest = await anyio.to_thread.run_sync(_digest, self._rows)
        found = await self._bus.latest(self._subject)
        if found:
            stored = self._read(found[0].payload, _Stored)
            self._curriculum.restore(stored.state)
            self._number, self._sequence = stored.seen, found[0].sequence
            self._newest = stored.version if stored.version >= 0 else _version_in(stored.state)
            if stored.rows and self._digest not in (stored.rows, b""):
                logger().warning(
                    "the curriculum was stored with other rows, or with these in another order: what it "
                    "learned of the row at a position now counts for another row",
                    name=self._subject.rpartition(".")[2],
                    remedy="give the same rows in the same order, or another name",
                )
        later = {
            int(one.subject.rpartition(".")[2]): one for one in await self._bus.latest(f"{self._subject}.*")
        }
        for number in sorted(number for number in later if number > self._number):
            seen = self._read(later[number].payload, Seen)
            self._curriculum.observe(seen)
            self._number, self._newest = number, max(self._newest, seen.version)
        self._first_version = self._newest

    def _read(self, payload: bytes, kind: type[Kind]) -> Kind:
        try:
            return msgspec.msgpack.decode(payload, type=kind)
        except msgspec.DecodeError as error:
            raise UsageError(
                f"what the broker stores for curriculum '{self._subject.rpartition('.')[2]}' cannot be read "
                f"({error}): use another name"
            ) from error

    async def store(self, *, whole: bool) -> None:
        """Store what was seen since the last call; with ``whole`` the state too, which replaces all before.

        Raises:
            UsageError: another trainer has stored its state under this name meanwhile.
        """
        # One at a time: an observation must not be forgotten before it is in the stored state.
        async with self._storing:
            # What is not stored yet waits on, also where this call is cancelled.
            stored = self._number
            if whole:
                await self._store_state()
            for number, seen in () if whole else tuple(self._waiting):
                await self._bus.append(f"{self._subject}.{number}", msgspec.msgpack.encode(seen))
                stored = number
            self._waiting = [one for one in self._waiting if one[0] > stored]

    async def _store_state(self) -> None:
        stored = _Stored(self._curriculum.state(), self._number, self._newest, self._digest)
        payload = msgspec.msgpack.encode(stored)
        self._tried.append(payload)
        sequence = await self._bus.append(self._subject, payload, expect=self._sequence)
        if sequence is None:
            found = await self._bus.latest(self._subject)
            # A call that was cancelled may have stored it all the same.
            if found and found[0].payload in self._tried:
                sequence = await self._bus.append(self._subject, payload, expect=found[0].sequence)
        if sequence is None:
            raise UsageError(
                f"another trainer uses the curriculum '{self._subject.rpartition('.')[2]}' now: give each "
                "training run its own name"
            )
        self._sequence, self._tried = sequence, []
        await self._bus.forget(f"{self._subject}.*")


def _digest(rows: Sequence[AnyRow]) -> bytes:
    found = hashlib.blake2b(digest_size=16)
    for row in rows:
        found.update(hashlib.blake2b(line(row), digest_size=16).digest())
    return found.digest() if rows else b""


def _version_in(state: bytes) -> int:
    """The newest version that a state knows; 0 of a curriculum that is not of the box."""
    try:
        return kind_of(state)[2]
    except UsageError:
        return 0


SHOWN = 200
"""Of the tasks of each kind, so many are listed."""
LEARNED = 0.9
"""A task with a pass rate above it is learned; one with a pass rate below ``1 - LEARNED`` is too hard."""
_EVIDENCE = 1.0


class Tasks(msgspec.Struct, frozen=True):
    """Tasks of one kind: how many, and the first of them with their estimated pass rates."""

    count: int
    first: list[tuple[int, float]]


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What the stored curriculum of a training run believes of its tasks, which are numbers of rows.

    Attributes:
        name: of the training run.
        kind: such as ``posterior``; of another one nothing is known of single tasks.
        version: of the weights, as the curriculum counts them.
        learned, learning, too_hard: by the estimated pass rate, see `LEARNED`.
        unseen: tasks of which too little was seen lately.
    """

    name: str
    kind: str
    tasks: int
    version: int
    learned: Tasks
    learning: Tasks
    too_hard: Tasks
    unseen: int


async def standings(bus: Bus) -> list[Standing]:
    """What all curricula that are stored at the broker believe; those that cannot be read are left out."""
    found: list[Standing] = []
    for record in await bus.latest("runs.curriculum.*"):
        name = record.subject.rpartition(".")[2]
        try:
            stored = msgspec.msgpack.decode(record.payload, type=_Stored)
            later = await bus.latest(f"{record.subject}.*")
            numbered = {int(one.subject.rpartition(".")[2]): one.payload for one in later}
            seen = [
                msgspec.msgpack.decode(numbered[number], type=Seen)
                for number in sorted(numbered)
                if number > stored.seen
            ]
            found.append(await anyio.to_thread.run_sync(_standing, name, stored.state, seen))
        except (*UNREADABLE, UsageError) as error:
            logger().info("a stored curriculum cannot be shown", name=name, error=str(error))
    return found


def _standing(name: str, state: bytes, seen: list[Seen]) -> Standing:
    kind, tasks, version = kind_of(state)
    kinds: dict[str, list[tuple[int, float]]] = {"learned": [], "learning": [], "too_hard": []}
    if kind == Posterior.kind:
        posterior = Posterior(tasks)
        posterior.restore(state)
        for one in seen:
            posterior.observe(one)
        version = max([version, *(one.version for one in seen)])
        for task, rate in posterior.rates(evidence=_EVIDENCE):
            which = "learned" if rate > LEARNED else "too_hard" if rate < 1 - LEARNED else "learning"
            kinds[which].append((task, round(rate, 3)))
    return Standing(
        name=name,
        kind=kind,
        tasks=tasks,
        version=version,
        unseen=tasks - sum(map(len, kinds.values())),
        **{which: Tasks(len(some), some[:SHOWN]) for which, some in kinds.items()},
    )

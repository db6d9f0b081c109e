"""Leases: which rollout has which box, kept at the broker, so that no worker's death loses a box.

An account has ``most`` slots, each a record at the broker that is only ever replaced by a writer that knows
it (compare and set). A slot has one generation of a box after the other; the box's label says the slot and
the generation. That gives the promises:

- **A budget.** There are never more boxes than slots: a slot is free only when its box is gone.
- **Intent first.** The record is stored before the provider is asked. After a lost answer the provider is
  searched for the label before it is asked again, for as long as a box may take to appear (`Pace.late_s`).
- **Fencing.** Each renewal replaces the record. A worker whose record was replaced by another writer has lost
  the box, and every call of its lease says so (`Fenced`).
- **No orphans.** A record that has not changed for `Pace.lease_s` has lost its owner. Each worker can reap
  (`gym_boxes.reaper`): it needs the records and the labels only.

Times are measured by each process's steady clock, from when it saw a record; no clock of another machine
counts.
"""

from __future__ import annotations

import random
import re
import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from types import TracebackType

import anyio
import msgspec
from anyio.abc import TaskGroup
from gym_runtime import GymError, ServiceUnavailable, UsageError, clock
from gym_runtime.bus import Bus
from gym_runtime.errors import Fenced

from gym_boxes.permits import Permits
from gym_boxes.provider import BOX_ID, GET_BYTES, BoxGone, BoxRefused, BoxUnknown, Found, Provider, Ran
from gym_boxes.slots import Book, Seen, Slot, replace

END_S = 30.0
"""How long ending a box may take when its block is left; the reaper does the rest."""
WARM = "warm "
"""How the names of boxes that wait begin."""
WARM_LOOK_S = 2.0
"""How often each worker looks whether a warm box is missing."""


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """The times of leases, in seconds; the same for all workers of an account.

    Attributes:
        lease_s: an owner that has not renewed for so long is dead; a box lives so long without renewal.
        renew_s: how often owners renew.
        late_s: how long a box may take to appear in the provider's list after it was asked for.
        period_s: how often boxes are compared with leases.
    """

    lease_s: float = 120.0
    renew_s: float = 40.0
    late_s: float = 30.0
    period_s: float = 30.0


class Lease:
    """The right to a box, until it is ended or another worker takes it over.

    Each call raises `Fenced` once it was taken over, and `gym_boxes.BoxGone` once the box is gone.

    Attributes:
        name: who has it.
        box: the provider's id.
        resumed: the box was there before, with the files that an earlier owner has left.
    """

    def __init__(self, leases: Leases, number: int, seen: Seen, *, resumed: bool) -> None:
        self.name, self.box, self.resumed = seen.slot.name, seen.slot.box, resumed
        self._leases, self._number, self._seen = leases, number, seen
        self._known_s = clock.monotonic()
        self._lost: GymError | None = None
        self._storing = anyio.Lock()
        self._forks: tuple[str, set[Lease]] | None = None

    async def exec(self, script: str, *, timeout_s: float, stdin: bytes = b"") -> Ran:
        """See `gym_boxes.Provider.exec`."""
        await self._check()
        return await self._leases.provider.exec(self.box, script, timeout_s=timeout_s, stdin=stdin)

    async def put(self, path: str, data: bytes) -> None:
        """See `gym_boxes.Provider.put`."""
        await self._check()
        await self._leases.provider.put(self.box, path, data)

    async def get(self, path: str, *, most_bytes: int = GET_BYTES) -> bytes:
        """See `gym_boxes.Provider.get`."""
        await self._check()
        return await self._leases.provider.get(self.box, path, most_bytes=most_bytes)

    async def snapshot(self) -> str:
        """See `gym_boxes.Provider.snapshot`."""
        await self._check()
        return await self._leases.provider.snapshot(self.box)

    async def fork(self, names: Sequence[str], *, deadline_s: float) -> list[Lease]:
        """One more box for each name, with this one's files; their number counts against the budget.

        The template that they are made of is forgotten when the last of them has ended.

        Args:
            deadline_s: a time of `gym_runtime.clock.monotonic`, as for `Leases.take`.
        """
        template, internet = await self.snapshot(), self._seen.slot.internet
        forks: list[Lease] = []
        try:
            for name in names:
                one = await self._leases.take(name, template, deadline_s=deadline_s, internet=internet)
                forks.append(one)
        except BaseException:
            with anyio.CancelScope(shield=True):
                for one in forks:
                    await one.end()
                await self._forget(template)
            raise
        left = set(forks)
        for one in forks:
            one._forks = template, left
        return forks

    async def renew(self) -> None:
        """Keep it. `Leases` does so in the background.

        Raises:
            Fenced: another worker has it, or it was taken for lost.
        """
        await self._store(replace(self._seen.slot, beat=self._seen.slot.beat + 1))
        await self._leases.provider.renew(self.box, self._leases.pace.lease_s)

    async def end(self) -> None:
        """End the box and give the slot back. Repeatable. What fails is left to the reaper."""
        self._leases.held.pop(self._number, None)
        if self._lost is not None:
            return
        self._lost = Fenced(f"the lease '{self.name}' has ended", stage="box")
        with anyio.move_on_after(END_S, shield=True), suppress(GymError):
            async with self._storing:  # a renewal in progress gives the record another sequence
                slot = self._seen.slot
                ending = replace(slot, state="ending")
                sequence = await self._leases.book.store(self._number, ending, self._seen.sequence)
            if sequence is None:
                return
            await self._leases.provider.end(self.box)
            if not slot.doubtful:
                await self._leases.book.store(self._number, Slot(generation=slot.generation), sequence)
            if self._forks is not None:
                template, left = self._forks
                left.discard(self)
                # A fork that another worker has taken over stays in it: an engine would end its box, too.
                if not left:
                    await self._forget(template)

    async def _forget(self, template: str) -> None:
        with anyio.move_on_after(END_S), suppress(GymError):
            await self._leases.provider.forget(template)

    async def _check(self) -> None:
        if self._lost is not None:
            raise self._lost
        # This process may have been frozen, and its lease given to another one meanwhile.
        if clock.monotonic() - self._known_s > self._leases.pace.lease_s / 2:
            await self._store(replace(self._seen.slot, beat=self._seen.slot.beat + 1))

    async def _store(self, slot: Slot) -> None:
        async with self._storing:
            if self._lost is not None:
                raise self._lost
            sequence = await self._leases.book.store(self._number, slot, self._seen.sequence)
            if sequence is None:
                self._lost = Fenced(f"another worker has the box of '{self.name}'", stage="box")
                self._leases.held.pop(self._number, None)
                raise self._lost
            self._seen, self._known_s = Seen(slot, sequence), clock.monotonic()


class Leases:
    """The leases of one worker in one account: ``async with Leases(...) as leases``.

    While the block runs, its leases are renewed, and lost ones of all workers are reaped. Leases that are
    still held at its end are ended.

    Args:
        account: see `Book`; two systems that share a provider's account need two names, and divide
            its budget.
        most: how many boxes all workers of the account may have at a time.
        per_s: how many boxes they may create in a second.
        warm: how many boxes of a template wait, made already, for `take`; of all workers together. They count
            against the budget, and give way where a box of another template is needed.
    """

    def __init__(
        self,
        bus: Bus,
        provider: Provider,
        *,
        account: str,
        most: int,
        per_s: float,
        warm: Mapping[str, int] | None = None,
        pace: Pace | None = None,
    ) -> None:
        self.provider, self.pace = provider, pace or Pace()
        self.book = Book(bus, account, most)
        self.held: dict[int, Lease] = {}
        self._permits = Permits(bus, f"{self.book.subject}.permit", per_s)
        self._warm = dict(warm or {})
        self._tasks: TaskGroup | None = None

    async def __aenter__(self) -> Leases:
        from gym_boxes.reaper import Reaper

        self._tasks = await anyio.create_task_group().__aenter__()
        self._tasks.start_soon(self._renew)
        if self._warm:
            self._tasks.start_soon(self._keep_warm)
        self._tasks.start_soon(Reaper(self.book, self.provider, self.pace).run)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._tasks is not None
        self._warm.clear()
        with anyio.CancelScope(shield=True):
            for lease in list(self.held.values()):
                await lease.end()
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(kind, error, trace)

    @asynccontextmanager
    async def box(
        self, name: str, template: str, *, deadline_s: float, internet: bool = False
    ) -> AsyncGenerator[Lease]:
        """A box for the time of a block; see `take`."""
        lease = await self.take(name, template, deadline_s=deadline_s, internet=internet)
        try:
            yield lease
        finally:
            await lease.end()

    async def take(self, name: str, template: str, *, deadline_s: float, internet: bool = False) -> Lease:
        """The box of this name: the one that an earlier owner has left, if it lives, else a new one.

        The earlier owner is fenced. So the caller decides who may have it, as the journal does for rollouts.

        Args:
            deadline_s: a time of `gym_runtime.clock.monotonic`.
            internet: whether a new box may reach the internet.

        Raises:
            ServiceUnavailable: no slot was free, or the provider gave no box, up to the deadline.
        """
        wait_s, why = 0.05, f"none of the {self.book.most} boxes of '{self.book.account}' is free"
        while clock.monotonic() < deadline_s:
            slots = await self.book.slots()
            mine = [number for number, seen in slots.items() if seen.slot.name == name]
            for number in mine:
                if (lease := await self._resumed(number, slots[number])) is not None:
                    return lease
            if not mine and not name.startswith(WARM):
                for number in self._waiting(slots, template, internet):
                    if (lease := await self._resumed(number, slots[number], name)) is not None:
                        return lease
            free = [number for number, seen in slots.items() if seen.slot.state == "free"]
            if not mine and not free and not name.startswith(WARM):
                slots, free = await self._given_way(slots)
            if not mine and free:
                # At random, so that workers do not all try the same one.
                number = random.choice(free)
                before = slots[number]
                asked = Slot(name=name, template=template, internet=internet)
                slot = replace(asked, state="creating", generation=before.slot.generation + 1)
                sequence = await self.book.store(number, slot, before.sequence)
                if sequence is None:
                    continue
                lease, why = await self._created(number, Seen(slot, sequence), deadline_s)
                if lease is not None:
                    return lease
            left_s = max(0.0, deadline_s - clock.monotonic())
            await anyio.sleep(min(wait_s * random.uniform(0.5, 1.5), left_s))
            wait_s = min(2 * wait_s, 2.0)
        raise ServiceUnavailable(f"there is no box for '{name}': {why}", stage="box")

    def _waiting(self, slots: Mapping[int, Seen], template: str, internet: bool) -> list[int]:
        """The slots of warm boxes that fit, in any order, so that workers do not all try the same one."""
        fit = [
            number
            for number, seen in slots.items()
            if seen.slot.state == "held" and seen.slot.name.startswith(WARM)
            if (seen.slot.template, seen.slot.internet) == (template, internet)
        ]
        return random.sample(fit, len(fit))

    async def _given_way(self, slots: Mapping[int, Seen]) -> tuple[Mapping[int, Seen], list[int]]:
        """One warm box gives way: all slots as they are then, and the free one."""
        for number, seen in slots.items():
            if await self._gives_way(number, seen):
                after = await self.book.slots()
                return after, [number] if number in after and after[number].slot.state == "free" else []
        return slots, []

    async def _gives_way(self, number: int, seen: Seen) -> bool:
        """End the box of a slot if it is a warm one; whether the slot is free now."""
        slot = seen.slot
        if slot.state != "held" or not slot.name.startswith(WARM):
            return False
        sequence = await self.book.store(number, replace(slot, state="ending"), seen.sequence)
        if sequence is None:
            return False
        try:
            await self.provider.end(slot.box)
        except GymError:
            return False
        # As of a lease that ends: a second box may still appear after a lost answer, which the reaper ends.
        return not slot.doubtful and (
            await self.book.store(number, Slot(generation=slot.generation), sequence) is not None
        )

    async def _keep_warm(self) -> None:
        while True:
            await anyio.sleep(WARM_LOOK_S * random.uniform(0.5, 1.5))
            with suppress(GymError):
                slots = [seen.slot for seen in (await self.book.slots()).values()]
                if not any(slot.state == "free" for slot in slots):
                    continue
                for template, count in self._warm.items():
                    there = [one for one in slots if one.template == template and one.name.startswith(WARM)]
                    if len([one for one in there if one.state in ("creating", "held")]) < count:
                        name, until_s = f"{WARM}{secrets.token_hex(8)}", clock.monotonic() + END_S
                        await self.take(name, template, deadline_s=until_s)

    async def _resumed(self, number: int, seen: Seen, name: str = "") -> Lease | None:
        """Take over a box that lives; one that does not, or is not known, is left to the reaper.

        Args:
            name: of the new owner of a warm box, whose files are the template's.
        """
        slot = seen.slot
        if slot.state == "ending":
            return None
        if slot.state == "creating":
            await self.book.store(number, replace(slot, state="ending", doubtful=True), seen.sequence)
            return None
        taken = replace(slot, beat=slot.beat + 1, name=name or slot.name)
        sequence = await self.book.store(number, taken, seen.sequence)
        if sequence is None:
            return None
        try:
            await self.provider.renew(slot.box, self.pace.lease_s)
        except BoxGone:
            await self.book.store(number, replace(taken, state="ending"), sequence)
            return None
        except ServiceUnavailable:
            return None
        lease = self.held[number] = Lease(self, number, Seen(taken, sequence), resumed=not name)
        return lease

    async def _created(self, number: int, seen: Seen, deadline_s: float) -> tuple[Lease | None, str]:
        """A lease on a new box; or None with the reason, and the slot is given back."""
        slot, sequence, why = seen.slot, seen.sequence, "the deadline has passed"
        label = self.book.label(number, slot.generation)
        box = ""
        while not box and clock.monotonic() < deadline_s:
            # Renewed by this: the reaper must not take a slot whose owner waits.
            await self._permits.take()
            stored = await self.book.store(number, slot := replace(slot, beat=slot.beat + 1), sequence)
            if stored is None:
                return None, "the worker was taken for dead"
            sequence = stored
            try:
                box = await self.provider.create(
                    slot.template, label=label, life_s=self.pace.lease_s, internet=slot.internet
                )
            except BoxRefused as error:
                why = error.message
                await self._permits.refused(error.after_s)
            except BoxUnknown as error:
                why = error.message
                stored = await self.book.store(number, slot := replace(slot, doubtful=True), sequence)
                if stored is None:
                    return None, "the worker was taken for dead"
                sequence = stored
                box = await self._appeared(label, deadline_s)
            except GymError:
                await self._give_back(number, slot, sequence)
                raise
        if not box:
            await self._give_back(number, slot, sequence)
            return None, why
        if not re.fullmatch(BOX_ID, box):
            with suppress(GymError):
                await self.provider.end(box)
            await self._give_back(number, slot, sequence)
            raise UsageError(f"the provider gives a box the id {box!r}; it must match {BOX_ID}", stage="box")
        held = replace(slot, state="held", box=box)
        stored = await self.book.store(number, held, sequence)
        if stored is None:
            with suppress(GymError):  # the reaper ends it in any case: its generation has passed
                await self.provider.end(box)
            return None, "the worker was taken for dead"
        lease = self.held[number] = Lease(self, number, Seen(held, stored), resumed=False)
        return lease, ""

    async def _appeared(self, label: str, deadline_s: float) -> str:
        """The id of a box whose create had no answer; empty if none appears in time.

        Only a list that was asked for after `Pace.late_s` shows that the box does not exist.
        """
        until_s = clock.monotonic() + self.pace.late_s
        while (asked_s := clock.monotonic()) < deadline_s:
            with suppress(ServiceUnavailable):
                found: Sequence[Found] = await self.provider.list(label)
                if boxes := sorted(one.box for one in found if one.label == label):
                    return boxes[0]
                if asked_s >= until_s:
                    break
            await anyio.sleep(self.pace.late_s / 10)
        return ""

    async def _give_back(self, number: int, slot: Slot, sequence: int) -> None:
        if slot.doubtful:
            await self.book.store(number, replace(slot, state="ending"), sequence)
        else:
            await self.book.store(number, Slot(generation=slot.generation), sequence)

    async def _renew(self) -> None:
        while True:
            await anyio.sleep(self.pace.renew_s)
            # All at a time: a provider that does not answer for one must not cost the others their leases.
            async with anyio.create_task_group() as tasks:
                for lease in list(self.held.values()):
                    tasks.start_soon(_renewed, lease)


async def _renewed(lease: Lease) -> None:
    with suppress(GymError):  # what is wrong shows at the lease's next use
        await lease.renew()

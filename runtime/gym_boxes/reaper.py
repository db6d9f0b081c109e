"""The reaper: ends boxes that belong to no lease, and frees slots whose owners are dead.

Each worker runs one. In each period one of them, whichever stores the record of the reaper first, compares
the provider's list with the slots; the others see that the record has changed. What is decided needs
nothing but the list, which is read first, and the slots, which are read after it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import anyio
from gym_runtime import GymError, clock
from gym_runtime.logs import logger

from gym_boxes.leases import Pace
from gym_boxes.provider import Found, Provider
from gym_boxes.slots import Book, Seen, Slot, replace

_PLACE = re.compile(r"([0-9]{1,10})\.([0-9]{1,10})")


class Verdicts(NamedTuple):
    """What one look decides.

    Attributes:
        end: boxes that are ended.
        store: slots that are replaced, by number.
    """

    end: list[str]
    store: dict[int, Slot]


def judged(
    listed: Sequence[Found],
    slots: Mapping[int, Seen],
    unchanged_s: Mapping[int, float],
    account: str,
    pace: Pace,
) -> Verdicts:
    """Decide, from what the provider lists and from the slots, which were read after it.

    Args:
        unchanged_s: for how long each slot's record has been seen as it is.
    """
    end: list[str] = []
    there: set[int] = set()
    for one in listed:
        if (place := _place(one.label, account)) is None:
            continue  # another system's, or made by hand
        number, generation = place
        slot = slots[number].slot if number in slots else Slot()
        current = generation == slot.generation
        # A box of a later generation was made after the slots were read; it cannot be, but must not be ended.
        if generation > slot.generation or (current and slot.state == "creating"):
            continue
        if current and slot.state == "held" and one.box == slot.box:
            continue
        end.append(one.box)
        if current:
            there.add(number)
    store: dict[int, Slot] = {}
    for number, seen in slots.items():
        slot, waited_s = seen.slot, unchanged_s.get(number, 0.0)
        if slot.state == "ending" and number not in there:
            if not slot.doubtful or waited_s > pace.late_s:
                store[number] = Slot(generation=slot.generation)
        elif slot.state in ("creating", "held") and waited_s > pace.lease_s:
            store[number] = replace(slot, state="ending", doubtful=slot.doubtful or slot.state == "creating")
    return Verdicts(end, store)


def _place(label: str, account: str) -> tuple[int, int] | None:
    """The slot and the generation that a label of this account names."""
    named, _, place = label.partition(".")
    if named != account or not (found := _PLACE.fullmatch(place)):
        return None
    return int(found[1]), int(found[2])


class Reaper:
    """One worker's reaper for one account."""

    def __init__(self, book: Book, provider: Provider, pace: Pace) -> None:
        self._book, self._provider, self._pace = book, provider, pace
        self._since: dict[int, tuple[int, float]] = {}
        self._turn = 0

    async def run(self) -> None:
        """Look once in each period, until cancelled."""
        while True:
            await anyio.sleep(self._pace.period_s * random.uniform(0.8, 1.2))
            try:
                self._watch(await self._book.slots())
                if await self._my_turn():
                    await self.reap()
            except GymError as error:
                logger().info("boxes were not compared with their leases", error=str(error))

    async def reap(self) -> int:
        """Compare once; returns how many boxes were ended.

        Raises:
            GymError: the provider or the broker does not answer.
        """
        now_s = clock.monotonic()  # what the list does not have was not there at this time
        listed = await self._provider.list(f"{self._book.account}.")
        # Also those beyond the budget: it may have been larger.
        places = (_place(one.label, self._book.account) for one in listed)
        slots = await self._book.slots({place[0] for place in places if place})
        self._watch(slots)
        unchanged_s = {number: now_s - since_s for number, (_, since_s) in self._since.items()}
        end, store = judged(listed, slots, unchanged_s, self._book.account, self._pace)
        for box in end:
            with suppress(GymError):  # it is listed again in the next period
                await self._provider.end(box)
        for number, slot in store.items():
            before = slots[number].slot
            if slot.state == "free" and before.box and before.state == "ending":
                with suppress(GymError):
                    await self._provider.end(before.box)
            await self._book.store(number, slot, slots[number].sequence)
        if end:
            logger().info("boxes without a lease were ended", boxes=len(end), account=self._book.account)
        return len(end)

    def _watch(self, slots: Mapping[int, Seen]) -> None:
        now_s = clock.monotonic()
        for number, seen in slots.items():
            known = self._since.get(number)
            if known is None or known[0] != seen.sequence:
                self._since[number] = (seen.sequence, now_s)

    async def _my_turn(self) -> bool:
        """Whether no other worker has reaped since this worker's last look."""
        subject = f"{self._book.subject}.reaper"
        found = await self._book.bus.latest(subject)
        sequence = found[0].sequence if found else 0
        before, self._turn = self._turn, sequence
        if sequence != before:
            return False
        stored = await self._book.bus.append(subject, b"{}", expect=sequence)
        self._turn = stored or sequence
        return stored is not None

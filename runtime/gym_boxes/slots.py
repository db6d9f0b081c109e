"""The slots of an account: one record at the broker for each box that there may be.

What is read there is not trusted: another peer of the broker, or another version of this program, may have
written it. A record that cannot be read makes its slot unusable, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

import anyio
import msgspec
from gym_runtime import GymError
from gym_runtime.bus import Bus
from gym_runtime.errors import UNREADABLE
from gym_runtime.logs import logger
from gym_runtime.messages import token

from gym_boxes.provider import BOX_ID

READ_AT_ONCE = 16
"""So many slots are read at a time."""
Count = Annotated[int, msgspec.Meta(ge=0, lt=10**10)]


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a slot.

    Attributes:
        state: ``ending``: its boxes are ended, and then it is free.
        generation: which box of the slot it is; part of the label.
        name: who has it, such as a rollout's id.
        template: what the box was made from.
        internet: whether it may reach the internet.
        box: the provider's id; empty while that is not known.
        doubtful: an answer to a create was lost: a second box may still appear.
        beat: how often it was renewed.
    """

    state: Literal["free", "creating", "held", "ending"] = "free"
    generation: Count = 0
    name: str = ""
    template: str = ""
    internet: bool = False
    box: Annotated[str, msgspec.Meta(pattern=rf"^({BOX_ID})?\Z")] = ""
    doubtful: bool = False
    beat: Count = 0


class Seen(msgspec.Struct, frozen=True):
    """A slot as it was read."""

    slot: Slot
    sequence: int


_decode = msgspec.json.Decoder(Slot).decode
replace = msgspec.structs.replace


class Book:
    """The slots of one account at the broker.

    Args:
        account: names the account in all of a system's workers; letters, digits, underscores, hyphens.
        most: how many boxes there may be at a time.
    """

    def __init__(self, bus: Bus, account: str, most: int) -> None:
        self.bus, self.account, self.most = bus, token(account, "account"), most
        self.subject = f"runs.boxes.{self.account}"
        self._unreadable: dict[int, int] = {}

    def label(self, number: int, generation: int) -> str:
        """The label of a slot's box."""
        return f"{self.account}.{number}.{generation}"

    async def slots(self, also: Iterable[int] = ()) -> dict[int, Seen]:
        """All slots by number, and those of the given numbers; those that were never used are free.

        A slot whose record cannot be read is not among them, and so is neither used nor reaped.
        """
        # One by one: to read them all at once takes a consumer, and a secured broker lets the workers of
        # resources make none.
        found = {number: Seen(Slot(), 0) for number in (*range(self.most), *also)}
        numbers, failed = iter(list(found)), list[GymError]()

        async def read() -> None:
            try:
                for number in numbers:
                    for record in await self.bus.latest(f"{self.subject}.slot.{number}"):
                        try:
                            found[number] = Seen(_decode(record.payload), record.sequence)
                        except UNREADABLE as error:
                            del found[number]
                            self._tell(number, record.sequence, error)
            except GymError as error:  # not through the task group, which would wrap it
                failed.append(error)

        async with anyio.create_task_group() as tasks:
            for _ in range(min(READ_AT_ONCE, len(found))):
                tasks.start_soon(read)
        if failed:
            raise failed[0]
        return found

    def _tell(self, number: int, sequence: int, error: Exception) -> None:
        if self._unreadable.get(number) != sequence:  # once, not at each look
            self._unreadable[number] = sequence
            logger().warning(
                "the record of a box cannot be read, so its slot is not used",
                subject=f"{self.subject}.slot.{number}",
                error=str(error),
            )

    async def store(self, number: int, slot: Slot, sequence: int) -> int | None:
        """Replace a slot's record if it is the one of this sequence; the new one's, or None."""
        subject = f"{self.subject}.slot.{number}"
        return await self.bus.append(subject, msgspec.json.encode(slot), expect=sequence)

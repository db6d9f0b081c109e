"""What others have stored or announced, read without trust.

A client of another version, or a hostile one, can store anything where it may write. A record that cannot be
read must not end what reads all of them: it is left out, and the log names it once. A record says what it is
of, and counts only under the subject of that: ``runs.R`` is of run R, ``join.K.W`` of worker W.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from gym_runtime.errors import UNREADABLE
from gym_runtime.logs import logger

NAMED = 64
"""So many records one process names in its log: whoever stores bad ones must not fill the disk with lines."""

_named: set[str] = set()

T = TypeVar("T")


class Source(Protocol):
    """A stored record, or a message."""

    @property
    def subject(self) -> str: ...
    @property
    def payload(self) -> bytes: ...


class Stored(Generic[T]):
    """The reader of one kind of records.

    Args:
        decode: reads the payload; may raise what `UNREADABLE` has.
        name_of: what follows the first token of the subject where such a record belongs; records without a
            name count wherever they are.
    """

    def __init__(self, decode: Callable[[bytes], T], name_of: Callable[[T], str] | None = None) -> None:
        self._decode = decode
        self._name_of = name_of

    def problem(self, source: Source) -> T | str:
        """The record, or why it cannot be read."""
        try:
            found = self._decode(source.payload)
        except UNREADABLE as error:
            return str(error)
        if self._name_of is None or (name := self._name_of(found)) == source.subject.partition(".")[2]:
            return found
        return f"it says that it is of {name[:200]!r}"

    def read(self, source: Source) -> T | None:
        """The record; None if it cannot be read, which the log says."""
        found = self.problem(source)
        if isinstance(found, str):
            leave_out(source.subject, found)
            return None
        return found

    def read_all(self, sources: Iterable[Source]) -> list[T]:
        """The records that can be read, in their order."""
        return [found for source in sources if (found := self.read(source)) is not None]


def leave_out(subject: str, why: str) -> None:
    """Say in the log what is left out and why: each subject once, and `NAMED` of them in all."""
    if subject in _named or len(_named) > NAMED:
        return
    _named.add(subject)
    if len(_named) > NAMED:
        logger().warning("further records that cannot be used are left out without a line", after=NAMED)
    else:
        logger().warning("a record cannot be used and is left out", subject=subject, reason=why)

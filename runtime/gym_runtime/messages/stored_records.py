"""What others have stored or announced, read without trust; and what is stored of runs and of weights.

A client of another version, or a hostile one, can store anything where it may write. A record that cannot be
read must not end what reads all of them: it is left out, and the log names it once. A record says what it is
of, and counts only under the subject of that: ``runs.R`` is of run R, ``join.K.W`` of worker W.
"""

from __future__ import annotations

import getpass
import math
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Generic, Protocol, TypeVar

import msgspec

from gym_runtime import clock
from gym_runtime.errors import UNREADABLE
from gym_runtime.logs import logger
from gym_runtime.messages.alarms import Alarm
from gym_runtime.messages.metric_names import Figures

NAMED = 64
"""The most records that one process names in its log: bad records must not fill the disk with lines."""

MOST_BYTES = 2 * 2**20
"""The longest record of a run that is decoded: longer ones would block a loop. A run stores some KB."""

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
        most_bytes: longer records are not decoded.
    """

    def __init__(
        self,
        decode: Callable[[bytes], T],
        name_of: Callable[[T], str] | None = None,
        most_bytes: float = math.inf,
    ) -> None:
        self._decode = decode
        self._name_of = name_of
        self._most_bytes = most_bytes

    def problem(self, source: Source) -> T | str:
        """The record, or why it cannot be read."""
        if (size := len(source.payload)) > self._most_bytes:
            return f"it has {size:,} bytes, and {self._most_bytes:,} are the most that are read"
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
    """Log which record is left out and why: each subject once, and `NAMED` of them in all."""
    if subject in _named or len(_named) > NAMED:
        return
    _named.add(subject)
    if len(_named) > NAMED:
        logger().warning("further records that cannot be used are left out without a line", after=NAMED)
    else:
        logger().warning("a record cannot be used and is left out", subject=subject, reason=why)


class RunInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run: all that stays of it when it is over.

    Attributes:
        state: ``active``, ``finished`` or ``cancelled``.
        attached: its client is connected for as long as it is worked on.
        closed: its stored records are freed, and nothing more may be stored.
        tasks: all task indices are less than this; 0 if that is not known.
        model: ``PROVIDER/NAME``, or the name of the pool that is asked; empty if not known.
        done, failed: when the run is over, how many rollouts have a result, and how many of these are
            failures; None if not known.
        figures: what its last client has counted, when the run is over.
        repeats: rollouts of each row, where that is one number for all environments; else 1.
        share, priority: what it was begun with, as in `gym_runtime.messages.run_control.RunControl`.
        cancelled_by, cancelled_s: who cancelled it and when, as in `Asked`; empty and 0 if it was not
            cancelled, or if that is not known, as of a run whose client died.
        alarms: that its last client has heard, when the run is over.
    """

    run: str
    total: int
    environments: list[str] = []
    agents: list[str] = []
    created_s: float = 0.0
    state: str = "active"
    attached: bool = False
    closed: bool = False
    model: str = ""
    done: int | None = None
    failed: int | None = None
    figures: Figures | None = None
    cancelled_by: str = ""
    cancelled_s: float = 0.0
    repeats: int = 1
    tasks: int = 0
    share: float | None = None
    priority: int | None = None
    alarms: list[Alarm] = []

    @property
    def models(self) -> list[str]:
        """The pool of models that rollouts ask, as ``agents`` are pools; none if it is not known."""
        # A run names PROVIDER/NAME where the pool with the usual name served that when it began.
        return ["policy"] if "/" in self.model else [self.model] if self.model else []


class Asked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who asked to cancel something or to drain, by their own account: nothing proves it.

    Attributes:
        by: ``USER@HOST``; empty if not known.
        at_s: by the asker's clock, in seconds since the epoch.
    """

    by: str = ""
    at_s: float = 0.0


def asked_here() -> Asked:
    """A request of this process's user."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = str(os.getuid())
    return Asked(by=f"{user}@{socket.gethostname()}", at_s=clock.now())


def read_asked(payload: bytes) -> Asked:
    """Who sent a request; clients of earlier versions do not say it."""
    try:
        asked = _decode_asked(payload)
    except UNREADABLE:
        return Asked()
    return msgspec.structs.replace(asked, by=asked.by[:BY_CHARS])


BY_CHARS = 200
"""The longest name of a user and a host that is shown."""
encode_asked = msgspec.json.Encoder().encode
_decode_asked = msgspec.json.Decoder(Asked).decode

CLOSED = b"closed"
"""The payload of a whole run's cancellation when the run is closed."""

encode_run = msgspec.json.Encoder().encode
decode_run = msgspec.json.Decoder(RunInfo).decode


RUNS = Stored(decode_run, attrgetter("run"), MOST_BYTES)
"""Reads what is stored under ``runs.<run>``."""


def new_run_id() -> str:
    """A run's id: sortable by time, unique, one token of a subject."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"


class CurrentWeights(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The weights that all engines of a model are to have; an engine that starts later loads them.

    Attributes:
        path: where the engines find them; empty if they are at no path: then an engine has its own.
        version: their name.
    """

    path: str = ""
    version: str = ""


encode_current_weights = msgspec.json.Encoder().encode
decode_current_weights = msgspec.json.Decoder(CurrentWeights).decode
WEIGHTS = Stored(decode_current_weights, most_bytes=MOST_BYTES)
"""Reads what is stored under ``runs.weights.<pool>``."""

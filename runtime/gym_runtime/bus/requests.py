"""Requests that wait for their answers: one inbox for all, and one future for each.

The subject for an answer holds a random number: a worker can answer the request that it received, and cannot
guess where the answers to others go.
"""

from __future__ import annotations

import asyncio
from os import urandom
from typing import NamedTuple

import msgspec

from gym_runtime.bus.interface import Headers, Stopped
from gym_runtime.errors import BrokerError, ConnectionLost, DeadlineExceeded
from gym_runtime.timing import EXACT_S, OVERDUE_S


class RawAnswer(NamedTuple):
    """What came back on a request."""

    headers: Headers
    payload: bytes


Waiting = asyncio.Future[RawAnswer | BrokerError | ConnectionLost | DeadlineExceeded | Stopped]


# `gc=False`: thousands may wait, and `end` removes each, so the collector need not look at them.
class _Long(msgspec.Struct, frozen=True, gc=False):
    """A wait that is looked after together with others."""

    end_s: float
    subject: str
    within_s: float
    future: Waiting


class Requests:
    """The table of requests in flight. Errors are results here, so that every one is retrieved."""

    def __init__(self, root: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._root = root
        self._length = len(root)
        self._waiting: dict[int, tuple[str, Waiting]] = {}
        self._long: dict[int, _Long] = {}
        self._looking: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, subject: str, within_s: float) -> tuple[int, str, Waiting, asyncio.TimerHandle | None]:
        """A new request, whose wait for an answer ends after ``within_s``.

        Its number, the subject for its answer, the future of that, and the timer to cancel, if it needs one.
        """
        number = int.from_bytes(urandom(8))
        future: Waiting = self._loop.create_future()
        self._waiting[number] = (subject, future)
        timer = None
        if within_s <= EXACT_S:
            timer = self._loop.call_later(within_s, _expire, future, subject, within_s)
        else:
            self._long[number] = _Long(self._loop.time() + within_s, subject, within_s, future)
            if self._looking is None:
                self._looking = self._loop.call_later(OVERDUE_S, self._look)
        return number, f"{self._root}{number}", future, timer

    def _look(self) -> None:
        now_s = self._loop.time()
        # Nothing is removed here: `end` does so when the waiting task runs.
        for wait in self._long.values():
            if wait.end_s <= now_s:
                _expire(wait.future, wait.subject, wait.within_s)
        self._looking = self._loop.call_later(OVERDUE_S, self._look) if self._long else None

    def end(self, number: int) -> None:
        """Forget a request; an answer that comes later is dropped."""
        del self._waiting[number]
        self._long.pop(number, None)

    def answer(self, subject: str, reply: str, headers: Headers, payload: bytes) -> None:
        """A message on the inbox."""
        # An answer to a request that was cancelled or ran out of time finds no entry.
        _, future = self._waiting.get(int(subject[self._length :]), ("", None))
        # It may have failed just before, and its task not have run since to remove it.
        if future is not None and not future.done():
            future.set_result(RawAnswer(headers, payload))

    def fail(self, why: str) -> None:
        """The connection broke."""
        for _, future in self._waiting.values():
            if not future.done():
                future.set_result(ConnectionLost(why))

    def deny(self, subject: str, why: str) -> None:
        """The broker does not let us ask on a subject, which nats-py tells in small letters."""
        # The broker's error names the subject only, so all requests on it fail.
        for asked, future in self._waiting.values():
            if asked.lower() == subject and not future.done():
                future.set_result(BrokerError(why))


def stopped(future: Waiting) -> None:
    """One was stopped."""
    if not future.done():
        future.set_result(Stopped())


def _expire(future: Waiting, subject: str, within_s: float) -> None:
    """The time of one is over."""
    if not future.done():
        future.set_result(DeadlineExceeded(f"no answer on {subject!r} within {within_s:.1f} s"))

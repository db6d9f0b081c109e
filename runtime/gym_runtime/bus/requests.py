"""Requests that wait for their answers: one inbox for all, one future and one timer for each."""

from __future__ import annotations

import asyncio

from gym_runtime.bus.link import Answer
from gym_runtime.errors import ConnectionLost, DeadlineExceeded

Waiting = asyncio.Future[Answer | ConnectionLost | DeadlineExceeded]


class Requests:
    """The table of those in flight. Errors are results here, so that none is ever left unretrieved."""

    def __init__(self, root: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._root = root
        self._length = len(root)
        self._number = 0
        self._waiting: dict[int, Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self) -> tuple[int, str, Waiting]:
        """The number of a new request, the subject for its answer, and the future of that."""
        self._number = number = self._number + 1
        self._waiting[number] = future = self._loop.create_future()
        return number, f"{self._root}{number}", future

    def end(self, number: int) -> None:
        """Forget a request; an answer that comes later is dropped."""
        del self._waiting[number]

    def answer(self, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        """A message on the inbox."""
        future = self._waiting.get(int(subject[self._length :]))
        if future is not None and not future.done():
            future.set_result(Answer(header, payload))

    def fail(self, why: str) -> None:
        """The connection broke."""
        for future in self._waiting.values():
            if not future.done():
                future.set_result(ConnectionLost(why))


def expire(future: Waiting, subject: str, within_s: float) -> None:
    """The time of one is over."""
    if not future.done():
        future.set_result(DeadlineExceeded(f"no answer on {subject!r} within {within_s:.1f} s"))

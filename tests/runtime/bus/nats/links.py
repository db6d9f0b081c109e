"""Inboxes, links and waiting, for the tests of the NATS bus."""

from __future__ import annotations

import itertools
import time
from typing import Any

import anyio
from gym_runtime.bus.link import Link
from gym_runtime.bus.nats import NatsBus

_numbers = itertools.count()


def soon(seconds: float = 10.0) -> float:
    return time.monotonic() + seconds


def link_of(bus: NatsBus) -> Link:
    return bus._link  # type: ignore[attr-defined,return-value]


class Inbox:
    """Collects what arrives."""

    def __init__(self, count: int = 1) -> None:
        self.got: list[Any] = []
        self._count = count
        self._full = anyio.Event()

    def __call__(self, item: Any) -> None:
        self.got.append(item)
        if len(self.got) == self._count:
            self._full.set()

    async def full(self) -> list[Any]:
        with anyio.fail_after(15):
            await self._full.wait()
        return self.got

"""The journal of a rollout: who was away for long asks whether it is still his."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from gym_runtime.errors import Fenced
from gym_runtime.rollout.journal import Journal, journal_subject
from gym_runtime.timing import JOURNAL_FRESH_S
from gym_testing.memory import MemoryBroker
from gym_testing.virtual_clock import BACKEND
from msgspec import Raw

pytestmark = pytest.mark.anyio

SUBJECT = journal_subject("run", 0, 0)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return BACKEND


async def test_who_was_away_for_long_stops_when_another_went_on_or_all_is_forgotten() -> None:
    async with MemoryBroker().connect("agent") as bus:
        mine = Journal(bus, SUBJECT)
        await mine.store("request", Raw(b"1"))
        await anyio.sleep(JOURNAL_FRESH_S + 1)
        await mine.confirm()

        other = Journal(bus, SUBJECT)
        await other.load()
        await other.store("request", Raw(b"2"))
        with pytest.raises(Fenced):
            await mine.confirm()

        await anyio.sleep(JOURNAL_FRESH_S + 1)
        await other.confirm()
        await bus.forget(SUBJECT)
        with pytest.raises(Fenced):
            await other.confirm()


async def test_who_has_just_stored_a_turn_or_never_did_is_not_held_up() -> None:
    async with MemoryBroker().connect("agent") as bus:
        nothing, fresh = Journal(bus, SUBJECT), Journal(bus, SUBJECT)
        await fresh.store("request", Raw(b"1"))
        await bus.forget(SUBJECT)
        await fresh.confirm()
        await anyio.sleep(JOURNAL_FRESH_S + 1)
        await nothing.confirm()
        await Journal(None, "").confirm()

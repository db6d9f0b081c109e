"""A key of one role has JetStream answer where others listen: no listener takes that for a message."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from faults.permissions.identities import as_role
from gym_runtime.bus.link import Link, Role

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.timeout(120), pytest.mark.anyio]

LISTENED: dict[Role, tuple[str, ...]] = {
    "client": ("follow.r", "join.agent.a", "gone.model.m"),
    "agent": ("cancel.r", "cancel.r.0.1", "join.model.m", "gone.agent.a", "gone.resource.r", "call"),
    "resource": ("resource.e", "resource.e.w", "abort.w", "over.e", "holds.w", "alive.resource.w"),
    "model": ("model.p", "model.p.w", "abort.w", "control.w", "drain.model.w", "holds.w"),
}
BLOB = "gym.blob.brief.forged"
ASKED: dict[str, bytes] = {
    "$JS.API.INFO": b"",
    f"{BLOB}.stored": b"x",  # and refused when it is stored already
    f"$JS.API.DIRECT.GET.gym_BLOBS.{BLOB}.chosen": b"",
    f"$JS.API.DIRECT.GET.gym_BLOBS.{BLOB}.none": b"",
}
"""What each role may ask JetStream, and so have answered anywhere."""
ASKED_BY: dict[Role, dict[str, bytes]] = {
    "client": {"$JS.API.STREAM.MSG.GET.gym_RUNS": b'{"last_by_subj": "gym.runs.none"}'},
    "agent": {
        "$JS.API.CONSUMER.CREATE.gym_JOURNAL.c.gym.journal.>": b'{"stream_name": "gym_JOURNAL", "config": '
        b'{"name": "c", "ack_policy": "explicit", "filter_subject": "gym.journal.>", "mem_storage": true}}',
        "$JS.API.CONSUMER.MSG.NEXT.gym_JOURNAL.c": b"1",
    },
    "resource": {"gym.journal.r.0.0.0.role.forged": b"x"},
    "model": {},
}


async def _ask(link: Link, role: Role) -> None:
    for question, text in {**ASKED, **ASKED_BY[role]}.items():
        if "MSG.NEXT" not in question:  # what is pulled has the subject under which it is stored
            await link.ask(question, text, within_s=20)


@pytest.mark.parametrize("role", LISTENED)
async def test_an_answer_of_jetstream_is_no_message_of_a_worker_or_client(
    url: str, folder: Path, role: Role
) -> None:
    heard: list[tuple[str, bytes]] = []
    async with AsyncExitStack() as stack:
        links: dict[Role, Link] = {}
        for listener, subjects in LISTENED.items():
            bus = await stack.enter_async_context(as_role(url, folder, listener))
            links[listener] = bus._link  # pyright: ignore[reportPrivateUsage]
            for subject in subjects:
                at = bus.serve(subject, lambda got: heard.append((got.subject, got.payload)))
                await stack.enter_async_context(at)
            if listener == "agent":
                for turn in range(40):  # enough for a `MSG.NEXT` from each subject
                    await bus.append(f"journal.{role}.0.0.{turn}", b"turn")
        thief = links[role]
        await thief.ask(f"{BLOB}.chosen", b"forged", within_s=20)
        await _ask(thief, role)
        for subject in (subject for subjects in LISTENED.values() for subject in subjects):
            for question, text in {**ASKED, **ASKED_BY[role]}.items():
                thief.post(question, text, reply=f"gym.{subject}")
        # JetStream answers these later than those, and the broker a listener later than it was sent those.
        await _ask(thief, role)
        for link in links.values():
            await link.ask("$JS.API.INFO", b"", within_s=20)
    assert heard == []

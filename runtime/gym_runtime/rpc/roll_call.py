"""The workers of a system, for a caller that is not a follower, such as the command line or a trainer.

A follower has the list (`gym_runtime.rpc.members`) and sends it. In a system without followers, such as one
without agent workers, every member is asked to announce itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import anyio
import anyio.lowlevel
import msgspec

from gym_runtime import clock
from gym_runtime.bus.interface import Bus, Incoming
from gym_runtime.errors import UNREADABLE, ConnectionLost, DeadlineExceeded, GymError, NoWorker
from gym_runtime.logs import logger
from gym_runtime.messages.stored_records import Stored
from gym_runtime.rpc.registry import HEARTBEATS, MOST_MEMBERS, Heartbeat, decode_heartbeat
from gym_runtime.timing import MEMBER_ANSWER_S, ROLL_CALL_S

LIST_S = 2.0
"""How long a follower may take to send its list of members."""

WORKERS = ("agent", "resource", "model")
LIST_TRIES = 2
ASKED_AT_ONCE = 64

_decode = msgspec.json.Decoder(list[msgspec.Raw]).decode
_MEMBERS = Stored(decode_heartbeat)


async def listed(bus: Bus, kind: str) -> list[Heartbeat]:
    """A follower's list of the members of a kind.

    Raises:
        NoWorker: there is no follower.
        GymError: no follower answered.
        Exception: one of `UNREADABLE`: what answered is no list.
    """
    tries = LIST_TRIES
    while True:
        try:
            subject = f"members.{kind}"
            found = _decode(await bus.request(subject, b"", deadline_s=clock.monotonic() + LIST_S))
            # One by one: a member of another version must not keep the others from being listed.
            members = _MEMBERS.read_all(Incoming(subject, raw) for raw in found[:MOST_MEMBERS])
            return [member for member in members if member.kind == kind]
        except (ConnectionLost, DeadlineExceeded, *UNREADABLE):
            # The follower that the broker chose may be frozen, or of another version; the broker may choose
            # another one next time.
            tries -= 1
            if not tries:
                raise


async def all_workers(bus: Bus) -> list[Heartbeat]:
    """Every worker of the system. Loads may be old; see `fresh`.

    If no follower answers, this calls the roll, which takes `ROLL_CALL_S`.

    Raises:
        GymError: the broker is not reachable, or refuses the request.
    """
    # Without followers, or with frozen or foreign ones only, the roll is called below.
    with suppress(NoWorker, DeadlineExceeded, *UNREADABLE):
        return [heartbeat for kind in WORKERS for heartbeat in await listed(bus, kind)]
    answered: dict[str, Heartbeat] = {}

    def join(incoming: Incoming) -> None:
        heartbeat = HEARTBEATS.read(incoming)
        if heartbeat is not None and heartbeat.kind in WORKERS and len(answered) < MOST_MEMBERS:
            answered[heartbeat.name] = heartbeat

    async with bus.serve("join.>", join):
        await bus.publish("call", b"")
        await anyio.sleep(ROLL_CALL_S)
    return list(answered.values())


async def fresh(bus: Bus, workers: Iterable[Heartbeat]) -> list[Heartbeat]:
    """The workers with their present loads: each is asked. A silent one keeps its last known load."""
    found = {heartbeat.name: heartbeat for heartbeat in workers}

    async def ask(name: str) -> None:
        deadline_s = clock.monotonic() + MEMBER_ANSWER_S
        try:
            answer = Incoming(f"alive.{name}", await bus.request(f"alive.{name}", b"", deadline_s=deadline_s))
        except NoWorker:
            # It has ended since the list was made.
            del found[name]
        except GymError as error:
            logger().info("a worker did not report its load", worker_asked=name, error=str(error))
        else:
            found[name] = HEARTBEATS.read(answer) or found[name]

    async with anyio.create_task_group() as tasks:
        # A copy: `ask` removes those that are gone.
        for number, name in enumerate(list(found)):
            # A thousand questions in one go would block the event loop. But none waits for the answers to
            # others: the silent ones together take no longer than one.
            if number % ASKED_AT_ONCE == 0:
                await anyio.lowlevel.checkpoint()
            tasks.start_soon(ask, name)
    return list(found.values())

"""The members of a system: how they announce themselves, how callers list them and ask them to leave.

On the wire, NAME being ``<kind>.<worker>``:

===================  ====================================================================================
``join.NAME``        signal with the member's `Heartbeat`: it joined, or its state changed
``gone.NAME``        signal: it left, and then with its last `Heartbeat`; or a watcher declared it gone; a
                     member that is alive answers with another ``join``
``alive.NAME``       request; the answer is the member's `Heartbeat`
``call``             signal, the roll call: every member announces itself
``drain.NAME``       request to leave, which only clients may send; the answer is `calls.Draining`
===================  ====================================================================================

A member that is asked regularly and does not change sends nothing but its answers. A worker that is asked to
leave works until its supervisor tells it to drain, and the supervisor does not replace it.

Agent workers and gateways keep the list of all members (`gym_runtime.rpc.watch`) and send it to any caller,
such as the command line. In a system without agent workers and gateways, the caller calls the roll.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack, suppress

import anyio
import anyio.lowlevel
import msgspec
from msgspec.structs import replace

from gym_runtime import clock
from gym_runtime.bus.interface import Bus, Incoming
from gym_runtime.errors import (
    UNREADABLE,
    BrokerError,
    ConnectionLost,
    DeadlineExceeded,
    GymError,
    NoWorker,
    UsageError,
)
from gym_runtime.logs import logger
from gym_runtime.messages import calls
from gym_runtime.messages.metric_names import Figures
from gym_runtime.messages.names import Token
from gym_runtime.messages.stored_records import Stored, asked_here, encode_asked, read_asked
from gym_runtime.timing import MEMBER_ANSWER_S, ROLL_CALL_S, SLOW_LINK_S, STATE_CHECKED_S, UNASKED_S

MOST_MEMBERS = 8192
"""The most members of each kind; further members are ignored until others leave. NATS does not tell who
announces a member, so a client that may announce one member can announce many."""
MOST_BYTES = 512 * 1024
"""The longest heartbeat that is read. Every follower decodes it, within 40 ms, and keeps it; one with the
figures of 150 environments has 200 KB."""

CALLS_ANSWERED_S = 0.25
"""The shortest time between two answers of a member to roll calls: one answer serves all followers that start
together, so a hundred followers do not cause a hundred announcements of every member."""
LEAVE_S = 1.0
"""How long a leaving member may take to announce that."""


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a member of the system reports about itself when it is asked, and when its state changes.

    Attributes:
        kind: ``agent``, ``model`` or ``resource``; ``client`` for the client of an attached run, and then
            ``worker`` is the run's id.
        pools: the names it serves.
        load: 0 when idle, 1 when full.
        draining: it finishes its requests and takes no new ones.
        round_trip_s: how long its pings to the broker take; 0 while that is not known.
        places: it understands requests for a place (`gym_runtime.rpc.quarantine`).
        closes_many: it understands a `CloseSession` for several sessions.
        names_images: it understands `Request.images`.
        crashed: the previous worker at its supervisor's slot, if that worker crashed: it ended itself, or the
            kernel ended it for what it did; nothing outside ended it.
        killed: the same, if a signal from outside ended it, as of a spot instance that is taken away.
        refused: why the broker refuses what the member is storing now; empty if it does not.
        detail: further information for users, such as a model's name.
        figures: its counters since it began; only in answers on ``alive``, and at its end.
    """

    worker: Token
    kind: Token
    pools: list[Token]
    host: str = ""
    pid: int = 0
    started_s: float = 0.0
    capacity: int = 1
    in_use: int = 0
    load: float = 0.0
    draining: bool = False
    round_trip_s: float = 0.0
    places: bool = False
    closes_many: bool = False
    names_images: bool = False
    crashed: str = ""
    killed: str = ""
    refused: str = ""
    detail: dict[str, str] = {}
    figures: Figures | None = None

    @property
    def name(self) -> str:
        """Unique in the system; the last two tokens of its subjects."""
        return f"{self.kind}.{self.worker}"

    @property
    def slow(self) -> bool:
        """Whether its link to the broker is slow."""
        return self.round_trip_s > SLOW_LINK_S

    @property
    def held(self) -> str:
        """Why rollouts should not ask this model worker now; empty if they may."""
        return self.detail.get("held", "")


encode_heartbeat = msgspec.json.Encoder().encode
_decode_heartbeat = msgspec.json.Decoder(Heartbeat).decode


def decode_heartbeat(payload: bytes | msgspec.Raw) -> Heartbeat:
    """What a member reports about itself.

    Raises:
        Exception: one of `UNREADABLE`: it is no heartbeat, or longer than `MOST_BYTES`.
    """
    if len(memoryview(payload)) > MOST_BYTES:
        raise msgspec.ValidationError(f"a member reports {MOST_BYTES} bytes about itself at most")
    return _decode_heartbeat(payload)


HEARTBEATS = Stored(decode_heartbeat, lambda heartbeat: heartbeat.name)
"""Decodes messages on ``join.<name>`` and ``gone.<name>``, and answers to ``alive.<name>``."""


def _state(heartbeat: Heartbeat) -> tuple[object, ...]:
    """The part of a heartbeat whose changes are announced at once; the rest is sent when a caller asks."""
    version = heartbeat.detail.get("weight_version")
    return (
        heartbeat.pools,
        heartbeat.capacity,
        heartbeat.draining,
        heartbeat.slow,
        version,
        bool(heartbeat.held),
    )


async def announce(
    bus: Bus, current: Callable[[], Heartbeat], *, ready: Callable[[], None] | None = None
) -> None:
    """Be a member until cancelled, then announce that it left.

    ``ready`` is called once the member answers and has announced itself.
    """
    name = current().name
    asked_s = anyio.current_time()
    wake = anyio.Event()

    async def reply(incoming: Incoming) -> None:
        # A watcher that gets no answer asks again.
        with suppress(GymError):
            await bus.publish(incoming.reply, encode_heartbeat(current()))

    # The group is entered first, so that it outlives the subscriptions.
    async with anyio.create_task_group() as tasks, AsyncExitStack() as stack:

        def answer(incoming: Incoming) -> None:
            nonlocal asked_s
            asked_s = anyio.current_time()
            tasks.start_soon(reply, incoming)

        def called(_: Incoming) -> None:
            wake.set()

        await stack.enter_async_context(bus.serve(f"alive.{name}", answer))
        await stack.enter_async_context(bus.serve(f"gone.{name}", called))
        await stack.enter_async_context(bus.serve("call", called))
        announced: tuple[object, ...] | None = None
        # The first roll call is answered at once.
        called_s = -math.inf
        try:
            while True:
                if wake.is_set():
                    await anyio.sleep(max(0.0, called_s + CALLS_ANSWERED_S - anyio.current_time()))
                    called_s = anyio.current_time()
                heartbeat = current()
                unasked = anyio.current_time() - asked_s >= UNASKED_S
                if wake.is_set() or unasked or _state(heartbeat) != announced:
                    wake = anyio.Event()
                    # Otherwise the member would announce itself at each look until a watcher asks it.
                    asked_s = anyio.current_time()
                    # A lost announcement is repeated after `UNASKED_S`, because no watcher asks until then.
                    with suppress(GymError):
                        # Without figures: an announcement goes to all followers, and only answers carry
                        # figures.
                        await bus.publish(f"join.{name}", encode_heartbeat(replace(heartbeat, figures=None)))
                    announced = _state(heartbeat)
                if ready is not None:
                    # Only now is the member known to others.
                    ready()
                    ready = None
                with anyio.move_on_after(STATE_CHECKED_S):
                    await wake.wait()
        finally:
            # If this is not sent, the watcher notices by itself; and an error here must not replace the
            # exception that ended the work.
            with anyio.move_on_after(LEAVE_S, shield=True), suppress(GymError):
                await bus.publish(f"gone.{name}", encode_heartbeat(current()))


LIST_S = 2.0
"""How long a follower may take to send its list of members."""

WORKERS = ("agent", "resource", "model")
LIST_TRIES = 2
ASKED_AT_ONCE = 64

_decode = msgspec.json.Decoder(list[msgspec.Raw]).decode
_MEMBERS = Stored(decode_heartbeat)


async def listed(bus: Bus, kind: str) -> list[Heartbeat]:
    """Ask a follower for its list of the members of a kind.

    Raises:
        NoWorker: there is no follower.
        GymError: no follower answered.
        Exception: one of `UNREADABLE`: the answer is not a list of members.
    """
    tries = LIST_TRIES
    while True:
        try:
            subject = f"members.{kind}"
            found = _decode(await bus.request(subject, b"", deadline_s=clock.monotonic() + LIST_S))
            # Decoded one by one: a member of another version must not hide the others.
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
    with suppress(NoWorker, ConnectionLost, DeadlineExceeded, *UNREADABLE):
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
    """Ask each worker for its present load. A worker that does not answer keeps its last known load."""
    found = {heartbeat.name: heartbeat for heartbeat in workers}
    silent: dict[str, GymError] = {}

    async def ask(name: str) -> None:
        deadline_s = clock.monotonic() + MEMBER_ANSWER_S
        try:
            answer = Incoming(f"alive.{name}", await bus.request(f"alive.{name}", b"", deadline_s=deadline_s))
        except NoWorker:
            # The worker ended after the list was written.
            del found[name]
        except GymError as error:
            silent[name] = error
        else:
            found[name] = HEARTBEATS.read(answer) or found[name]

    async with anyio.create_task_group() as tasks:
        # A copy, because `ask` removes workers that are gone.
        for number, name in enumerate(list(found)):
            # A thousand questions in one go would block the event loop, so there is a pause between groups.
            # No question waits for an answer: many silent workers take no longer than one.
            if number % ASKED_AT_ONCE == 0:
                await anyio.lowlevel.checkpoint()
            tasks.start_soon(ask, name)
    if silent:
        # One line: any name may be announced, and thousands of lines take longer than the questions.
        name, error = next(iter(silent.items()))
        logger().info("workers did not report their load", count=len(silent), first=name, error=str(error))
    return list(found.values())


DRAIN_ANSWER_S = 5.0
"""How long a worker may take to answer that it drains."""


async def drained_on_request(
    bus: Bus, current: Callable[[], Heartbeat], drain_s: float, leave: Callable[[], None]
) -> None:
    """Answer requests to leave until cancelled; each calls ``leave``, which may happen several times."""
    async with anyio.create_task_group() as tasks:

        async def answer(incoming: Incoming) -> None:
            try:
                said = calls.Draining(in_flight=current().in_use, within_s=drain_s)
                await bus.publish(incoming.reply, calls.encode(said))
            except GymError as error:
                logger().info("a request to drain was not answered", error=str(error))

        def asked(incoming: Incoming) -> None:
            if not incoming.reply:  # no client's: see `ModelWorker.run`
                return
            # A warning, so that the default log says why a worker has left.
            logger().warning("asked to drain", by=read_asked(incoming.payload).by or "a client")
            leave()
            # The subscription's callback must not wait for the connection.
            tasks.start_soon(answer, incoming)

        try:
            async with bus.serve(f"drain.{current().name}", asked):
                await anyio.sleep_forever()
        except BrokerError as error:
            # The broker's permissions were written by an older version: signals still work.
            logger().info("clients cannot ask this worker to leave", reason=str(error))


def named(workers: Sequence[Heartbeat], names: Iterable[str]) -> list[Heartbeat]:
    """Find workers by name: an id, a kind (``agent``), a pool (``agent:NAME`` or ``NAME``), or a host.

    Raises:
        UsageError: no worker has the name.
    """
    chosen: dict[str, Heartbeat] = {}
    for name in names:
        found = [worker for worker in workers if name in _names(worker)]
        if not found:
            known = sorted({known for worker in workers for known in _names(worker)})
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean '{near[0]}'?" if near else "; 'gym-runtime status' lists the workers"
            raise UsageError(f"there is no worker, pool or host '{name}'{hint}")
        chosen |= {worker.worker: worker for worker in found}
    return list(chosen.values())


def _names(worker: Heartbeat) -> set[str]:
    pools = {f"{worker.kind}:{pool}" for pool in worker.pools}
    return {worker.worker, worker.kind, worker.host, *pools, *worker.pools}


async def drain(bus: Bus, workers: Iterable[Heartbeat]) -> dict[str, calls.Draining]:
    """Ask workers to leave, all at once; returns their answers by worker id, without workers already gone.

    Raises:
        GymError: a worker did not answer within `DRAIN_ANSWER_S`, or these credentials may not ask; the
            others may drain all the same.
    """
    answers: dict[str, calls.Draining] = {}
    failures: list[GymError] = []
    said = encode_asked(asked_here())

    async def ask(worker: Heartbeat) -> None:
        try:
            data = await bus.request(
                f"drain.{worker.name}", said, deadline_s=clock.monotonic() + DRAIN_ANSWER_S
            )
            answers[worker.worker] = calls.decode_draining(data)
        except NoWorker:
            # It has left already, which is what was wanted.
            return
        except DeadlineExceeded:
            failures.append(
                DeadlineExceeded(
                    f"{worker.kind} worker {worker.worker} on {worker.host} did not answer within "
                    f"{DRAIN_ANSWER_S:.0f} s: it is frozen, or older than 'gym-runtime drain'; "
                    "signal its process"
                )
            )
        except GymError as error:
            failures.append(error)

    async with anyio.create_task_group() as tasks:
        for worker in workers:
            tasks.start_soon(ask, worker)
    # Raised after all were asked: a worker that does not answer must not keep others from draining.
    if failures:
        raise failures[0]
    return answers

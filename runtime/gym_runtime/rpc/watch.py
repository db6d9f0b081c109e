"""Which members are alive: each follower keeps a list of all, with little traffic.

Members announce themselves when they join, change and leave (`gym_runtime.rpc.members`); every follower
hears that. Each member has one watcher: a follower, found by consistent hashing over the common list, which
asks the member every `MEMBER_ASKED_S`. After `MEMBER_MISSES` questions without an answer, the watcher
declares the member gone, to all. Watchers are members and watched like others. So
the traffic grows with the number of members, not with members times followers.

The followers need no consensus. While two lists differ, a member may have two watchers or none. A member that
no follower asks announces itself again, and so does, at once, a live member that was declared gone. A worker
that did not answer a caller is watched by that caller too, until it answers or is gone. While two brokers are
cut off from each other, followers on each side ask the members there and declare all others gone; then no
member announces itself. So followers ask some of those that were declared gone again now and then, and
call the roll if one answers.

A list is not stored: a new follower gets it from another follower (``members.<kind>``), and the first one
calls the roll. Agent workers and gateways are followers; only agent workers are known to the others.
"""

from __future__ import annotations

import math
import random
from bisect import bisect
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, suppress
from zlib import crc32

import anyio
import msgspec

from gym_runtime import clock
from gym_runtime.bus.interface import Bus, Incoming
from gym_runtime.errors import UNREADABLE, DeadlineExceeded, GymError, NoWorker
from gym_runtime.logs import logger
from gym_runtime.rpc.members import HEARTBEATS, Heartbeat, decode_heartbeat, listed
from gym_runtime.rpc.registry import WorkerRegistry, place_among, remember
from gym_runtime.timing import (
    CLIENT_ASKED_S,
    CLIENT_MISSES,
    MEMBER_AGAIN_S,
    MEMBER_ANSWER_S,
    MEMBER_ASKED_S,
    MEMBER_MISSES,
    ROLL_CALL_S,
)

LISTS_COMPARED_S = 60.0
"""How often a follower compares its list with another follower's, for announcements that the connection
lost. Every comparison moves the whole list, so it is rare."""
SOUGHT = 8
"""How many of the members that were declared gone a follower asks with each comparison. One that answers
suffices for the whole system."""
MEMBER_TICK_S = 0.1
"""Changes that come within this time are handled together, so that a thousand joins do not cost a thousand
new assignments."""

KINDS = ("agent", "resource", "model", "client")
ASKED_TOGETHER = 16
"""How many questions leave in one write. Fewer writes cost the broker less; more questions in one would block
the event loop."""
_encode = msgspec.json.Encoder().encode


def _interval_s(member: str) -> float:
    return CLIENT_ASKED_S if member.startswith("client.") else MEMBER_ASKED_S


class Members:
    """One follower's list, and its share of the watch.

    Args:
        kinds: the kinds of the members that it lists; empty for all.
        own: the worker id of the agent worker that this follower is; empty for one that is not announced.
        watches: it watches its share, and gives its list to others. A follower without this only listens,
            and asks members that did not answer it; it needs fewer permissions.

    Attributes:
        views: the list, by kind.
    """

    def __init__(self, bus: Bus, *kinds: str, own: str = "", watches: bool = True) -> None:
        self.views = {kind: WorkerRegistry(kind, self._note_change) for kind in kinds or KINDS}
        self._watches = watches
        # A follower that is not announced is in its own ring only: it watches beside the real watcher.
        self._own = f"agent.{own}" if own else f"follower.{random.getrandbits(64):x}"
        self._bus = bus
        # When each member is asked next; infinite while it is being asked.
        self._schedule: dict[str, float] = {}
        self._moved = True
        self._wake = anyio.Event()
        self._called = False
        self._left: set[str] = set()
        # Those that left by themselves are not among them.
        self._declared_gone: dict[str, Heartbeat | None] = {}
        self._behind = anyio.Event()

    async def follow(self) -> None:
        """Keep the list current, and watch, until cancelled."""
        # A follower that only listens may subscribe to the kinds that it asks, and to nothing else.
        subjects = [">"] if self._watches else [f"{kind}.*" for kind in self.views]
        async with AsyncExitStack() as stack:
            tasks = await stack.enter_async_context(anyio.create_task_group())
            # Before the list is fetched, so that no change is missed meanwhile.
            for subject in subjects:
                await stack.enter_async_context(self._bus.serve(f"join.{subject}", self._on_join))
                await stack.enter_async_context(self._bus.serve(f"gone.{subject}", self._on_gone))
            if self._watches:
                await stack.enter_async_context(self._bus.serve("call", self._on_call))
            tasks.start_soon(self._watch)
            # Without another follower there is no list, and a listener needs none without agent workers.
            if not await self._fetch_all() and self._watches:
                await self._call_the_roll()

            def asked(incoming: Incoming) -> None:
                tasks.start_soon(self._send_list, incoming)

            if self._watches:
                # `queue`: the broker chooses one follower. Not before the own list is complete.
                await stack.enter_async_context(self._bus.serve("members.*", asked, queue="members"))
            await self._compare()

    # -- the list -------------------------------------------------------------------------------------

    def learn(self, heartbeat: Heartbeat) -> None:
        """A member reported its state."""
        self._declared_gone.pop(heartbeat.name, None)
        view = self.views.get(heartbeat.kind)
        if view is not None:
            view.learn(heartbeat)

    def _forget(self, name: str) -> None:
        kind, _, worker = name.partition(".")
        if kind in self.views:
            self.views[kind].forget(worker)

    def _on_join(self, incoming: Incoming) -> None:
        heartbeat = HEARTBEATS.read(incoming)
        if heartbeat is not None:
            self._left.discard(heartbeat.name)
            self.learn(heartbeat)

    def _on_gone(self, incoming: Incoming) -> None:
        # From the subject, because a watcher that declares a member gone sends no payload.
        name = incoming.subject.partition(".")[2]
        self._left.add(name)
        self._forget(name)
        if not incoming.payload:
            remember(self._declared_gone, name, None)

    def _on_call(self, _: Incoming) -> None:
        self._called = True

    async def _send_list(self, incoming: Incoming) -> None:
        view = self.views.get(incoming.subject.partition(".")[2])
        with suppress(GymError):
            await self._bus.publish(incoming.reply, _encode([] if view is None else view.alive()))

    async def _fetch_all(self) -> bool:
        """Take over another follower's list; False if there is no other follower."""
        said = ""
        while True:
            # A list that was written before a member left must not bring it back.
            self._left.clear()
            try:
                for kind in self.views:
                    await self._adopt(kind, await listed(self._bus, kind))
            except NoWorker:
                return False
            except (GymError, *UNREADABLE) as error:
                if str(error) != said:  # an outage may last for hours
                    said = str(error)
                    logger().warning("the list of members was not read", error=said)
                await anyio.sleep(MEMBER_ANSWER_S)
            else:
                return True

    async def _adopt(self, kind: str, others: list[Heartbeat]) -> None:
        view = self.views[kind]
        for heartbeat in others:
            if not view.knows(heartbeat.worker) and heartbeat.name not in self._left:
                self.learn(heartbeat)
        theirs = {heartbeat.worker for heartbeat in others}
        for heartbeat in view.alive():
            if heartbeat.worker not in theirs:
                # One of both lists is wrong; the member knows which.
                await self._verify(view, heartbeat)

    async def _verify(self, view: WorkerRegistry, heartbeat: Heartbeat) -> None:
        try:
            await self._ask_once(heartbeat.name)
        except (NoWorker, DeadlineExceeded):
            view.lose(heartbeat.worker)

    async def _ask_once(self, name: str) -> None:
        await self._bus.request(f"alive.{name}", b"", deadline_s=clock.monotonic() + MEMBER_ANSWER_S)

    async def _seek(self) -> None:
        """Call the roll if a member that was declared gone is alive: others may be as well."""
        names = list(self._declared_gone)
        for name in random.sample(names, min(SOUGHT, len(names))):
            with suppress(GymError):
                await self._ask_once(name)
                await self._bus.publish("call", b"")
                return

    async def _call_the_roll(self) -> None:
        # If another follower has called the roll meanwhile, its answers reach this one, too.
        if not self._called:
            with suppress(GymError):
                await self._bus.publish("call", b"")
        await anyio.sleep(ROLL_CALL_S)

    async def _compare(self) -> None:
        """Compare the list with another follower's now and then, and after the connection broke."""
        while True:
            with anyio.move_on_after(LISTS_COMPARED_S * random.uniform(0.5, 1.5)):
                await self._behind.wait()
                await anyio.sleep(MEMBER_ANSWER_S)
            self._behind = anyio.Event()
            await self._fetch_all()
            if self._watches:
                await self._seek()

    # -- the watch ------------------------------------------------------------------------------------

    def _note_change(self) -> None:
        self._moved = True
        self._wake.set()

    async def _watch(self) -> None:
        async with anyio.create_task_group() as tasks:
            while True:
                # Before the work, so that a change during it ends the next wait at once.
                self._wake = anyio.Event()
                if self._moved:
                    self._moved = False
                    self._assign()
                now_s = anyio.current_time()
                next_s = now_s + MEMBER_ASKED_S
                for name, due_s in self._schedule.items():
                    if due_s <= now_s:
                        self._schedule[name] = math.inf
                        tasks.start_soon(self._ask, name, now_s)
                        next_s = min(next_s, now_s + _interval_s(name))
                    else:
                        next_s = min(next_s, due_s)
                with anyio.move_on_after(max(MEMBER_TICK_S, next_s - now_s)):
                    await self._wake.wait()
                    await anyio.sleep(MEMBER_TICK_S)

    def _assign(self) -> None:
        """Determine which members this follower watches."""
        agents = self.views["agent"].alive() if self._watches else []
        ring = ring_of({*(agent.name for agent in agents), self._own})
        place = place_among(agents, self._own)
        now_s = anyio.current_time()
        groups = 1 + sum(len(view.alive()) for view in self.views.values()) // ASKED_TOGETHER
        schedule: dict[str, float] = {}
        for kind, view in self.views.items():
            view.take_place(place)
            for heartbeat in view.alive():
                name = heartbeat.name
                if self._watches and watcher(ring, name) == self._own:
                    # A group of them is asked at the same moment, the groups one after the other.
                    group = len(schedule) // ASKED_TOGETHER / groups
                    # Members that were ours keep their time, and an open question stays one.
                    schedule[name] = self._schedule.get(name, now_s + group * _interval_s(name))
            for worker in view.missing:
                name = f"{kind}.{worker}"
                schedule[name] = self._schedule.get(name, now_s)
        self._schedule = schedule

    async def _ask(self, name: str, began_s: float) -> None:
        """Ask one member until it answers or is declared lost."""
        client = name.startswith("client.")
        limit = CLIENT_MISSES if client else MEMBER_MISSES
        misses = 0
        while misses < limit:
            if not self._lists(name):
                # Another watcher declared it gone. Asking on would keep it from announcing itself again.
                return
            try:
                questions = 1 if client else limit - misses
                heartbeat = await answer(self._bus, name, questions, lambda: self._lists(name))
            except NoWorker:
                misses += 1
                if misses < limit:
                    await anyio.sleep(CLIENT_ASKED_S if client else MEMBER_AGAIN_S)
            except DeadlineExceeded:
                # A silent client is busy; or our own connection does not work.
                if client:
                    break
                if not await reaches_broker(self._bus):
                    self._behind.set()
                    break
                misses = limit
            except (GymError, *UNREADABLE):
                self._behind.set()
                break
            else:
                if self._lists(name):
                    self.learn(heartbeat)
                break
        else:
            self._forget(name)
            self._schedule.pop(name, None)
            if self._watches:
                with suppress(GymError):
                    await self._bus.publish(f"gone.{name}", b"")
        if name in self._schedule:
            self._schedule[name] = max(anyio.current_time(), began_s + _interval_s(name))

    def _lists(self, name: str) -> bool:
        kind, _, worker = name.partition(".")
        return self.views[kind].knows(worker) or worker in self.views[kind].missing


async def answer(bus: Bus, name: str, questions: int, wanted: Callable[[], bool]) -> Heartbeat:
    """Ask a member up to ``questions`` times, once each `MEMBER_ANSWER_S`, while its answer is ``wanted``.

    Earlier questions stay open while others are asked, because behind a slow link answers take longer. There
    are several questions, because a question that is sent while the member reconnects is lost.

    Raises:
        Exception: the failure of a question: a `GymError`, or one of `UNREADABLE`.
    """
    answers: list[Heartbeat] = []
    failures: list[Exception] = []
    deadline_s = clock.monotonic() + questions * MEMBER_ANSWER_S

    async def ask(over: anyio.CancelScope) -> None:
        try:
            answers.append(decode_heartbeat(await bus.request(f"alive.{name}", b"", deadline_s=deadline_s)))
        except (GymError, *UNREADABLE) as error:
            failures.append(error)
        # The first answer, or failure, ends the other questions as well.
        over.cancel()

    async with anyio.create_task_group() as tasks:
        for _ in range(questions):
            tasks.start_soon(ask, tasks.cancel_scope)
            await anyio.sleep(MEMBER_ANSWER_S)
            if not wanted():
                break
    # An answer counts more than a failure that came with it.
    if answers:
        return answers[0]
    raise failures[0]


async def reaches_broker(bus: Bus) -> bool:
    """Whether the broker answers us; "no responders" for a name without listeners is an answer."""
    try:
        await bus.request("alive.unknown.unknown", b"", deadline_s=clock.monotonic() + MEMBER_ANSWER_S)
    except NoWorker:
        return True
    except GymError:
        pass
    return False


def watcher(ring: list[tuple[int, str]], member: str) -> str | None:
    """The watcher of a member: the one that follows it on the ring. None if there is no other follower."""
    # `crc32`, not `hash`: Python's differs from process to process, and all followers must agree.
    start = bisect(ring, (crc32(member.encode()), member))
    # Two steps: no follower watches itself.
    for step in range(2):
        name = ring[(start + step) % len(ring)][1]
        if name != member:
            return name
    return None


def ring_of(followers: Iterable[str]) -> list[tuple[int, str]]:
    """Followers in the order of their hashes."""
    return sorted((crc32(name.encode()), name) for name in followers)

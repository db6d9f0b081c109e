"""Leases in simulated time: dead and frozen workers, a provider that loses answers, clocks that jump."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from gym_boxes import BoxGone, BoxRefused, BoxUnknown, Found, Leases, Pace, Ran
from gym_boxes.permits import LONGEST_S, Permits
from gym_boxes.reaper import judged
from gym_boxes.slots import Seen, Slot
from gym_runtime import GymError, ServiceUnavailable, clock
from gym_runtime.errors import Fenced
from gym_testing.memory import MemoryBroker, MemoryBus
from tables import table

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]
PACE = Pace()
ACCOUNT = "acc"


class Service:
    """A provider's side: boxes that expire, answers that get lost, boxes that appear late."""

    def __init__(self, seed: int, faults: float, *, expire: bool = True) -> None:
        self.expire = expire
        self.chance, self.faults = random.Random(seed), faults
        self.boxes: dict[str, tuple[str, float, float]] = {}
        self.made = self.ended = self.most = 0
        self.times: list[float] = []
        self.templates: list[str] = []

    def happens(self) -> bool:
        return self.chance.random() < self.faults

    def alive(self) -> dict[str, tuple[str, float, float]]:
        now_s = clock.monotonic()
        if self.expire:
            self.boxes = {box: about for box, about in self.boxes.items() if about[2] > now_s}
        return self.boxes


class Wire:
    """What one worker has of the service; once ``dead`` nothing gets through."""

    def __init__(self, service: Service) -> None:
        self.service, self.dead = service, False

    async def _passes(self) -> None:
        if self.dead:
            await anyio.sleep_forever()
        await anyio.sleep(self.service.chance.uniform(0.01, 0.5))
        if self.dead:
            await anyio.sleep_forever()

    async def create(self, template: str, *, label: str, life_s: float, internet: bool = False) -> str:
        await self._passes()
        service, now_s = self.service, clock.monotonic()
        if service.happens():
            raise BoxRefused("429", after_s=2.0)
        if service.happens():
            raise BoxUnknown("the answer is lost, and nothing was made")
        service.made += 1
        late_s = service.chance.uniform(0, PACE.late_s * 0.9) if service.happens() else 0.0
        box = f"b{service.made:05}"
        service.boxes[box] = (label, now_s + late_s, now_s + life_s)
        service.times.append(now_s)
        service.most = max(service.most, len(service.alive()))
        if late_s or service.happens():
            raise BoxUnknown("the answer is lost")
        await self._passes()
        return box

    async def exec(self, box: str, script: str, *, timeout_s: float, stdin: bytes = b"") -> Ran:
        await self._passes()
        if box not in self.service.alive():
            raise BoxGone(box)
        return Ran(exit_code=0, stdout=b"", stderr=b"")

    async def put(self, box: str, path: str, data: bytes) -> None: ...
    async def get(self, box: str, path: str, *, most_bytes: int = 1 << 30) -> bytes:
        return b""

    async def snapshot(self, box: str) -> str:
        self.service.templates.append(f"of-{box}")
        return f"of-{box}"

    async def forget(self, template: str) -> None:
        self.service.templates.remove(template)

    async def renew(self, box: str, life_s: float) -> None:
        await self._passes()
        if box not in self.service.alive():
            raise BoxGone(box)
        if self.service.happens():
            raise BoxUnknown("half open")
        label, seen_s, _ = self.service.boxes[box]
        self.service.boxes[box] = (label, seen_s, clock.monotonic() + life_s)

    async def end(self, box: str) -> None:
        await self._passes()
        self.service.ended += self.service.boxes.pop(box, None) is not None
        if self.service.happens():
            raise BoxUnknown("the answer is lost")

    async def list(self, prefix: str) -> Sequence[Found]:
        await self._passes()
        if self.service.happens():
            raise BoxUnknown("garbage")
        now_s = clock.monotonic()
        return [
            Found(box, label)
            for box, (label, seen_s, _) in self.service.alive().items()
            if label.startswith(prefix) and seen_s <= now_s
        ]

    async def aclose(self) -> None: ...


class Worker:
    """A worker that takes, uses and ends leases until it is killed."""

    def __init__(self, bus: MemoryBus, service: Service, most: int, per_s: float) -> None:
        self.bus, self.wire = bus, Wire(service)
        self.leases = Leases(bus, self.wire, account=ACCOUNT, most=most, per_s=per_s)
        self.scope = anyio.CancelScope()

    async def live(self, names: Sequence[str], busy: set[str], chance: random.Random) -> None:
        with self.scope:
            async with self.leases as leases:
                while True:
                    name = chance.choice(names)
                    if name in busy:
                        await anyio.sleep(1)
                        continue
                    busy.add(name)
                    try:
                        lease = await leases.take(name, "t", deadline_s=clock.monotonic() + 300)
                        for _ in range(chance.randrange(5)):
                            await lease.exec("true", timeout_s=5)
                            await anyio.sleep(chance.uniform(0, 60))
                        await lease.end()
                    except GymError:
                        await anyio.sleep(1)
                    finally:
                        busy.discard(name)

    def kill(self) -> None:
        self.wire.dead = True
        self.bus.cut()
        self.scope.cancel()


@asynccontextmanager
async def worker(
    broker: MemoryBroker, service: Service, most: int, per_s: float = 10.0
) -> AsyncGenerator[Worker]:
    async with broker.connect() as bus:
        one = Worker(bus, service, most, per_s)
        async with one.leases:
            yield one


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
async def test_no_box_is_lost_and_the_budget_holds(seed: int) -> None:
    # Boxes of some services end by themselves, those of others do not.
    chance, service = random.Random(seed), Service(seed, faults=0.2, expire=seed % 2 == 0)
    broker, most, per_s = MemoryBroker(seed=seed), 3, 2.0
    names, busy = [f"r{number}" for number in range(12)], set[str]()
    async with anyio.create_task_group() as tasks:
        workers: list[Worker] = []

        async def live() -> None:
            async with broker.connect() as bus:
                workers.append(Worker(bus, service, most, per_s))
                await workers[-1].live(names, busy, chance)

        for _ in range(8):
            tasks.start_soon(live)
        await anyio.sleep(1)
        for kill in range(60):
            await anyio.sleep(chance.uniform(0, 60))
            living = [one for one in workers if not one.wire.dead]
            chance.choice(living).kill()
            tasks.start_soon(live)
            if kill % 10 == 5:  # an administrator sets the time of day
                clock_jump(chance.uniform(-1e6, 1e6))
        await anyio.sleep(1)
        for one in workers:
            one.kill()
    assert service.made > 20
    assert service.most <= most
    gaps = [later - before for before, later in zip(service.times, service.times[1:], strict=False)]
    # Each permit is used within the half second that a call takes.
    assert min(gaps) > 1 / per_s - 0.5
    assert busy == set()
    # A worker that has nothing to do is enough to end all that the dead ones have left.
    service.faults = 0.0
    async with worker(broker, service, most) as last:
        # Each of four looks comes up to 1.2 periods after what it waits for.
        await anyio.sleep(PACE.lease_s + PACE.late_s + 6 * PACE.period_s)
        slots = await last.leases.book.slots()
    assert service.alive() == {}
    assert {seen.slot.state for seen in slots.values()} == {"free"}


async def test_warm_boxes_wait_are_taken_made_again_and_give_way() -> None:
    service, broker = Service(1, faults=0.0), MemoryBroker(seed=1)

    def leases(bus: MemoryBus, warm: dict[str, int]) -> Leases:
        return Leases(bus, Wire(service), account=ACCOUNT, most=4, per_s=10.0, warm=warm)

    async def warm_ones(one: Leases) -> list[str]:
        slots = [seen.slot for seen in (await one.book.slots()).values()]
        return sorted(
            slot.template for slot in slots if slot.state == "held" and slot.name.startswith("warm ")
        )

    async with broker.connect() as bus, broker.connect() as other_bus:
        async with leases(bus, {"t": 2}) as one, leases(other_bus, {}) as other:
            await anyio.sleep(30)
            assert await warm_ones(one) == ["t", "t"]
            waiting = {seen.slot.box for seen in (await one.book.slots()).values() if seen.slot.box}
            taken = await other.take("r1", "t", deadline_s=clock.monotonic() + 60)
            assert taken.box in waiting, "nothing was made for it"
            assert not taken.resumed
            await anyio.sleep(PACE.renew_s + 1)  # its maker has noticed
            await taken.exec("true", timeout_s=5)
            await taken.renew()
            await anyio.sleep(30)
            assert await warm_ones(one) == ["t", "t"], "another one was made"
            connected = await other.take("r2", "t", deadline_s=clock.monotonic() + 60, internet=True)
            assert await warm_ones(one) == ["t", "t"], "warm ones have no internet"
            # The budget of four is spent. One gives way.
            await other.take("r3", "u", deadline_s=clock.monotonic() + 60)
            assert await warm_ones(one) == ["t"]
            await anyio.sleep(60)
            assert (await warm_ones(one), service.most) == (["t"], 4)
            await connected.end()
            await anyio.sleep(30)
            assert await warm_ones(one) == ["t", "t"]
        assert service.alive() == {}, "a worker that ends, ends those that it has made"


def clock_jump(by_s: float) -> None:
    import asyncio

    loop: Any = asyncio.get_running_loop()
    loop.set_clock(clock.now() + by_s)


async def test_a_later_owner_gets_the_box_and_the_earlier_one_is_fenced() -> None:
    service, broker = Service(0, 0.0), MemoryBroker()
    async with worker(broker, service, 2) as early, worker(broker, service, 2) as late:
        one, two = early.leases, late.leases
        first = await one.take("r", "t", deadline_s=clock.monotonic() + 60)
        second = await two.take("r", "t", deadline_s=clock.monotonic() + 60)
        assert (second.box, second.resumed, first.resumed) == (first.box, True, False)
        with pytest.raises(Fenced):
            await first.renew()
        with pytest.raises(Fenced):
            await first.exec("true", timeout_s=5)
        await first.end()  # ends nothing
        await anyio.sleep(5 * PACE.lease_s)
        assert (await second.exec("true", timeout_s=5)).exit_code == 0
        # The provider has lost it: the next owner gets another one.
        service.boxes.clear()
        with pytest.raises(BoxGone):
            await second.exec("true", timeout_s=5)
        third = await one.take("r", "t", deadline_s=clock.monotonic() + 600)
        assert third.box != second.box
    assert service.alive() == {}


async def test_a_frozen_worker_is_fenced_when_it_wakes() -> None:
    service, broker = Service(0, 0.0), MemoryBroker()
    async with worker(broker, service, 1) as frozen, worker(broker, service, 1) as other:
        lease = await frozen.leases.take("r", "t", deadline_s=clock.monotonic() + 60)
        frozen.bus.freeze()
        # Its name is free again only when the box is gone: nothing runs in one box twice.
        later = await other.leases.take("s", "t", deadline_s=clock.monotonic() + 3 * PACE.lease_s)
        assert later.box != lease.box
        assert list(service.alive()) == [later.box]
        frozen.bus.thaw()
        with pytest.raises((Fenced, BoxGone)):
            await lease.exec("true", timeout_s=5)


async def test_forks_count_against_the_budget_and_fail_as_a_whole() -> None:
    service, broker = Service(0, 0.0), MemoryBroker()
    async with worker(broker, service, 4) as one:
        leases = one.leases
        lease = await leases.take("r", "t", deadline_s=clock.monotonic() + 60)
        forks = await lease.fork(["a", "b", "c"], deadline_s=clock.monotonic() + 60)
        assert len(service.alive()) == 4
        with pytest.raises(ServiceUnavailable, match="none of the 4 boxes"):
            await forks[0].fork(["d"], deadline_s=clock.monotonic() + 60)
        for fork in forks[:2]:
            await fork.end()
        with pytest.raises(ServiceUnavailable):
            await lease.fork(["d", "e", "f"], deadline_s=clock.monotonic() + 60)
        assert len(service.alive()) == 2
        # Forks that failed as a whole leave no template; the others' is there until the last has ended.
        assert service.templates == [f"of-{lease.box}"]
        await forks[2].end()
        assert not service.templates
    assert (service.alive(), service.made, service.ended) == ({}, 6, 6)


@table(
    ("slot", "label", "box", "unchanged_s", "ends", "becomes"),
    [
        (Slot(state="held", generation=3, box="b"), "acc.0.3", "b", 0, False, None),
        (Slot(state="held", generation=3, box="b"), "acc.0.3", "twin", 0, True, None),
        (Slot(state="held", generation=3, box="b"), "acc.0.2", "old", 0, True, None),
        (Slot(state="held", generation=3, box="b"), "acc.0.4", "newer", 0, False, None),
        (Slot(state="held", generation=3, box="b"), "acc.0.3", "b", 121, False, "ending"),
        (Slot(state="creating", generation=3), "acc.0.3", "b", 0, False, None),
        (Slot(state="creating", generation=3), "acc.0.3", "b", 121, False, "ending"),
        (Slot(state="ending", generation=3), "acc.0.3", "b", 999, True, None),
        (Slot(state="ending", generation=3), "acc.0.2", "b", 0, True, "free"),
        (Slot(state="ending", generation=3, doubtful=True), "other.0.3", "b", 29, False, None),
        (Slot(state="ending", generation=3, doubtful=True), "other.0.3", "b", 31, False, "free"),
        (Slot(generation=3), "acc.0.3", "b", 0, True, None),
        (Slot(generation=3), "acc.9.3", "b", 0, False, None),
        (Slot(generation=3), "acc.made.byhand", "b", 999, False, None),
    ],
)
def test_what_a_reaper_decides(
    slot: Slot, label: str, box: str, unchanged_s: float, ends: bool, becomes: str | None
) -> None:
    decided = judged([Found(box, label)], {0: Seen(slot, 1)}, {0: unchanged_s}, ACCOUNT, PACE)
    assert decided.end == ([box] if ends else [])
    assert {number: one.state for number, one in decided.store.items()} == (
        {} if becomes is None else {0: becomes}
    )
    assert all(one.generation == slot.generation for one in decided.store.values())


@pytest.mark.parametrize("after_s", [1e9, float("inf")])
async def test_a_service_that_never_wants_to_be_asked_again_holds_creates_back_for_a_while(
    after_s: float,
) -> None:
    async with MemoryBroker().connect() as bus:
        permits = Permits(bus, "runs.boxes.acc.permit", 2.0)
        await permits.refused(after_s)
        began_s = clock.monotonic()
        await permits.take()
        assert clock.monotonic() - began_s <= LONGEST_S + 1

"""Leases that are renewed and ended at the same time, and boxes that appear after their container's end."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import anyio
import pytest
from boxes.test_leases import ACCOUNT, PACE, Service, Wire
from gym_boxes import BoxUnknown, Leases, Ran, containers
from gym_boxes.containers import LeasedBoxes
from gym_boxes.slots import Slot
from gym_runtime import GymError, clock
from gym_sandbox import Container, elsewhere
from gym_sandbox.processes import EndOfProcess
from gym_sandbox.sandbox_errors import StartError
from gym_testing.memory import MemoryBroker
from gym_testing.virtual_clock import BACKEND

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", [BACKEND])]


class HalfOpen(Wire):
    """A provider that takes its time to renew, and then does not say whether it has."""

    async def renew(self, box: str, life_s: float) -> None:
        await anyio.sleep(30)
        raise BoxUnknown("it did not answer within 30 s")


async def test_a_provider_that_does_not_answer_costs_no_lease() -> None:
    service, broker = Service(0, 0.0, expire=False), MemoryBroker()
    async with broker.connect() as bus, broker.connect() as other:
        one = Leases(bus, HalfOpen(service), account=ACCOUNT, most=16, per_s=10.0)
        async with one, Leases(other, Wire(service), account=ACCOUNT, most=16, per_s=10.0):
            for number in range(12):
                await one.take(f"r{number}", "t", deadline_s=clock.monotonic() + 60)
            await anyio.sleep(5 * PACE.lease_s)
            assert (len(service.boxes), len(one.held)) == (12, 12)


async def test_a_lease_that_ends_while_it_is_renewed_ends_its_box(monkeypatch: pytest.MonkeyPatch) -> None:
    service, broker = Service(0, 0.0, expire=False), MemoryBroker()
    async with (
        broker.connect() as bus,
        Leases(bus, Wire(service), account=ACCOUNT, most=4, per_s=10.0) as leases,
    ):
        lease = await leases.take("r", "t", deadline_s=clock.monotonic() + 60)
        store = leases.book.store

        async def slow(number: int, slot: Slot, sequence: int) -> int | None:
            monkeypatch.undo()
            stored = await store(number, slot, sequence)
            await anyio.sleep(1)
            return stored

        async def renew() -> None:
            with suppress(GymError):
                await lease.renew()

        monkeypatch.setattr(leases.book, "store", slow)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(renew)
            await anyio.sleep(0.3)
            await lease.end()
        assert service.boxes == {}
        assert {seen.slot.state for seen in (await leases.book.slots()).values()} == {"free"}


class Late(Wire):
    async def create(self, template: str, **asked: Any) -> str:
        await anyio.sleep(20)
        return await super().create(template, **asked)


def offer(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """The provider ``p``."""

    def plugins(_: str) -> dict[str, None]:
        return {"p": None}

    def provider(_: str) -> Wire:
        return wire

    monkeypatch.setattr(containers, "plugins", plugins)
    monkeypatch.setattr(containers, "provider", provider)


async def test_a_container_that_is_closed_while_it_starts_leaves_no_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service, broker = Service(0, 0.0), MemoryBroker()
    offer(Late(service), monkeypatch)
    async with broker.connect() as bus, anyio.create_task_group() as tasks:
        with elsewhere.offer(LeasedBoxes(bus, tasks)):
            container = Container("image", directory="/w", provider="p")
            refused: list[BaseException] = []

            async def command() -> None:
                try:
                    await container.run("true", timeout_s=5)
                except StartError as error:
                    refused.append(error)

            async with anyio.create_task_group() as running:
                running.start_soon(command)
                await anyio.sleep(5)
                await container.close()
            await anyio.sleep(3600)
            assert (service.made, service.alive(), len(refused)) == (1, {}, 1)
        tasks.cancel_scope.cancel()


async def test_what_waits_for_a_request_ends_with_its_box(monkeypatch: pytest.MonkeyPatch) -> None:
    service, broker = Service(0, 0.0), MemoryBroker()
    offer(Wire(service), monkeypatch)
    async with broker.connect() as bus, anyio.create_task_group() as tasks:
        shell = LeasedBoxes(bus, tasks).start("p", "image", ["sh"], "none")
        assert await shell.read() == b"ready\n"

        async def read() -> None:
            with pytest.raises(EndOfProcess):
                await shell.read()

        with anyio.fail_after(60):
            async with anyio.create_task_group() as reading:
                reading.start_soon(read)
                await anyio.sleep(1)
                await shell.close()
        assert service.alive() == {}
        tasks.cancel_scope.cancel()


class Talkative(Wire):
    """Its boxes say that their answers are in files."""

    most_bytes = 0

    async def exec(self, box: str, script: str, *, timeout_s: float, stdin: bytes = b"") -> Ran:
        return Ran(exit_code=0, stdout=b"in /f\n", stderr=b"")

    async def get(self, box: str, path: str, *, most_bytes: int = 1 << 30) -> bytes:
        self.most_bytes = most_bytes
        return b"ready\nanswer\n"


async def test_no_more_is_fetched_than_a_command_may_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = Talkative(Service(0, 0.0))
    offer(wire, monkeypatch)
    async with MemoryBroker().connect() as bus, anyio.create_task_group() as tasks:
        shell = LeasedBoxes(bus, tasks).start("p", "image", ["sh"], "none")
        assert await shell.read() == b"ready\n"
        await shell.write(b"5 1000 0 4\ntrue")
        assert await shell.read() == b"answer\n"
        assert 3 * 1000 < wire.most_bytes < 10_000
        await shell.close()
        tasks.cancel_scope.cancel()

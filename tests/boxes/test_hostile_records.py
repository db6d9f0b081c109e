"""Records that a peer of the broker has written: they reach nothing but boxes, and stop no worker."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from aiohttp import web
from boxes.hostile_service import answering
from boxes.test_leases import ACCOUNT, Service, Wire
from gym_boxes import BoxGone, Found, Leases, Pace, engines
from gym_boxes.e2b import E2B
from gym_boxes.engines import Engine
from gym_boxes.kubernetes import Kubernetes
from gym_boxes.reaper import Reaper, judged
from gym_boxes.slots import Seen, Slot
from gym_runtime import UsageError, clock
from gym_testing.memory import MemoryBroker
from gym_testing.virtual_clock import BACKEND

pytestmark = pytest.mark.anyio
SLOT = f"runs.boxes.{ACCOUNT}.slot"
RECORDS = (b'{"state":"?"}', b"\xff", b"[" * 5000, b'{"generation":1e999}', b'{"state":"%s"}' % (b"x" * 9000))
NAMES = ("--all", "../templates/production", "a/b", "a\n", "x" * 300 + "/")


class Ends(Wire):
    """A wire that notes which boxes are to be ended."""

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        self.ends: list[str] = []

    async def end(self, box: str) -> None:
        self.ends.append(box)
        await super().end(box)


@pytest.mark.parametrize("anyio_backend", [BACKEND])
@pytest.mark.parametrize("name", NAMES)
async def test_a_record_with_another_things_name_ends_nothing(name: str) -> None:
    service, broker = Service(0, 0.0), MemoryBroker()
    async with broker.connect() as bus, broker.connect() as peer:
        slot = {"state": "ending", "generation": 1, "box": name}
        await peer.append(f"{SLOT}.0", msgspec.json.encode(slot), expect=0)
        wire = Ends(service)
        leases = Leases(bus, wire, account=ACCOUNT, most=2, per_s=10.0)
        await Reaper(leases.book, wire, Pace()).reap()
        assert wire.ends == []


@pytest.mark.parametrize("anyio_backend", [BACKEND])
@pytest.mark.parametrize("record", RECORDS)
async def test_a_record_that_cannot_be_read_costs_its_slot_only(
    record: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    service, broker = Service(0, 0.0), MemoryBroker()
    async with broker.connect() as bus, broker.connect() as peer:
        await peer.append(f"{SLOT}.1", record, expect=0)
        await peer.append(f"runs.boxes.{ACCOUNT}.permit", record, expect=0)
        async with Leases(bus, Wire(service), account=ACCOUNT, most=3, per_s=10.0) as leases:
            taken = [await leases.take(f"r{one}", "t", deadline_s=clock.monotonic() + 60) for one in range(2)]
            await anyio.sleep(500)
            for lease in taken:
                assert (await lease.exec("true", timeout_s=5)).exit_code == 0
            assert sorted(leases.held) == [0, 2]
        (kept,) = await bus.latest(f"{SLOT}.1")
        assert kept.payload == record, "another version may be able to read it"
    said = "".join(capfd.readouterr())
    assert said.count("the record of a box cannot be read") == 1
    assert len(said) < 1000


@pytest.mark.parametrize("label", ["acc.².1", "acc.1.²", f"acc.1.{'0' * 5000}1", "acc.1", "acc.-1.1"])
def test_a_label_that_names_no_slot_belongs_to_no_worker(label: str) -> None:
    slots = {1: Seen(Slot(generation=9), 1)}
    assert judged([Found("b", "acc.1.1")], slots, {}, ACCOUNT, Pace()).end == ["b"]
    assert judged([Found("b", label)], slots, {}, ACCOUNT, Pace()).end == []


@pytest.mark.parametrize("anyio_backend", [BACKEND])
async def test_an_id_that_no_record_may_have_is_an_error_and_its_box_is_ended() -> None:
    service, broker = Service(0, 0.0), MemoryBroker()

    class Odd(Wire):
        async def create(self, template: str, **asked: Any) -> str:
            made = await super().create(template, **asked)
            service.boxes["a/b"] = service.boxes.pop(made)
            return "a/b"

    async with (
        broker.connect() as bus,
        Leases(bus, Odd(service), account=ACCOUNT, most=1, per_s=10.0) as leases,
    ):
        with pytest.raises(UsageError, match="must match"):
            await leases.take("r", "t", deadline_s=clock.monotonic() + 60)
        assert service.boxes == {}
        assert [seen.slot.state for seen in (await leases.book.slots()).values()] == ["free"]


async def test_an_engine_is_asked_for_its_boxes_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command is replaced, so that no container of this machine is in danger."""
    podman = tmp_path / "podman"
    podman.write_text(f'#!/bin/sh\nprintf "%s " "$@" >>{tmp_path}/asked\necho >>{tmp_path}/asked\n')
    podman.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(engines, "counts", bool)
    engine = Engine("podman")
    for name in ("--all", "database"):
        for call in (
            engine.end(name),
            engine.exec(name, "true", timeout_s=1),
            engine.get(name, "/f"),
            engine.snapshot(name),
            engine.renew(name, 1),
        ):
            with pytest.raises(BoxGone):
                await call
    assert not (tmp_path / "asked").exists()
    await engine.create("--privileged", label="a.1.1", life_s=1)
    await engine.forget("--all")
    asked = {line.partition(" ")[0]: line for line in (tmp_path / "asked").read_text().splitlines()}
    assert " -- --privileged sleep " in asked["run"]
    assert asked["rmi"] == "rmi --force -- --all "


async def test_a_service_is_asked_for_its_boxes_only() -> None:
    seen: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.raw_path)
        return web.json_response([])

    async with answering(answer) as url:
        e2b, pods = E2B("key", api_url=url), Kubernetes(url)
        await e2b.end("../templates/production")
        await pods.end("database")
        with pytest.raises(BoxGone):
            await pods.renew("database", 1)
        await pods.end("gym-/../../secrets")
        for provider in (e2b, pods):
            await provider.aclose()
    assert seen == [
        "/sandboxes/..%2Ftemplates%2Fproduction",
        "/api/v1/namespaces/default/pods/gym-%2F..%2F..%2Fsecrets",
    ]

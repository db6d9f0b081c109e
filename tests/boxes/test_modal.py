"""Boxes of Modal by its package, at a server with its gRPC services: what each refusal and loss means."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest
from boxes.modal_server import ModalServer
from gym_boxes import BoxGone, BoxRefused, BoxUnknown, Leases, Provider, modal, provider
from gym_runtime import UsageError, clock
from gym_runtime.bus import connect
from gym_runtime.system.private_broker import Broker

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture
async def service(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[ModalServer]:
    pytest.importorskip("modal", reason="needs pip install 'gym-runtime[modal]'")
    async with ModalServer().run() as server:
        monkeypatch.setenv("MODAL_SERVER_URL", server.url)
        monkeypatch.setenv("MODAL_TOKEN_ID", "id")
        monkeypatch.setenv("MODAL_TOKEN_SECRET", "secret")
        yield server


@pytest.fixture
async def boxes(service: ModalServer) -> AsyncGenerator[Provider]:
    async with aclosing(provider("modal")) as made:
        yield made


async def test_a_box_is_what_was_asked_for(service: ModalServer, boxes: Provider) -> None:
    await boxes.create("python:3.12", label="a.1.7", life_s=90)
    asked = service.asked[0].definition
    assert (asked.name, asked.timeout_secs, asked.idle_timeout_secs) == ("a.1.7", 86_400, 90)
    told = {tag.tag_name: tag.tag_value for tag in service.asked[0].tags}
    assert told == {"gym-account": "a", "gym-label": "a.1.7"}
    open_to_all = await boxes.create("python:3.12", label="a.2.1", life_s=60, internet=True)
    blocked, free = (one.definition.network_access.network_access_type for one in service.asked)
    assert blocked != free
    script = f"wc -c; : {'x' * 300_000}"
    done = await boxes.exec(open_to_all, script, timeout_s=30, stdin=b"y" * 3_000_000)
    assert done.stdout.split() == [b"3000000"]
    flooded = await boxes.exec(open_to_all, "head -c 3000000 /dev/zero", timeout_s=30)
    assert len(flooded.stdout) == modal.KEPT_BYTES
    for number in range(3, 6):
        await boxes.create("python:3.12", label=f"a.{number}.1", life_s=60)
    listed = {one.label for one in await boxes.list("a.")}
    assert listed == {"a.1.7", "a.2.1", "a.3.1", "a.4.1", "a.5.1"}, "over pages"


async def test_refusals_and_lost_answers(
    service: ModalServer, boxes: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    creates = service.faults["SandboxCreateV2"] = ["RESOURCE_EXHAUSTED", "INVALID_ARGUMENT", "LOST"]
    with pytest.raises(BoxRefused):
        await boxes.create("python:3.12", label="a.0.1", life_s=60)
    with pytest.raises(UsageError, match="does not take"):
        await boxes.create("python:3.12", label="a.0.1", life_s=60)
    assert not service.boxes
    box = await boxes.create("python:3.12", label="a.0.1", life_s=60)
    assert list(service.boxes) == [box], "the package asks again, and the name finds what was made"
    assert not creates

    monkeypatch.setattr(modal, "CREATE_S", 1.0)
    service.faults["SandboxCreateV2"] = ["HANGS"]
    with pytest.raises(BoxUnknown, match="within 1 s"):
        await boxes.create("python:3.12", label="a.1.1", life_s=60)
    async with aclosing(provider("modal")) as other:
        assert (await other.exec(box, "echo found", timeout_s=30)).stdout == b"found\n"
        await other.end(box)
        with pytest.raises(BoxGone):
            await boxes.exec(box, "true", timeout_s=30)
        with pytest.raises(BoxGone):
            await other.renew("sb-nothing", 60)
        await other.end("sb-nothing")

    monkeypatch.setenv("MODAL_TOKEN_SECRET", "wrong")
    async with aclosing(provider("modal")) as wrong:
        with pytest.raises(UsageError, match="MODAL_TOKEN_SECRET"):
            await wrong.list("a.")


async def test_leases_find_the_box_whose_answer_was_lost(
    service: ModalServer, boxes: Provider, broker: Broker
) -> None:
    service.faults["SandboxCreateV2"] = ["RESOURCE_EXHAUSTED", "LOST"]
    async with connect(broker.url) as bus, Leases(bus, boxes, account="m", most=2, per_s=50) as leases:
        async with leases.box("run.0.0", "python:3.12", deadline_s=clock.monotonic() + 60) as box:
            assert (await box.exec("echo leased", timeout_s=30)).stdout == b"leased\n"
            (fork,) = await box.fork(["run.0.1"], deadline_s=clock.monotonic() + 60)
            assert len(service.alive()) == 2
            await fork.end()
        assert not service.alive()


def test_without_the_package_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "modal", None)
    monkeypatch.setenv("MODAL_TOKEN_ID", "id")
    monkeypatch.setenv("MODAL_TOKEN_SECRET", "secret")
    with pytest.raises(UsageError, match=r"pip install 'gym-runtime\[modal\]'"):
        provider("modal")
    monkeypatch.delenv("MODAL_TOKEN_ID")
    with pytest.raises(UsageError, match="set MODAL_TOKEN_ID"):
        provider("modal")

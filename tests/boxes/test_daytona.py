"""Boxes of Daytona by its package, at a server with the published API: what each refusal and loss means."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest
from boxes.daytona_server import DaytonaServer
from gym_boxes import BoxGone, BoxRefused, BoxUnknown, Leases, Provider, daytona, provider
from gym_runtime import ResourceError, UsageError, clock
from gym_runtime.bus import connect
from gym_runtime.system.private_broker import Broker

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture
async def service() -> AsyncGenerator[DaytonaServer]:
    pytest.importorskip("daytona", reason="needs pip install 'gym-runtime[daytona]'")
    async with DaytonaServer().run() as server:
        yield server


@pytest.fixture
async def boxes(service: DaytonaServer, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Provider]:
    monkeypatch.setenv("DAYTONA_API_KEY", "key")
    monkeypatch.setenv("DAYTONA_API_URL", service.url)
    async with aclosing(provider("daytona")) as made:
        yield made


async def test_a_box_is_what_was_asked_for(service: DaytonaServer, boxes: Provider) -> None:
    await boxes.create("base", label="a.1.7", life_s=90)
    (asked,) = service.asked
    assert asked["labels"].items() >= {"gym-account": "a", "gym-label": "a.1.7"}.items()
    assert (asked["ttlMinutes"], asked["autoDeleteInterval"], asked["autoStopInterval"]) == (2, 0, 0)
    assert asked["networkBlockAll"] is True
    open_to_all = await boxes.create("base", label="a.2.1", life_s=60, internet=True)
    assert service.asked[1]["networkBlockAll"] is False
    script = f"wc -c; : {'x' * 300_000}"
    done = await boxes.exec(open_to_all, script, timeout_s=30, stdin=b"y" * 200_000)
    assert done.stdout.split() == [b"200000"]
    flooded = await boxes.exec(open_to_all, "head -c 3000000 /dev/zero", timeout_s=30)
    assert len(flooded.stdout) == daytona.KEPT_BYTES
    for number in range(3, 6):
        await boxes.create("base", label=f"a.{number}.1", life_s=60)
    assert len(await boxes.list("a.")) == 5, "over pages"


async def test_refusals_and_lost_answers(
    service: DaytonaServer, boxes: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    creates = service.faults["POST", "sandbox"] = [429, 409, 403, 400, 401, 500, 0]
    refusals: list[float | None] = []
    for _ in range(3):
        with pytest.raises(BoxRefused) as refused:
            await boxes.create("base", label="a.0.1", life_s=60)
        refusals.append(refused.value.after_s)
    assert refusals == [2.0, 2.0, 2.0]
    for wrong in ("does not take", "DAYTONA_API_KEY"):
        with pytest.raises(UsageError, match=wrong):
            await boxes.create("base", label="a.0.1", life_s=60)
    assert not service.boxes
    for _ in range(2):
        with pytest.raises(BoxUnknown):
            await boxes.create("base", label="a.0.1", life_s=60)
    assert not creates
    (found,) = await boxes.list("a.0.1")
    assert (await boxes.exec(found.box, "echo found", timeout_s=30)).stdout == b"found\n"

    monkeypatch.setattr(daytona, "CALL_S", 1.0)
    service.faults["POST", "1"] = [-1]
    with pytest.raises(BoxUnknown):
        await boxes.renew(found.box, 60)
    await boxes.renew(found.box, 60)
    service.faults["POST", "bulk-upload"] = [403]
    with pytest.raises(ResourceError, match="cannot be read or written"):
        await boxes.put(found.box, "/etc/secret", b"")
    service.faults["POST", "execute"] = [502]
    with pytest.raises(BoxUnknown, match="502"):
        await boxes.exec(found.box, "true", timeout_s=30)
    service.faults["POST", "execute"] = [502]
    service.boxes[found.box]["state"] = "stopped"
    with pytest.raises(BoxGone, match="stopped"):
        await boxes.exec(found.box, "true", timeout_s=30)
    service.faults["DELETE", found.box] = [409, 0]
    with pytest.raises(BoxRefused):
        await boxes.end(found.box)
    assert list(await boxes.list("a.")) == [found]
    await boxes.end(found.box)  # the client asks again, as DELETE may be repeated
    await boxes.end(found.box)
    assert not service.boxes


async def test_sandboxes_that_are_no_boxes_are_left_alone(service: DaytonaServer, boxes: Provider) -> None:
    """A name may come from another peer of the broker."""
    made = await boxes.create("base", label="a.0.1", life_s=60)
    service.boxes[made]["labels"] = {}
    async with aclosing(provider("daytona")) as other:
        await other.end(made)
        with pytest.raises(BoxGone, match="there is no box"):
            await other.exec(made, "true", timeout_s=5)
    assert list(service.boxes) == [made]


async def test_no_key_is_in_an_error(service: DaytonaServer, boxes: Provider) -> None:
    service.words = "your request: Bearer key"
    service.faults["GET", "sandbox"] = [401]
    with pytest.raises(UsageError, match=r"Bearer \[key\]") as raised:
        await boxes.list("a.")
    assert "Bearer key" not in str(raised.value)


async def test_a_command_waits_for_a_box_that_starts(service: DaytonaServer, boxes: Provider) -> None:
    made = await boxes.create("base", label="a.0.1", life_s=60)
    service.states = ["pulling_snapshot", "starting"]
    async with aclosing(provider("daytona")) as later:
        assert (await later.exec(made, "echo runs", timeout_s=30)).stdout == b"runs\n"
    assert not service.states


async def test_leases_find_the_box_whose_answer_was_lost(
    service: DaytonaServer, boxes: Provider, broker: Broker
) -> None:
    service.faults["POST", "sandbox"] = [429, 0]
    async with connect(broker.url) as bus, Leases(bus, boxes, account="d", most=2, per_s=50) as leases:
        async with leases.box("run.0.0", "base", deadline_s=clock.monotonic() + 60) as box:
            assert (await box.exec("echo leased", timeout_s=30)).stdout == b"leased\n"
            assert len(service.boxes) == 1
        assert not service.boxes
    assert len(service.asked) == 1


def test_without_the_package_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "daytona", None)
    monkeypatch.setenv("DAYTONA_API_KEY", "key")
    with pytest.raises(UsageError, match=r"pip install 'gym-runtime\[daytona\]'"):
        provider("daytona")
    monkeypatch.delenv("DAYTONA_API_KEY")
    with pytest.raises(UsageError, match="set DAYTONA_API_KEY"):
        provider("daytona")

"""Messages arrive in their order."""

from __future__ import annotations

import pytest
import uvloop
from gym_runtime.bus.interface import Incoming
from gym_runtime.bus.nats import connect
from runtime.bus.nats.links import Inbox


async def _five_thousand_in_order(url: str, prefix: str) -> None:
    inbox = Inbox(5000)
    async with (
        connect(url, prefix=prefix) as receiver,
        connect(url, prefix=prefix) as sender,
        receiver.serve("x.*", inbox),
    ):
        for number in range(5000):
            await sender.publish(f"x.{number}", b"%d" % number * 100, headers={"n": str(number)})
        for number, incoming in enumerate(await inbox.full()):
            assert incoming == Incoming(f"x.{number}", b"%d" % number * 100, "", {"n": str(number)})


@pytest.mark.asyncio
async def test_five_thousand_messages_arrive_in_order(broker_url: str, prefix: str) -> None:
    await _five_thousand_in_order(broker_url, prefix)


def test_five_thousand_messages_arrive_in_order_on_uvloop(broker_url: str, prefix: str) -> None:
    uvloop.run(_five_thousand_in_order(broker_url, prefix))

"""The link between the brokers of two sites: slow, and away."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest
from gym_runtime.bus import link
from gym_runtime.bus.nats import connect
from gym_runtime.errors import BrokerError
from gym_runtime.timing import SLOW_LINK_S
from gym_testing.proxy import Proxy, Slowness
from ports import free_port
from time_limits import busy

from deploy import brokers

pytestmark = [pytest.mark.slow, pytest.mark.anyio, pytest.mark.timeout(90)]

FIRST, SECOND = "127.0.0.1", "127.0.0.2"


@pytest.mark.soak
async def test_a_slow_link_between_sites_is_seen_and_an_error_names_the_site_that_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "PING_INTERVAL_S", 0.3)
    first, second = tmp_path / "first" / "broker", tmp_path / "second" / "broker"
    first.parent.mkdir()
    port, other = free_port(), free_port()
    leaves = port + 2  # the next one is for its statistics
    more = ("--node", "hub", "--host", FIRST, "--leaves", f"{FIRST}:{leaves}", "--linger", "0")
    proxy = Proxy(FIRST, leaves)
    with ExitStack() as stack:
        hub = brokers.started(first, *more, host=FIRST, port=port)
        stack.callback(lambda: brokers.stop(hub))
        await anyio.to_thread.run_sync(brokers.until_ready, hub)
        shutil.copytree(first, second)
        async with proxy.listening() as between:
            leaf = ("--node", "leaf", "--host", SECOND, "--leaf-of", f"{FIRST}:{between}", "--linger", "0")
            started = stack.enter_context(brokers.serving(second, *leaf, host=SECOND, port=other))
            await anyio.to_thread.run_sync(brokers.until_ready, started)
            joins = {role: str(second / "join" / f"{role}.join") for role in ("client", "agent", "model")}
            async with (
                connect(joins["agent"], role="agent") as agent,
                connect(joins["model"], role="model") as model,
            ):
                proxy.slowness = Slowness(delay_s=SLOW_LINK_S)
                with anyio.fail_after(30 * busy()):
                    while agent.round_trip_s < 2 * SLOW_LINK_S:
                        await anyio.sleep(0.05)
                assert model.round_trip_s < SLOW_LINK_S
                proxy.slowness = Slowness()
                with anyio.fail_after(30 * busy()):
                    while agent.round_trip_s > SLOW_LINK_S:
                        await anyio.sleep(0.05)
            await anyio.to_thread.run_sync(brokers.stop, hub)
            for role in ("client", "agent"):
                with pytest.raises(BrokerError, match="the leaf of another site, the broker there") as raised:
                    async with connect(joins[role], role=role):
                        pass
                assert raised.value.silent

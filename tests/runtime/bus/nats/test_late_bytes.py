"""What was on its way to a broker that froze arrives when it thaws, and harms nothing."""

from __future__ import annotations

from functools import partial

import anyio
import pytest
from freezing import frozen
from gym_runtime.bus import link as links
from gym_runtime.bus.interface import Bus
from gym_runtime.bus.nats import connect
from gym_runtime.system.private_broker import Broker
from runtime.bus.nats.links import link_of
from runtime.bus.test_nats_py import Sink, client
from time_limits import busy

pytestmark = [pytest.mark.asyncio, pytest.mark.fault, pytest.mark.slow]

SIGNALS = 7
SIGNAL_BYTES = 500_000  # together more than a socket holds, and less than may be under way


async def test_late_bytes_meet_conditions_and_are_refused(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "PING_INTERVAL_S", 0.2)
    late: list[bytes] = []
    results: dict[str, object] = {}

    async def note(name: str, call: partial[object]) -> None:
        results[name] = await call()  # type: ignore[misc]

    def stores(bus: Bus, who: str) -> dict[str, partial[object]]:
        return {
            f"commit by {who}": partial(bus.commit, "rollout.r.1", who.encode()),
            f"append by {who}": partial(bus.append, "journal.r.1", who.encode(), expect=0),
            f"enqueue by {who}": partial(bus.enqueue, "task.a.e.r.1", who.encode(), once=True),
        }

    async with (
        client(broker.url) as witness,
        connect(broker.url) as first,
        connect(broker.url) as second,
        anyio.create_task_group() as tasks,
    ):
        await witness.subscribe("gym.signal.late", future=Sink(lambda message: late.append(message.data)))
        await witness.flush()
        down, left = anyio.Event(), len((first, second))

        def on_link(up: bool) -> None:
            nonlocal left
            left -= not up
            if not left:
                down.set()

        for bus in (first, second):
            link_of(bus).watch(on_link)
        with frozen(broker.pid):
            for _ in range(SIGNALS):
                await first.publish("signal.late", b"x" * SIGNAL_BYTES)
            for name, call in (stores(first, "first") | stores(second, "second")).items():
                tasks.start_soon(note, name, call)
            await down.wait()
            assert not late
        with anyio.fail_after(30 * busy()):
            while len(results) < 6 or not late:
                await anyio.sleep(0.01)
        # The senders left while it was frozen, and yet some came: the first echo that the broker sends to a
        # closed socket ends its reading there.
        assert len(late) <= SIGNALS
        assert sorted(str(results[f"commit by {who}"]) for who in ("first", "second")) == ["False", "True"]
        assert [results[f"append by {who}"] for who in ("first", "second")].count(None) == 1
        for pattern, call in (("rollout.>", "commit"), ("journal.>", "append")):
            assert await first.counts(pattern) == {pattern.replace(">", "r.1"): 1}
            (record,) = await first.latest(pattern.replace(">", "r.1"))
            assert results[f"{call} by {record.payload.decode()}"]
        assert await first.counts("task.>") == {"task.a.e.r.1": 1}

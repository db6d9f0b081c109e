"""A store at a secured broker whose answer is lost: each role finds out what it must, with its own rights."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import pytest
from anyio.abc import ByteSendStream, ObjectReceiveStream, SocketAttribute
from faults.permissions.identities import as_role, identities, serving
from gym_runtime.bus import streams
from gym_runtime.bus.identity import CA, CREDENTIALS
from gym_runtime.bus.link import Role
from gym_runtime.bus.nats import NatsBus
from gym_runtime.workers.saved_parts import BrokerParts
from gym_testing.proxy import Proxy
from time_limits import busy

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.timeout(120), pytest.mark.anyio]
PART = b"what a session has saved"
STORES: dict[str, tuple[Role, str, Callable[[NatsBus], Awaitable[object]], object]] = {
    "a task of the client": (
        "client",
        "task.tool_loop.mcqa.lost.>",
        lambda bus: bus.enqueue("task.tool_loop.mcqa.lost.0", b"task", once=True),
        None,
    ),
    "the control of a run": (
        "client",
        "runs.lost.control",
        lambda bus: _stored(bus.append("runs.lost.control", b"{}", expect=0)),
        True,
    ),
    "a task that an agent moves": (
        "agent",
        "task.=.>",
        lambda bus: bus.enqueue("task.=.tool_loop.lost.mcqa.0", b"task", once=True),
        None,
    ),
    "a result": ("agent", "rollout.lost.>", lambda bus: bus.commit("rollout.lost.0.0", b"result"), True),
    "a turn": (
        "agent",
        "journal.lost.1.>",
        lambda bus: _stored(bus.append("journal.lost.1.0.0", b"turn", expect=0)),
        True,
    ),
    "a failed task": (
        "agent",
        "journal.lost.2.>",
        lambda bus: _stored(bus.append("journal.lost.2.0.0.task", b"task")),
        True,
    ),
    "an answer of a model in a role": (
        "resource",
        "journal.lost.3.>",
        lambda bus: _stored(bus.append("journal.lost.3.0.0.role.judge", b"answer")),
        True,
    ),
    "a saved part": ("resource", "journal.lost.0.4.>", lambda bus: _kept(bus), PART),
    "the lease of a box": (
        "resource",
        "runs.boxes.lost.>",
        lambda bus: _stored(bus.append("runs.boxes.lost.slot.0", b"{}", expect=0)),
        True,
    ),
}


async def _stored(append: Awaitable[int | None]) -> bool:
    return await append is not None


async def _kept(bus: NatsBus) -> bytes:
    parts = BrokerParts(bus, "lost.4.0")
    return await parts.get(await parts.put(PART))


class Deaf(Proxy):
    """Tells the broker everything, and while ``deaf`` drops what it answers."""

    deaf = False

    async def _deliver(
        self, pieces: ObjectReceiveStream[tuple[float, bytes]], sink: ByteSendStream, scope: anyio.CancelScope
    ) -> None:
        to_broker = sink.extra(SocketAttribute.remote_port) == self._upstream[1]
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async for _, piece in pieces:
                if to_broker or not self.deaf:
                    await sink.send(piece)
        scope.cancel()


LARGE = bytes(1 << 20)
"""A payload that travels in chunks of their own."""
WINDOW_S = 1


async def test_a_chunk_is_stored_again_after_the_broker_has_forgotten_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An outage may last longer than the broker remembers what was stored: here a second, else 75."""
    monkeypatch.setattr(streams, "DUPLICATE_WINDOW_S", WINDOW_S)
    folder = identities(tmp_path / "own")
    monkeypatch.setenv(CA, str(folder / "ca.pem"))
    monkeypatch.setenv(CREDENTIALS, str(folder / "client.seed"))
    small = ("max_payload: 32MB", "max_payload: 1MB")
    with serving(folder, small) as url, anyio.fail_after(30 * busy()):
        broker = urlsplit(url)
        assert broker.hostname is not None
        assert broker.port is not None
        proxy = Deaf(broker.hostname, broker.port)
        async with (
            as_role(url, folder, "client") as client,
            proxy.listening() as port,
            as_role(f"tls://127.0.0.1:{port}", folder, "client") as bus,
        ):
            proxy.deaf = True
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(bus.append, "runs.lost.rows", LARGE)
                while not await client.counts("blob.run.lost.>"):
                    await anyio.sleep(0.02)
                await anyio.sleep(2 * WINDOW_S)
                proxy.cut()
                proxy.deaf = False
                proxy.mend()
            found = await client.latest("runs.lost.rows")
            assert [record.payload for record in found] == [LARGE]
            assert set((await client.counts("blob.run.lost.>")).values()) == {1}


@pytest.mark.parametrize("stored", STORES)
async def test_a_role_stores_once_when_the_answer_is_lost(url: str, folder: Path, stored: str) -> None:
    role, pattern, store, wanted = STORES[stored]
    broker = urlsplit(url)
    assert broker.hostname is not None
    assert broker.port is not None
    proxy = Deaf(broker.hostname, broker.port)
    results: list[object] = []

    async def act(bus: NatsBus) -> None:
        results.append(await store(bus))

    with anyio.fail_after(30 * busy()):
        async with (
            as_role(url, folder, "client") as client,
            proxy.listening() as port,
            as_role(f"tls://127.0.0.1:{port}", folder, role) as bus,
        ):
            proxy.deaf = True
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(act, bus)
                while not await client.counts(pattern):
                    await anyio.sleep(0.02)
                proxy.cut()
                proxy.deaf = False
                proxy.mend()
            assert results == [wanted]
            assert list((await client.counts(pattern)).values()) == [1]
            await client.forget(pattern)

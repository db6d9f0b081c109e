"""A socket that is closed already: on uvloop, nats-py raises a RuntimeError then (`nats_py_defects.md`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import anyio
import pytest
import uvloop
from nats.aio.client import Client
from runtime.bus.conftest import linked
from runtime.bus.test_nats_py import AS_THE_LINK


async def aborted(one: Client, again: Callable[[], object]) -> None:
    """Abort a client's socket, as a broken connection does, and call this a turn of the loop later."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    for _ in range(5):  # the flusher waits now
        await asyncio.sleep(0)

    def later() -> None:
        again()
        done.set()

    one._transport._io_writer.transport.abort()  # type: ignore  # nothing public does
    again()  # the flusher finds a closed socket, and ends
    loop.call_soon(later)
    await done.wait()


def test_defect_on_uvloop_publish_raises_a_runtime_error_once_the_socket_is_closed(broker_url: str) -> None:
    raised: list[str] = []

    async def main() -> None:
        one = Client()
        await one.connect([broker_url], **AS_THE_LINK)

        def publish() -> None:
            publishing = one.publish("canary.closed", b"")
            try:
                publishing.send(None)
            except StopIteration:
                pass
            except RuntimeError as error:
                raised.append(str(error))

        await aborted(one, publish)
        with suppress(RuntimeError):
            await one.close()

    uvloop.run(main())
    assert len(raised) == 1
    assert "the handler is closed" in raised[0]


def test_the_link_goes_on_when_its_socket_on_uvloop_is_closed(
    broker_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        changes: list[bool] = []
        async with linked(broker_url) as link:
            link.watch(changes.append)
            client = link._client  # pyright: ignore[reportPrivateUsage]
            assert client is not None
            await aborted(client, lambda: link.post("canary.closed", b""))
            with anyio.fail_after(10):
                while changes != [False, True]:
                    await anyio.sleep(0.01)
            heard = anyio.Event()
            link.listen("canary.heard", lambda *_: heard.set())
            link.post("canary.heard", b"")
            with anyio.fail_after(10):
                await heard.wait()

    uvloop.run(main())
    assert caplog.records == []

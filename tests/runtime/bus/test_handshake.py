"""How a connection begins, with brokers that do not behave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import anyio
import pytest
from gym_runtime.bus import handshake, identity
from gym_runtime.bus import link as links
from gym_runtime.bus.link import Link
from gym_runtime.bus.nats import connect
from gym_runtime.errors import BrokerError
from time_limits import busy

pytestmark = pytest.mark.asyncio

INFO = b'INFO {"max_payload":8388608,"headers":true}\r\n'
OF_TLS = b'INFO {"tls_required":true}\r\n'


@asynccontextmanager
async def saying(*lines: bytes, then: bytes = b"") -> AsyncGenerator[tuple[str, bytearray]]:
    """A server that says this to each connection, and then nothing; an empty last line closes it.

    With ``then`` it says that to all connections but the first. The second value is what it hears.
    """
    writers: list[asyncio.StreamWriter] = []
    heard = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with suppress(ConnectionError):
            for line in (then,) if then and len(writers) > 1 else lines:
                writer.write(line)
                await writer.drain()
            if lines[-1:] == (b"",):
                writer.close()
                return
            while data := await reader.read(65536):
                heard.extend(data)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", heard
    finally:
        server.close()
        # A connection that was just accepted reaches `serve` a few turns of the loop later.
        for _ in range(10):
            await asyncio.sleep(0)
        for writer in writers:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ((b"SSH-2.0-OpenSSH_9.2\r\n",), "cannot connect to the broker at .*instead of INFO"),
        ((b"HTTP/1.1 400 Bad Request\r\n\r\n", b""), "instead of INFO"),
        ((INFO, b"-ERR 'Authorization Violation'\r\n"), "refuses the credentials"),
        ((INFO, b"-ERR 'maximum connections exceeded'\r\n"), "broker at .*: maximum connections exceeded"),
        ((INFO, b"GARBAGE\r\n"), "no broker at"),
        ((INFO, b""), "no broker at"),
        ((b"x" * 2_000_000,), "cannot connect"),
    ],
)
async def test_what_is_no_broker_or_does_not_want_us_is_said(
    lines: tuple[bytes, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "DIAL_S", 0.5 if message == "no broker at" else 10.0)
    async with saying(*lines) as (host, _):
        with pytest.raises(BrokerError, match=message):
            async with connect(f"nats://{host}"):
                pass


async def test_a_broker_that_is_there_and_answers_too_slowly_is_not_said_to_be_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(links, "GREETING_S", 0.3)
    monkeypatch.setattr(links, "DIAL_S", 0.5)
    async with saying(INFO) as (host, _):
        with pytest.raises(BrokerError, match=r"answers too slowly .* look at the network between") as caught:
            async with connect(f"nats://{host}"):
                pass
    assert (caught.value.final, caught.value.silent) == (False, True)


async def test_of_several_brokers_one_that_is_there_will_do(broker_url: str) -> None:
    async with connect(["nats://127.0.0.1:9", broker_url, "nats://127.0.0.1:10"], prefix="several") as bus:
        assert bus.url.rpartition(":")[2] == broker_url.rpartition(":")[2]


async def test_a_password_is_not_said_in_the_clear_to_a_server_without_tls() -> None:
    async with saying(INFO) as (host, heard):
        with pytest.raises(BrokerError, match="offers none"):
            async with connect(f"tls://me:secret@{host}"):
                pass
        assert not heard


@pytest.mark.parametrize("who", ["me:secret", "token", ""])
async def test_nor_to_one_that_first_says_that_it_has_tls(who: str) -> None:
    async with saying(OF_TLS, then=INFO) as (host, heard):
        with pytest.raises(BrokerError, match="offers none"):
            async with connect(f"tls://{who}@{host}"):
                pass
        assert not heard


@pytest.mark.parametrize("then", ["closes", "says nothing"])
async def test_a_connection_that_breaks_right_after_the_greeting_is_made_again(
    then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "GREETING_S", 0.3)
    monkeypatch.setattr(handshake, "GREETING_S", 0.3)
    greeted = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal greeted
        writer.write(INFO)
        number = 0
        with suppress(ConnectionError):
            while line := await reader.readline():
                if line.startswith(b"CONNECT"):
                    greeted += 1
                    number = greeted
                elif line.startswith(b"PING"):
                    writer.write(b"PONG\r\n")
                    if number == 1 and then == "closes":
                        break
                elif line.startswith(b"PUB") and number > 1:  # an echo
                    writer.write(b"MSG %s 1 0\r\n\r\n" % line.split()[1])
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    link = Link(identity.parse(f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"))
    with anyio.fail_after(10):
        await link.dial()
    assert (greeted, link.up) == (2, True)
    await link.close()
    server.close()


async def test_a_broker_that_asks_for_certificates_may_end_a_connection_without_saying_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In TLS 1.3 the server reads our certificate after we have begun to write: its alert may be lost."""
    monkeypatch.setattr(links, "DIAL_S", 0.5 * busy())
    async with saying(b'INFO {"tls_required":true,"tls_verify":true}\r\n', b"") as (url, _):
        with pytest.raises(
            BrokerError, match=r"asks for a certificate that it trusts \(it ended the"
        ) as caught:
            async with connect(url):
                pass
    # 'start --wait' waits: it may be a broker that stops.
    assert (caught.value.final, caught.value.silent) == (False, True)

"""How a connection begins, with brokers that do not behave; and the protocol against a real one."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

import anyio
import pytest
from gym_runtime.bus import addresses, connection
from gym_runtime.bus.nats import connect
from gym_runtime.bus.protocol import (
    CRLF,
    PING,
    Decoder,
    connect_command,
    decode_info,
    encode_headers,
    publish_command,
    status,
    subscribe_command,
)
from gym_runtime.errors import BrokerError
from hypothesis import given, settings
from hypothesis import strategies as st

INFO = b'INFO {"max_payload":8388608}\r\n'


@asynccontextmanager
async def saying(*lines: bytes) -> AsyncGenerator[str]:
    """A server that says this to each connection, and then nothing; an empty last line closes it."""
    writers: list[asyncio.StreamWriter] = []

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with suppress(ConnectionError):
            for line in lines:
                writer.write(line)
                await writer.drain()
        if lines[-1:] == (b"",):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in writers:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ((b"SSH-2.0-OpenSSH_9.2\r\n",), "cannot connect to the broker at .*instead of INFO"),
        ((b"HTTP/1.1 400 Bad Request\r\n\r\n", b""), "instead of INFO"),
        ((INFO, b"-ERR 'Authorization Violation'\r\n"), "refuses the credentials"),
        ((INFO, b"-ERR 'maximum connections exceeded'\r\n"), "broker at .*: maximum connections exceeded"),
        ((INFO, b"MSG a b c\r\n"), "cannot connect"),
        ((INFO, b"GARBAGE\r\n"), "instead of PONG"),
        ((INFO, b""), "no broker at"),
        ((b"x" * 2_000_000,), "cannot connect"),
    ],
)
async def test_what_is_no_broker_or_does_not_want_us_is_said(
    lines: tuple[bytes, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "DIAL_S", 0.5 if message == "no broker at" else 10.0)
    async with saying(*lines) as url:
        with pytest.raises(BrokerError, match=message):
            async with connect(url):
                pass


@pytest.mark.asyncio
async def test_of_several_brokers_one_that_is_there_will_do(broker_url: str) -> None:
    async with connect(["nats://127.0.0.1:9", broker_url, "nats://127.0.0.1:10"], prefix="several") as bus:
        assert bus.url.rpartition(":")[2] == broker_url.rpartition(":")[2]


# What a broker says to: headers, a large payload, and a request that no process serves.
HEADER = encode_headers({"a": "b"})
LARGE = bytes(range(256)) * 500


def transcript(url: str) -> bytes:
    """All that a real broker sends in one conversation, in the bytes of the protocol."""
    where = urlsplit(url)
    user = {"user": where.username or "", "pass": where.password or ""}
    said = b""
    with socket.create_connection((where.hostname, where.port), timeout=10) as stream:
        stream.sendall(
            connect_command("transcript", user, tls=False)
            + subscribe_command(1, "transcript.*")
            + subscribe_command(2, "transcript.inbox")
            + subscribe_command(3, "transcript.>", "queue")
            + publish_command("transcript.a", "", 0, 5)
            + b"hello"
            + CRLF
            + publish_command("transcript.b", "transcript.inbox", len(HEADER), len(HEADER) + len(LARGE))
            + HEADER
            + LARGE
            + CRLF
            + publish_command("nobody.listens", "transcript.inbox", 0, 0)
            + CRLF
            + PING
        )
        while b"PONG\r\n" not in said:
            said += stream.recv(65536)
    return said


@pytest.fixture(scope="module")
def conversation(broker_url: str) -> bytes:
    return transcript(broker_url)


def heard(data: bytes, pieces: list[int]) -> tuple[list[tuple[int, bytes, bytes, bytes, bytes]], list[bytes]]:
    messages: list[tuple[int, bytes, bytes, bytes, bytes]] = []
    lines: list[bytes] = []
    decoder = Decoder(lambda *message: messages.append(message), lines.append)
    at = number = 0
    while at < len(data):
        size = pieces[number % len(pieces)]
        decoder.feed(data[at : at + size])
        at += size
        number += 1
    return messages, lines


def test_a_real_brokers_answers_are_understood(conversation: bytes) -> None:
    messages, lines = heard(conversation, [len(conversation)])
    assert decode_info(lines[0]).max_payload >= len(LARGE)
    assert lines[1:2] == [b"PONG"]
    by_sid = {sid: [m for m in messages if m[0] == sid] for sid in (1, 2, 3)}
    assert [m[1:] for m in by_sid[3]] == [m[1:] for m in by_sid[1]]
    assert by_sid[1][0] == (1, b"transcript.a", b"", b"", b"hello")
    assert by_sid[1][1] == (1, b"transcript.b", b"transcript.inbox", HEADER, LARGE)
    assert [(m[1], status(m[3]), m[4]) for m in by_sid[2]] == [(b"transcript.inbox", 503, b"")]


@pytest.mark.slow
@settings(max_examples=50)
@given(st.lists(st.integers(1, 100_000), min_size=1, max_size=20))
def test_a_real_brokers_answers_may_be_split_anywhere(conversation: bytes, pieces: list[int]) -> None:
    assert heard(conversation, pieces) == heard(conversation, [len(conversation)])


@pytest.mark.asyncio
@pytest.mark.parametrize("then", ["closes", "says nothing"])
async def test_a_connection_that_breaks_right_after_the_greeting_is_made_again(
    then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CONNECT_TIMEOUT_S", 0.3)
    greeted = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal greeted
        greeted += 1
        number = greeted
        writer.write(INFO)
        while line := await reader.readline():
            if not line.startswith(b"PING"):
                continue
            writer.write(b"PONG\r\n")
            if number == 1:
                if then == "closes":
                    break
                await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    where = addresses.parse(f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    link = connection.Connection(where)
    with anyio.fail_after(10):
        await link.dial()
    assert (greeted, link.up) == (2, True)
    await link.close()
    server.close()

"""Cutting bytes into messages, wherever the socket happened to split them."""

from __future__ import annotations

import asyncio

import pytest
from gym_runtime.bus.wire import (
    MAX_LINE_BYTES,
    Wire,
    decode_headers,
    description,
    encode_headers,
    status,
)
from gym_runtime.errors import UsageError
from hypothesis import given
from hypothesis import strategies as st

Message = tuple[int, bytes, bytes, bytes, bytes]


class Socket(asyncio.Transport):
    aborted = False

    def abort(self) -> None:
        self.aborted = True


def wire_into(messages: list[Message]) -> tuple[Wire, Socket]:
    wire, socket = Wire(lambda *message: messages.append(message), lambda: None), Socket()
    wire.connection_made(socket)
    return wire, socket


def on_the_wire(message: Message) -> bytes:
    sid, subject, reply, header, payload = message
    words = [b"HMSG" if header else b"MSG", subject, str(sid).encode()]
    words += [reply] if reply else []
    words += [str(len(header)).encode()] if header else []
    words += [str(len(header) + len(payload)).encode()]
    return b" ".join(words) + b"\r\n" + header + payload + b"\r\n"


headers = st.dictionaries(
    st.text(
        st.characters(min_codepoint=33, max_codepoint=126, exclude_characters=":"), min_size=1, max_size=9
    ),
    st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp", "Zs")), max_size=9),
    max_size=3,
)
messages = st.tuples(
    st.integers(1, 10**6),
    st.sampled_from([b"a", b"gym.task.x"]),
    st.sampled_from([b"", b"_INBOX.r.1"]),
    st.one_of(st.just(b""), headers.filter(bool).map(encode_headers)),
    st.one_of(
        st.binary(max_size=40), st.just(b"MSG a 1 3\r\nxyz\r\n"), st.binary(min_size=3000, max_size=3000)
    ),
)


@pytest.mark.slow
@given(st.lists(messages, max_size=6), st.lists(st.integers(1, 700), min_size=1, max_size=30))
def test_messages_arrive_whole_and_in_order_however_they_are_split(
    sent: list[Message], pieces: list[int]
) -> None:
    data = b"".join(map(on_the_wire, sent))
    got: list[Message] = []
    wire, _ = wire_into(got)
    number = 0
    while data:
        size = pieces[number % len(pieces)]
        wire.data_received(data[:size])
        data = data[size:]
        number += 1
    assert got == sent


@given(headers)
def test_headers_come_back_as_they_were(sent: dict[str, str]) -> None:
    assert decode_headers(encode_headers(sent)) == sent


@pytest.mark.parametrize("name", ["", "a b", "a:b", "ä", "a\r\n"])
def test_a_header_name_that_is_no_token_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="header"):
        encode_headers({name: "x"})


def test_a_header_value_cannot_smuggle_a_second_one() -> None:
    with pytest.raises(UsageError):
        encode_headers({"a": "x\r\nb: y"})


def test_status_lines() -> None:
    assert status(b"NATS/1.0 503\r\n\r\n") == 503
    header = b"NATS/1.0 409 Consumer Deleted\r\nNats-Pending-Messages: 3\r\n\r\n"
    assert (status(header), description(header)) == (409, "Consumer Deleted")
    assert decode_headers(header) == {"Nats-Pending-Messages": "3"}
    assert status(encode_headers({"a": "b"})) == 0
    assert status(b"") == 0


@pytest.mark.asyncio
async def test_lines_between_messages_are_read_apart() -> None:
    got: list[Message] = []
    wire, _ = wire_into(got)
    wire.data_received(b"PING\r\nMSG a 1 1\r\nx\r\n+OK\r\nPO")
    wire.data_received(b"NG\r\n")
    assert [await wire.readline() for _ in range(3)] == [b"PING\r\n", b"+OK\r\n", b"PONG\r\n"]
    assert got == [(1, b"a", b"", b"", b"x")]
    wire.connection_lost(None)
    assert await wire.readline() == b""


@pytest.mark.parametrize(
    "garbage", [b"MSG a b c\r\n", b"MSG \r\n", b"HMSG a 1 x 3\r\n", b"x" * (MAX_LINE_BYTES + 1)]
)
def test_a_stream_out_of_step_ends_the_connection(garbage: bytes) -> None:
    wire, socket = wire_into([])
    wire.data_received(garbage)
    assert socket.aborted


@pytest.mark.asyncio
async def test_waiting_for_room_ends_when_the_connection_does() -> None:
    wire, _ = wire_into([])
    wire.pause_writing()
    assert wire.paused
    asyncio.get_running_loop().call_soon(wire.connection_lost, None)
    with pytest.raises(ConnectionResetError):
        await wire.drain()

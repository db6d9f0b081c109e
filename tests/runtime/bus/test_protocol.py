"""Cutting bytes into messages, wherever the socket happened to split them."""

from __future__ import annotations

import json

import pytest
from gym_runtime.bus.protocol import (
    CRLF,
    MAX_LINE_BYTES,
    Decoder,
    OutOfStep,
    connect_command,
    decode_headers,
    decode_info,
    description,
    encode_headers,
    publish_command,
    status,
    subscribe_command,
    unsubscribe_command,
)
from gym_runtime.errors import UsageError
from hypothesis import given
from hypothesis import strategies as st

Message = tuple[int, bytes, bytes, bytes, bytes]


class Receiver:
    """Takes what a decoder hands over, in one list, so that the order shows."""

    def __init__(self) -> None:
        self.got: list[Message | bytes] = []
        self.decoder = Decoder(lambda *message: self.got.append(message), self.got.append)

    def feed(self, data: bytes, pieces: list[int]) -> None:
        number = 0
        while data:
            size = pieces[number % len(pieces)]
            self.decoder.feed(data[:size])
            data = data[size:]
            number += 1


def on_the_wire(message: Message | bytes) -> bytes:
    if isinstance(message, bytes):
        return message + CRLF
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


lines = st.sampled_from([b"PING", b"PONG", b"+OK", b"-ERR 'Slow Consumer'", b'INFO {"max_payload":8}'])


@pytest.mark.slow
@given(
    st.lists(st.one_of(messages, lines), max_size=6), st.lists(st.integers(1, 700), min_size=1, max_size=30)
)
def test_messages_and_lines_arrive_whole_and_in_order_however_they_are_split(
    sent: list[Message | bytes], pieces: list[int]
) -> None:
    receiver = Receiver()
    receiver.feed(b"".join(map(on_the_wire, sent)), pieces)
    assert receiver.got == sent


@pytest.mark.slow
@given(st.binary(max_size=300), st.lists(st.integers(1, 50), min_size=1))
def test_any_bytes_are_read_or_refused_however_they_are_split(data: bytes, pieces: list[int]) -> None:
    def read(pieces: list[int]) -> tuple[list[Message | bytes], bool]:
        receiver = Receiver()
        try:
            receiver.feed(data, pieces)
        except OutOfStep:
            return receiver.got, False
        return receiver.got, True

    assert read(pieces) == read([1])


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


@pytest.mark.parametrize(
    "garbage", [b"MSG a b c\r\n", b"MSG \r\n", b"HMSG a 1 x 3\r\n", b"x" * (MAX_LINE_BYTES + 1)]
)
def test_a_stream_out_of_step_is_refused(garbage: bytes) -> None:
    with pytest.raises(OutOfStep):
        Receiver().decoder.feed(garbage)


def test_what_a_broker_says_of_itself() -> None:
    info = decode_info(
        b'INFO {"max_payload":8388608,"nonce":"abc","cluster":"c","jetstream":true,"ldm":true}'
    )
    assert (info.max_payload, info.nonce, info.cluster, info.ldm) == (8388608, "abc", "c", True)
    for line in (b"SSH-2.0-OpenSSH_9.2", b"INFO {", b'INFO {"max_payload":"8"}'):
        with pytest.raises(OutOfStep, match="instead of INFO"):
            decode_info(line)


def test_commands() -> None:
    assert subscribe_command(7, "a.*", "q").split() == [b"SUB", b"a.*", b"q", b"7"]
    assert subscribe_command(7, "a.*").split() == [b"SUB", b"a.*", b"7"]
    assert unsubscribe_command(7) == b"UNSUB 7\r\n"
    assert publish_command("a", "r", 0, 5).split() == [b"PUB", b"a", b"r", b"5"]
    assert publish_command("a", "", 12, 17).split() == [b"HPUB", b"a", b"12", b"17"]
    connect = connect_command("me", {"user": "u", "pass": 'p"\r\n'}, tls=True)
    assert connect.startswith(b"CONNECT ")
    assert connect.count(b"\n") == 1
    said = json.loads(connect.removeprefix(b"CONNECT "))
    assert (said["name"], said["user"], said["pass"], said["tls_required"]) == ("me", "u", 'p"\r\n', True)
    assert (said["verbose"], said["headers"], said["no_responders"]) == (False, True, True)

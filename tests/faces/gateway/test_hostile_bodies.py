"""Bodies that do not end, are too large, or are not what they should be."""

from __future__ import annotations

import gc
import gzip
import json
import resource
import time
from contextlib import suppress
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream
from faces.gateway.hostile_requests import ALL, RESPONSES, connection, head, message_of
from faces.gateway.running_gateway import RunningGateway, standing
from gym_faces.dialects.dialect import MAX_ITEMS, MAX_KEYS, MAX_OBJECTS
from gym_faces.gateway.admission import Admission
from gym_testing.background import settled
from gym_testing.small_system import answer
from tables import table
from time_limits import busy

pytestmark = pytest.mark.anyio


MIB = 2**20
KEYS = b",".join(b'"k%d":1' % number for number in range(MAX_KEYS - 10))


async def status_of(stream: SocketStream) -> int:
    received = b""
    while b"\r\n" not in received:
        received += await stream.receive()
    return int(received.split(b" ", 2)[1])


@pytest.mark.parametrize("chunked", [False, True])
async def test_unfinished_bodies_are_not_read_beyond_the_capacity(chunked: bool) -> None:
    piece = b" " * MIB
    statuses: list[int] = []
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    async def send(stand: RunningGateway) -> None:
        async with connection(stand) as stream:
            more = ["transfer-encoding: chunked"] if chunked else []
            await stream.send(head("/v1/responses", *more, length=None if chunked else 31 * MIB))

            async def flood() -> None:
                with suppress(anyio.BrokenResourceError):
                    for _ in range(30):
                        await stream.send(b"%x\r\n%b\r\n" % (MIB, piece) if chunked else piece)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(flood)
                statuses.append(await status_of(stream))
                tasks.cancel_scope.cancel()

    async with standing(answer("x"), capacity=2) as stand, anyio.create_task_group() as clients:
        for _ in range(25):
            clients.start_soon(send, stand)
        admission = stand.gateway.admission
        await settled(lambda: len(statuses) == 23 and admission.held_bytes == 60 * MIB, within_s=15)
        assert stand.gateway.admission.in_use == 2
        clients.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await settled(lambda: stand.gateway.admission.in_use == 0)
            assert stand.gateway.admission.held_bytes == 0
    assert statuses == [429] * 23
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 < 250


async def test_all_bodies_together_have_a_bound() -> None:
    admission = Admission(1024, max_bytes=8 * MIB)
    statuses: list[int] = []

    async def send(stand: RunningGateway) -> None:
        async with connection(stand) as stream:
            with suppress(anyio.BrokenResourceError):
                await stream.send(head(length=3 * MIB) + b" " * (2 * MIB))
            statuses.append(await status_of(stream))

    async with standing(answer("x"), admission=admission) as stand, anyio.create_task_group() as clients:
        for _ in range(25):
            clients.start_soon(send, stand)
        await settled(lambda: len(statuses) >= 21, within_s=15)
        assert 0 < admission.held_bytes <= 8 * MIB
        clients.cancel_scope.cancel()
    assert set(statuses) == {429}


@pytest.mark.parametrize(("path", "body"), ALL)
async def test_a_body_has_to_arrive_in_time(path: str, body: Any) -> None:
    async with standing(answer("x"), admission=Admission(9, body_s=0.5)) as stand:
        async with connection(stand) as stream:
            await stream.send(head(path, length=100) + b"{")
            assert await status_of(stream) == 408
        assert stand.gateway.admission.in_use == 0
        status, _, _ = await stand.post(path, body)
        assert status == 200


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.slow
async def test_a_client_that_does_not_read_gives_its_place_back(stream: bool) -> None:
    async with (
        standing(answer("x" * 48 * MIB), write_s=0.2) as stand,
        connection(stand) as client,
    ):
        body = json.dumps({**RESPONSES, "stream": stream}).encode()
        await client.send(head(length=len(body)) + body)
        await stand.engine.calls.until(1)
        await settled(lambda: stand.gateway.admission.in_use == 0, within_s=15 * busy())
        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            while True:
                await client.receive(MIB)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "body", "answered"),
    [
        # Gemini's names in both cases are rewritten.
        (
            "/v1/models/policy:generateContent",
            b'{"a_b":1,"contents":[' + b"[]," * 300_000 + b"[]]}",
            400,
        ),
        ("/v1/responses", b'{"input":"x",%b}' % KEYS, 200),
        ("/v1/responses", b'{"input":"x","client_metadata":{%b}}' % KEYS, 200),
    ],
    ids=["objects", "fields", "keys"],
)
async def test_a_body_of_many_parts_does_not_hold_the_loop(path: str, body: bytes, answered: int) -> None:
    worst_s = 0.0

    async def watch() -> None:
        nonlocal worst_s
        while True:
            # Of all threads: one that reads JSON holds the interpreter's lock.
            began_s = time.process_time()
            await anyio.sleep(0.001)
            worst_s = max(worst_s, time.process_time() - began_s)

    async with standing(answer("x")) as stand, anyio.create_task_group() as tasks:
        await stand.post(path, {})
        gc.freeze()  # to collect what earlier tests left in this process may take longer
        tasks.start_soon(watch)
        await anyio.sleep(0.02)
        held_s: list[float] = []
        for _ in range(3):  # what others on this machine add is not in each
            worst_s = 0.0
            status, _, _ = await stand.post(path, body)
            assert status == answered
            held_s.append(worst_s)
        gc.unfreeze()
        tasks.cancel_scope.cancel()
    assert min(held_s) < 0.1, held_s  # 0.02 to 0.04; processors differ


async def test_captured_calls_that_are_not_read_have_a_bound() -> None:
    admission = Admission(1024, max_bytes=16 * MIB)
    async with standing(answer("x" * 5 * MIB), admission=admission, write_s=5.0) as stand:
        await stand.post(f"{stand.at('r')}/v1/responses", RESPONSES)
        request = f"GET {stand.at('r')}/calls HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
        statuses: list[int] = []

        async def ask_and_read_the_first_line() -> None:
            async with connection(stand) as stream:
                await stream.send(request)
                statuses.append(await status_of(stream))
                await anyio.sleep_forever()

        async with anyio.create_task_group() as clients:
            for _ in range(12):
                clients.start_soon(ask_and_read_the_first_line)
            await settled(lambda: len(statuses) == 12)
            assert sorted(statuses) == [200] * 3 + [429] * 9
            clients.cancel_scope.cancel()
        await settled(lambda: not admission.held_bytes)


@pytest.mark.parametrize(("path", "body"), ALL)
async def test_a_request_has_so_many_items_at_most(path: str, body: Any) -> None:
    field = "input" if "input" in body else "messages"
    many = {**body, field: [{"role": "user", "content": ""}] * (MAX_ITEMS + 1)}
    async with standing(answer("x")) as stand:
        status, said, _ = await stand.post(path, many)
        assert (status, field in message_of(said)) == (400, True)
        for one in (b"{}", b"[]"):
            status, said, _ = await stand.post(path, b'{"a":[' + (one + b",") * (MAX_OBJECTS + 1) + b"1]}")
            assert (status, message_of(said)) == (
                400,
                f"the body has more than {MAX_OBJECTS} objects and lists",
            )
        large = {**body, field: [{"role": "user", "content": "x" * (2 * MIB)}]}
        assert (await stand.post(path, large))[0] == 200


@table(("path", "body"), ALL)
@table("key", [b'"k%d":', b'"k%d" \n :', b'"k%d\\\\":'], ids=["compact", "spaced", "a backslash"])
@table("where", ["", "metadata", "tools"])
@pytest.mark.slow
async def test_a_request_has_so_many_keys_at_most(path: str, body: Any, key: bytes, where: str) -> None:
    """To read millions would hold the event loop for seconds, also from a thread."""
    many = b",".join(key % number + b"1" for number in range(MAX_KEYS + 1000))
    many = b'"%b":{%b}' % (where.encode(), many) if where else many
    async with standing(answer("x")) as stand:
        status, said, _ = await stand.post(path, json.dumps(body).encode()[:-1] + b"," + many + b"}")
        assert (status, message_of(said)) == (400, f"the body has more than {MAX_KEYS} keys")


@table(("path", "body"), ALL)
@pytest.mark.slow
async def test_json_within_a_text_has_no_keys(path: str, body: Any) -> None:
    field = "input" if "input" in body else "messages"
    text = json.dumps(dict.fromkeys(map(str, range(MAX_KEYS + 10)), 1))
    async with standing(answer("x")) as stand:
        status, _, _ = await stand.post(path, {**body, field: [{"role": "user", "content": text}]})
    assert status == 200


@table(("path", "body"), ALL)
@table(
    "kind",
    [
        *("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/json"),
        *("application/json; charset=latin-1", ""),
    ],
)
async def test_a_body_is_json_and_says_so(path: str, body: Any, kind: str) -> None:
    async with standing(answer("x")) as stand:
        status, said, _ = await stand.post(path, body, content_type=kind)
        assert (status, bool(message_of(said))) == (415, True)
        for good in ("application/json; charset=UTF-8", "application/vnd.api+json"):
            status, _, _ = await stand.post(path, body, content_type=good)
            assert status == 200


async def test_a_packed_body_is_not_unpacked() -> None:
    async with standing(answer("x")) as stand:
        packed = gzip.compress(json.dumps(RESPONSES).encode())
        status, said, _ = await stand.post("/v1/responses", packed, content_encoding="gzip")
    assert (status, message_of(said)) == (415, "the content-encoding 'gzip' is not supported")


@table(("path", "body"), ALL)
@table("text", ["caf\xe9".encode("latin-1"), b"\xff\xfe", b"\\ud800", b"\x00"])
async def test_a_text_that_is_none_is_the_clients_fault(path: str, body: Any, text: bytes) -> None:
    async with standing(answer("x")) as stand:
        status, said, _ = await stand.post(path, json.dumps(body).encode().replace(b"hi", text))
    assert status == 400
    assert message_of(said)

"""Clients that send what no trainer sends, and several that use one session."""

from __future__ import annotations

import json
import time
from typing import Any

import anyio
import pytest
from faces.gym_server.running_server import (
    RunningServer,
    choice_row,
    counter_row,
    response,
    running_server,
)
from gym_testing.background import settled
from gym_testing.small_system import message
from tables import table

pytestmark = pytest.mark.anyio
KEY = "the key of this server"


async def status(here: RunningServer, request: bytes) -> int:
    host, _, port = here.url.removeprefix("http://").rpartition(":")
    async with await anyio.connect_tcp(host, int(port)) as stream:
        await stream.send(request)
        said = b""
        while b"\r\n" not in said:
            said += await stream.receive()
    return int(said.split(b" ", 2)[1])


@pytest.mark.parametrize(
    "name", ["authorization: Bearer", "authorization: Basic", "cookie: gym_session=", "host:"]
)
async def test_a_header_of_other_bytes_is_the_clients_fault(name: str) -> None:
    host = "" if name == "host:" else "host: localhost\r\n"
    request = f"GET /global_config_dict_yaml HTTP/1.1\r\n{host}{name} KEY\r\n\r\n".encode()
    async with running_server(key=KEY) as here:
        assert await status(here, request.replace(b"KEY", b"\xff\xfe")) in (403, 422)


async def test_health_needs_no_key_and_all_else_does() -> None:
    async with running_server(key=KEY) as here:
        assert (await here.get("/health")).body == {"status": "ok"}
        assert (await here.get("/health", host="evil.example")).status == 403
        for path in ("/", "/mcqa", "/health/", "/mcqa/health"):
            assert (await here.get(path)).status in (401, 404)
        # A tool of an environment may have the name.
        assert (await here.post("/health", {})).status == 401


@pytest.mark.parametrize("port", ["x", "65536", "99999999999"])
async def test_a_host_with_a_port_that_is_none_is_refused(port: str) -> None:
    request = f"GET /global_config_dict_yaml HTTP/1.1\r\nhost: localhost:{port}\r\n\r\n".encode()
    async with running_server() as here:
        assert await status(here, request) == 403


async def test_a_response_that_is_not_utf_8_is_the_clients_fault() -> None:
    said: dict[str, Any] = {**choice_row(), "response": response(message("hello"))}
    async with running_server() as here:
        for path in ("/verify", "/run"):
            found = await here.post(path, json.dumps(said).encode().replace(b"hello", b"\xff"))
            assert (found.status, "not UTF-8" in found.body["detail"]) == (422, True)


async def test_a_chat_completion_is_no_response_and_gets_no_reward() -> None:
    completion = {"choices": [{"message": {"role": "assistant", "content": "B"}}]}
    async with running_server() as here:
        found = await here.post("/verify", {**choice_row(), "response": completion})
        assert (found.status, "no 'output'" in found.body["detail"]) == (422, True)


@table("status", ["failed", "cancelled", "in_progress", "queued", "incomplete"])
async def test_a_failed_response_gets_no_reward(status: str) -> None:
    error = {"code": "server_error", "message": "out of memory"}
    failed = {**response(message("\\boxed{B}")), "status": status, "error": error}
    async with running_server() as here:
        found = await here.post("/verify", {**choice_row(), "response": failed})
        assert (found.status, f"has the status '{status}'" in found.body["detail"]) == (422, True)
        seeded = await here.post("/seed_session", counter_row())
        asked = {**counter_row(), "response": failed}
        found = await here.post("/verify", asked, seeded.cookies)
        assert found.status == 422
        # The session waits for another answer of the model.
        asked["response"] = {**failed, "status": "completed", "error": None}
        assert (await here.post("/verify", asked, seeded.cookies)).status == 200


async def test_a_response_that_was_cut_short_is_judged() -> None:
    details = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "error": None}
    cut = {**response(message("\\boxed{B}")), **details}
    async with running_server() as here:
        found = await here.post("/verify", {**choice_row(), "response": cut})
        assert (found.status, found.body["reward"]) == (200, 1.0)


@table("given", [{}, {"tools": []}, {"instructions": None}])
async def test_a_row_without_input_is_the_clients_fault(given: dict[str, Any]) -> None:
    async with running_server() as here:
        found = await here.post("/run", choice_row(responses_create_params=given))
        assert (found.status, not here.engine.calls.items) == (422, True)
        assert "the row has no input" in found.body["detail"]
        told = await here.post("/run", choice_row(responses_create_params={"instructions": "Say B."}))
        assert told.status == 200


async def test_arguments_that_are_not_utf_8_are_the_clients_fault_at_once() -> None:
    """Megabytes of such bytes are not read to their end, which would hold the event loop for 0.5 s."""
    async with running_server() as here:
        seeded = await here.post("/seed_session", counter_row())
        for body in (b'{"count":1,"note":"\xe9"}', b"\xff" * 2**24):
            began_s = time.thread_time()
            answered = await here.post("/increment_counter", body, seeded.cookies)
            assert (answered.status, "not UTF-8" in answered.body["detail"]) == (422, True)
        assert time.thread_time() - began_s < 0.2


async def test_a_session_that_has_its_verdict_is_not_opened_again() -> None:
    async with running_server() as here:
        row = counter_row()
        cookies = (await here.post("/seed_session", row)).cookies
        await here.post("/increment_counter", {"count": 1}, cookies)
        judged = await here.post("/verify", {**row, "response": response(message("done"))}, cookies)
        assert judged.body["reward"] == 1.0
        await settled(lambda: not len(here.resource.sessions))
        late = await here.post("/increment_counter", {"count": 1}, cookies)
        assert (late.status, "the session is over" in late.body["detail"]) == (503, True)
        assert not len(here.resource.sessions)


async def test_clients_that_race_for_a_verdict_get_one() -> None:
    async with running_server() as here:
        row = counter_row()
        cookies = (await here.post("/seed_session", row)).cookies
        statuses: list[int] = []

        async def judge(number: int) -> None:
            body = {**row, "response": response(message(f"answer {number}"))}
            statuses.append((await here.post("/verify", body, cookies)).status)

        async with anyio.create_task_group() as clients:
            for number in range(5):
                clients.start_soon(judge, number)
        assert sorted(statuses) == [200, 422, 422, 422, 422]

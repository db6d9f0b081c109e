"""Streams that wait for their model."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from faces.gateway.gateway_calls import ALL
from faces.gateway.running_gateway import RunningGateway, standing
from gym_runtime.errors import ModelRefused
from gym_runtime.messages.calls import ModelAnswer
from gym_testing.small_system import answer

pytestmark = pytest.mark.anyio


class Later:
    """An engine that answers when it is told to."""

    def __init__(self, outcome: ModelAnswer | Exception) -> None:
        self.go = anyio.Event()
        self._outcome = outcome

    async def respond(self, call: Any, context: Any) -> ModelAnswer:
        await self.go.wait()
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


async def stream_of(stand: RunningGateway, path: str, body: Any) -> str:
    """What comes before the answer, which is then given, and what comes with it."""
    async with stand.http.post(stand.url + path, json={**body, "stream": True}) as stream:
        assert stream.status == 200
        early = await stream.content.readuntil(b"\n\n")
        assert early == b": at work\n\n"
        stand.engine.go.set()
        return (await stream.content.read()).decode()


@pytest.mark.parametrize(
    ("path", "body", "last"),
    [(*ALL[0], "[DONE]"), (*ALL[1], "response.completed"), (*ALL[2], "message_stop")],
)
async def test_a_stream_shows_that_it_is_alive(path: str, body: Any, last: str) -> None:
    async with standing(Later(answer("x")), quiet_s=0.01) as stand:
        rest = await stream_of(stand, path, body)
    assert last in rest.rstrip("\n").rpartition("\n\n")[2]


@pytest.mark.parametrize(
    ("path", "body", "last"),
    [
        (*ALL[0], 'data: {"error":{"message":"no"'),
        (*ALL[1], 'event: response.created\ndata: {"type":"response.created","sequence_number":0,'),
        (
            *ALL[2],
            'event: error\ndata: {"type":"error","error":{"type":"invalid_request_error","message":"no"}',
        ),
    ],
)
async def test_an_error_in_a_stream_that_has_begun(path: str, body: Any, last: str) -> None:
    async with standing(Later(ModelRefused("no")), quiet_s=0.01) as stand:
        rest = await stream_of(stand, path, body)
    assert rest.replace(": at work\n\n", "").startswith(last)

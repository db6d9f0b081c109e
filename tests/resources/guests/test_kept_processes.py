"""A rollout's own process that answers wrongly."""

from __future__ import annotations

import sys
from typing import Any, ClassVar

import pytest
from gym_resources.guests.played.kept_episode import KeptEpisode
from gym_runtime.errors import ResourceError

pytestmark = pytest.mark.anyio

FRAME = "import sys; body = {body}; sys.stdout.buffer.write(len(body).to_bytes(8, 'big') + body)"


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("""b'{"type":"question","items":[{"a":[' + b'[],' * 2_000_000 + b'[]]}]}'""", "100,000 objects"),
        ("""b'{"type":"question","items":[{"a":' + b'[' * 50_000""", "recursion depth"),
        ("""b'{"type":"end","problem":"\\xff"}'""", "utf-8"),
    ],
)
async def test_what_is_no_message_is_a_failure(body: str, problem: str) -> None:
    """The first of them held the event loop while it was decoded."""

    class Hostile(KeptEpisode):
        program = (sys.executable, "-c", FRAME.format(body=body))
        start: ClassVar[Any] = {}

    episode = Hostile.__new__(Hostile)
    episode.row = b"{}"
    await episode.open()
    try:
        with pytest.raises(ResourceError, match=problem):
            await episode.reset()
    finally:
        await episode.close()


async def test_one_that_does_not_start_says_why() -> None:
    """It was said to be lost, and started again with the rollout."""

    class Broken(KeptEpisode):
        program = (sys.executable, "-c", "import nothing_of_this_name")
        start: ClassVar[Any] = {}

    episode = Broken.__new__(Broken)
    episode.row = b"{}"
    await episode.open()
    try:
        problem = "does not start: ModuleNotFoundError: No module named 'nothing_of_this_name'"
        with pytest.raises(ResourceError, match=problem) as caught:
            await episode.reset()
        assert not caught.value.retryable
    finally:
        await episode.close()

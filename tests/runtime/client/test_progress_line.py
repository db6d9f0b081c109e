"""The line that a client's program shows; in a notebook: test_sync.py."""

from __future__ import annotations

import io
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest
from gym_runtime.client.progress import shown
from gym_runtime.errors import Fault
from gym_runtime.messages.outcomes import Completed, Failed, RolloutRecord
from msgspec import Raw
from msgspec.structs import replace

pytestmark = pytest.mark.anyio
RIGHT = RolloutRecord(
    run="r", task_index=0, rollout_index=0, environment="e", outcome=Completed(), row=Raw(b"{}"), reward=1.0
)
LOST = replace(RIGHT, reward=None, outcome=Failed(fault=Fault(kind="model", message="down")))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def results(*groups: list[RolloutRecord]) -> AsyncGenerator[list[RolloutRecord]]:
    for group in groups:
        yield group


async def passed_on(groups: list[list[RolloutRecord]], total: int) -> list[list[RolloutRecord]]:
    return [group async for group in shown(results(*groups), list, total)]


@pytest.mark.parametrize(
    ("groups", "total", "said"),
    [
        ([[RIGHT, LOST], [RIGHT]], 3, "rollouts: 3 of 3, mean reward 1.000, 1 failed, "),
        ([[RIGHT, LOST, RIGHT]], 2, "rollouts: 3 of 3, mean reward 1.000, 1 failed, "),
        ([[RIGHT]], 0, "rollouts: 1, mean reward 1.000, "),
        ([[LOST]], 4, "rollouts: 1 of 4, 1 failed, "),
        ([], 0, "rollouts: 0, in 0:00"),
    ],
    ids=["all", "replaced", "a stream", "failed", "none"],
)
async def test_a_file_gets_the_last_state(
    groups: list[list[RolloutRecord]], total: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert await passed_on(groups, total) == groups
    (line,) = sys.stderr.getvalue().splitlines()
    assert line.startswith(said)


async def test_a_terminal_shows_one_line_that_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    await passed_on([[RIGHT]] * 1000, 1000)
    said = sys.stderr.getvalue()
    assert said.startswith("\rrollouts: 0 of 1,000\x1b[K\rrollouts: 1 of 1,000, ")
    assert said.count("\n") == 1
    assert said.count("\r") < 100  # a redraw takes longer than a record
    assert said.splitlines()[-1].startswith("rollouts: 1,000 of 1,000, ")


async def test_leaving_early_says_how_far_it_came_and_closes_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    source = results(*[[RIGHT]] * 5)
    async with aclosing(shown(source, list, 5)) as taken:
        await anext(taken)
    assert sys.stderr.getvalue().startswith("rollouts: 1 of 5, ")
    assert [one async for one in source] == []

"""Prefixes, subjects, patterns and the names of consumers."""

from __future__ import annotations

import pytest
from gym_runtime.bus.nats import connect
from gym_runtime.bus.wire import Names
from gym_runtime.errors import NoWorker, UsageError
from runtime.bus.nats.links import soon
from tables import table


@pytest.mark.asyncio
async def test_prefixes_do_not_hear_each_other(broker_url: str, prefix: str) -> None:
    async with (
        connect(broker_url, prefix=prefix) as ours,
        connect(broker_url, prefix=f"{prefix}.b") as theirs,
    ):
        async with ours.serve("x", lambda _: None):
            with pytest.raises(NoWorker):
                await theirs.request("x", b"", deadline_s=soon())
        assert await ours.commit("rollout.r.1", b"")
        assert await theirs.commit("rollout.r.1", b"")


@table("subject", ["", "a b", "a..b", "a.*", ">", "a\r\nPUB x 0", "x" * 2000, ".a"])
def test_subjects_that_are_none_are_refused(subject: str) -> None:
    with pytest.raises(UsageError):
        Names("gym").subject(subject)


@pytest.mark.parametrize("pattern", ["", "a b", "a.>.b", "a>", "*a"])
def test_patterns_that_are_none_are_refused(pattern: str) -> None:
    with pytest.raises(UsageError):
        Names("gym").pattern(pattern)


def test_consumer_names_stay_apart() -> None:
    names = ["a.b", "a_b", "a b", "a=2e=b", "a-b"]
    assert len({Names.consumer(name) for name in names}) == len(names)
    assert Names.consumer("tool_loop-1") == "tool_loop-1"

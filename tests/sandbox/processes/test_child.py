"""A child whose pipes one task closes while others use them."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

import anyio
import pytest
from gym_sandbox.processes.child import Child, EndOfProcess
from time_limits import busy

pytestmark = pytest.mark.anyio

USES: dict[str, Callable[[Child], Awaitable[object]]] = {
    "receive": lambda child: child.receive(100),
    "read": lambda child: child.read(),
    "errors": lambda child: child.read(errors=True),
    "write": lambda child: child.write(bytes(1 << 22)),
    "answers_within": lambda child: child.answers_within(60),
}
ENDS = {"receive": EndOfProcess, "write": EndOfProcess, "read": b"", "errors": b"", "answers_within": True}


async def use(child: Child, name: str) -> object:
    try:
        return await USES[name](child)
    except EndOfProcess as error:
        return type(error)


@pytest.mark.parametrize("name", USES)
async def test_a_child_that_is_closed_has_ended_for_those_who_wait_for_it(name: str) -> None:
    child = Child(["sleep", "60"], with_errors=True)
    found: list[object] = []

    async def wait() -> None:
        found.append(await use(child, name))

    with anyio.fail_after(20 * busy()):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            await child.close()
    assert found == [ENDS[name]]


@pytest.mark.parametrize("name", USES)
async def test_a_closed_child_touches_no_other_file(name: str) -> None:
    """The numbers of its pipes belong to other files then."""
    child = Child(["sleep", "60"], with_errors=True)
    await child.close()
    opened = [os.pipe() for _ in range(3)]
    try:
        for _, writing in opened:
            os.write(writing, b"of others")
        assert await use(child, name) == ENDS[name]
        assert [os.read(reading, 100) for reading, _ in opened] == [b"of others"] * 3
    finally:
        for descriptor in (number for pair in opened for number in pair):
            os.close(descriptor)

"""Calls that may share a fork: each is answered by itself, whatever those before it did."""

from __future__ import annotations

import pytest
from gym_sandbox import fork_server, frames
from gym_sandbox import pool as pools
from gym_sandbox.pool import pool
from gym_sandbox.sandbox_errors import FunctionRaised, ProcessDied
from gym_sandbox.verifier import verifier
from sandbox import called_functions
from sandbox.programs import NEEDS_ISOLATION

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60), NEEDS_ISOLATION]

SHARED = verifier(called_functions.do, called_functions.share)


async def do(what: str, cpu_s: float = 30.0) -> int:
    return int(bytes(await pool().call(SHARED, frames.encode_arguments((what,)), cpu_s)))


async def test_calls_share_a_fork_until_one_ends_it() -> None:
    first, empty = await do(""), await do("look")
    assert [await do("") for _ in range(3)] == 3 * [first]
    with pytest.raises(FunctionRaised, match=r"^ValueError: raise$"):
        await do("raise")
    assert await do("") == first
    with pytest.raises(ProcessDied, match=r"^exit code 3$"):
        await do("die")
    second = await do("")
    assert second != first
    with pytest.raises(ProcessDied, match=r"^exit code 4$"):
        await do("leave a folder")
    assert await do("look") == empty


async def test_a_fork_serves_so_many_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    # On a busy machine a call may wait for so long that another process takes the next ones.
    monkeypatch.setattr(pools, "OVERRUN_S", 30.0)
    forks = [await do("") for _ in range(2 * fork_server.SHARED_AT_MOST)]
    assert len(set(forks)) == 2
    assert forks == sorted(forks)


@pytest.mark.slow
async def test_the_processor_time_of_each_call_is_its_own() -> None:
    first = await do("")
    for _ in range(3):
        assert await do("work", cpu_s=1.0) == first
    with pytest.raises(TimeoutError, match=r"^0\.5 s of processor time$"):
        await do("spin", cpu_s=0.5)
    assert await do("")

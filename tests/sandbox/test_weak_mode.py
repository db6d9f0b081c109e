"""Without isolation: the refusal, and the weak mode."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gym_sandbox import Interpreter, Sandbox, bubblewrap
from gym_sandbox.processes.child import Child
from gym_sandbox.sandbox_errors import SetupError
from runtime.bounds import bounds as bounds
from sandbox.programs import MARK, NEEDS_ISOLATION, STUBBORN, living, run, said

pytestmark = [pytest.mark.anyio, NEEDS_ISOLATION]


def a_broken_one(folder: Path, text: str) -> str:
    path = folder / "bwrap"
    path.write_text(f"#!/bin/sh\necho {text} >&2; exit 1\n")
    path.chmod(0o755)
    return str(path)


def test_the_systems_bubblewrap_comes_first_if_it_isolates(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    working = bubblewrap.binaries()[-1]
    system = tmp_path / "bwrap"
    try:
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        system.symlink_to(working)
        bubblewrap.check.cache_clear()
        assert bubblewrap.check(os.getpid()) == str(system)
        system.unlink()
        a_broken_one(tmp_path, "unknown option --size")
        bubblewrap.check.cache_clear()
        assert bubblewrap.check(os.getpid()) == working
    finally:
        bubblewrap.check.cache_clear()


async def test_without_isolation_it_refuses_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = a_broken_one(tmp_path, "No permissions to create a new namespace")
    monkeypatch.setattr(bubblewrap, "binaries", lambda: [broken])
    bubblewrap.check.cache_clear()
    try:
        with pytest.raises(
            SetupError, match=r"No permissions to create a new namespace.*pip install.*GYM_SANDBOX=weak"
        ):
            async with Sandbox():
                pass
        with pytest.raises(SetupError, match="cannot isolate on this machine"):
            await Interpreter().execute("1", 5)
    finally:
        bubblewrap.check.cache_clear()
    monkeypatch.setenv("GYM_SANDBOX", "none")
    with pytest.raises(SetupError, match="GYM_SANDBOX=none is unknown"):
        async with Sandbox():
            pass


@pytest.mark.slow
async def test_the_weak_mode_limits_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GYM_SANDBOX", "weak")
    monkeypatch.setenv("PLANTED_SECRET", "hunter2")
    assert "hunter2" not in await said("import os; print(dict(os.environ))")
    assert await said("try: bytearray(1 << 33)\nexcept MemoryError: print('memory')") == "memory"
    result = await run(f"# {MARK}\n{STUBBORN}\nimport os\nos.fork()\nwhile True: pass", timeout_s=0.3)
    assert result.timed_out
    assert living(MARK) == []
    async with Interpreter() as session:
        assert (await session.execute("1 + 1", 5)).value == "2"


async def test_a_child_is_closed_twice_in_peace() -> None:
    async with Child(["cat"]) as child:
        await child.write(b"x")
        assert await child.read() == b"x"
        child.close_input()
        assert await child.wait() == 0
        await child.close()

"""Sandboxes and containers that something outside kills while they judge: their end is no verdict."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import anyio
import msgspec
import psutil
import pytest
from gym_resources.code.program_tests import Case, run_tests
from gym_resources.swe import local_rows
from gym_resources.swe.instances import Instance
from gym_resources.swe.patch_evaluation import evaluate
from gym_sandbox import (
    Container,
    Interrupted,
    Limits,
    Result,
    Sandbox,
    bubblewrap,
    in_container,
    python,
)
from gym_sandbox.processes import disturbances, tree
from sandbox import images
from sandbox.programs import NEEDS_ISOLATION

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(60), NEEDS_ISOLATION]
T = TypeVar("T")
WAITS = "import time; time.sleep(1); print('finished')"


@pytest.fixture
def podman(monkeypatch: pytest.MonkeyPatch) -> Iterator[images.Engine]:
    with images.used("podman", monkeypatch) as engine:
        yield engine


async def while_killed(run: Callable[[], Awaitable[T]], kill: Callable[[], bool], times: int) -> T:
    """What a call returned during which so many sandboxes were killed."""
    killed = 0

    async def killing() -> None:
        nonlocal killed
        while killed < times:
            await anyio.sleep(0.05)
            killed += await anyio.to_thread.run_sync(kill)

    done: list[T] = []
    raised: list[Interrupted] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(killing)
        try:
            done.append(await run())
        except Interrupted as error:  # not through the task group, which would wrap it
            raised.append(error)
        tasks.cancel_scope.cancel()
    assert killed == times
    if raised:
        raise raised[0]
    return done[0]


def depth(pid: int) -> tuple[int, int]:
    """In how many pid namespaces a process is, and its number in the innermost one."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("NSpid:"):
                numbers = line.split()[1:]
                return len(numbers), int(numbers[-1])
    return 0, 0


def descendants() -> list[psutil.Process]:
    found: list[psutil.Process] = []
    for pid in tree.members(os.getpid())[1:]:  # quicker than psutil, which reads all of the machine's
        with suppress(psutil.Error):
            found.append(psutil.Process(pid))
    return found


def runs(one: psutil.Process, mark: str) -> bool:
    with suppress(psutil.Error):
        return mark in " ".join(one.cmdline())
    return False


def kill(first: psutil.Process) -> None:
    """Kill the first process of a sandbox, and wait until all in it have ended: none is killed twice."""
    first.kill()
    deadline_s = time.monotonic() + 10
    with suppress(psutil.Error):
        while first.status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline_s:
            time.sleep(0.005)


def kill_first(mark: str) -> bool:
    """Kill the first process of the namespace in which a program runs."""
    for one in descendants():
        if runs(one, mark) and depth(one.pid)[1] != 1:
            for above in one.parents():
                if depth(above.pid)[1] == 1:
                    kill(above)
                    return True
    return False


def kill_forking() -> bool:
    """Kill the first process of a sandbox that a template has forked, if it has a fork itself."""
    deepest = max((depth(one.pid)[0] for one in descendants()), default=0)
    for one in descendants():
        if deepest > 2 and depth(one.pid) == (deepest, 1):
            with suppress(psutil.Error):
                if tree.children(one.pid):
                    kill(one)
                    return True
    return False


def kill_bubblewrap(mark: str, *, outer: bool) -> bool:
    """Kill the first process of a sandbox in which a command runs, and before bubblewrap's outside of it."""
    for one in descendants():
        if runs(one, mark) and depth(one.pid)[1] != 1:
            above = [parent for parent in one.parents() if parent.name() == "bwrap"]
            for parent in reversed(above if outer else above[:1]):
                parent.kill()
            if above:
                with suppress(psutil.Error):
                    one.wait(20)  # or it would be found again, and count as the next sandbox
                return True
    return False


def bubblewrapped() -> Container:
    return Container(directory="work")


async def test_a_program_whose_sandbox_is_killed_runs_again() -> None:
    async def run() -> Result:
        async with Sandbox() as box:
            return await box.run([*python.python_command(), "-c", WAITS], timeout_s=20)

    done = await while_killed(run, partial(kill_first, WAITS), 2)
    assert (done.exit_code, done.stdout) == (0, b"finished\n")
    with pytest.raises(Interrupted):
        await while_killed(run, partial(kill_first, WAITS), disturbances.TRIES)


async def test_the_tests_of_a_program_whose_sandbox_is_killed_are_not_failed() -> None:
    code = "import time; time.sleep(0.7); print(input())"
    run = partial(run_tests, code, [Case("a\n", "a\n")] * 3, test_limit_s=5)
    assert (await run()).status == "passed"  # its template is ready
    assert (await while_killed(run, kill_forking, 2)).status == "passed"
    with pytest.raises(Interrupted):
        await while_killed(run, kill_forking, disturbances.TRIES)


async def test_where_each_sandbox_starts_by_itself_one_end_in_doubt_is_not_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bubblewrap, "CAPABILITIES", ())
    code = "import time; time.sleep(0.7); print(input())"
    run = partial(run_tests, code, [Case("a\n", "a\n")] * 3, test_limit_s=5)
    kill = partial(kill_bubblewrap, "Runs a program on tests, inside the sandbox", outer=False)
    assert (await while_killed(run, kill, 1)).status == "passed"
    assert (await while_killed(run, kill, 2)).status == "died"


@pytest.mark.parametrize(
    "code",
    [
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "x = bytearray(1 << 40)",
        "-" * 100_000 + "1",
    ],
    ids=["kills itself", "too much memory", "ends its compiler"],
)
async def test_a_program_that_ends_itself_is_judged(code: str) -> None:
    limits = Limits(memory_bytes=512 << 20)
    outcome = await run_tests(code, [Case("a\n", "a\n")], test_limit_s=5, limits=limits)
    assert outcome.passed == 0
    assert outcome.status in ("died", "raised")
    async with Sandbox(limits) as box:
        assert (await box.run([*python.python_command(), "-c", code], timeout_s=20)).exit_code != 0


async def test_a_container_that_is_killed_is_told_from_one_that_ends_itself() -> None:
    async with bubblewrapped() as box:
        with pytest.raises(Interrupted):
            await while_killed(
                lambda: box.run("sleep 10.25", timeout_s=20),
                partial(kill_bubblewrap, "sleep 10.25", outer=True),
                1,
            )
    async with bubblewrapped() as box:
        done = await box.run("kill -KILL -1", timeout_s=20)
        assert done.exit_code == 137
        assert box.doubtful


def client_of(name: str) -> psutil.Process | None:
    """The engine's program that runs a container for this process."""
    for one in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if f"--name={name}" in one.cmdline():
                return one
    return None


async def test_an_engines_container_that_is_killed_may_have_ended_itself(podman: images.Engine) -> None:
    async with Container(images.NAME, directory="/testbed") as box:
        name = (await box.contained()).name
        killed = partial(box.run, "sleep 20", timeout_s=30)
        done = await while_killed(killed, lambda: not podman.run("kill", name).returncode, 1)
        assert (done.exit_code, box.doubtful) == (137, True)
    async with Container(images.NAME, directory="/testbed") as box:
        client = client_of((await box.contained()).name)
        assert client is not None
        with pytest.raises(Interrupted):
            await while_killed(partial(box.run, "sleep 20", timeout_s=30), lambda: client.kill() is None, 1)
    async with Container(images.NAME, directory="/testbed") as box:
        # Its first process cannot be killed from within, and ends with its input.
        assert (await box.run("kill -KILL -1; sleep 20", timeout_s=30)).exit_code == 137
        assert (await box.run("echo on", timeout_s=30)).exit_code == 137
        assert box.doubtful


FORGED = """mkdir -p /usr/local/bin; printf '#!/bin/sh\\n/bin/rm "$@"\\nexit 137\\n' >/usr/local/bin/rm
chmod 755 /usr/local/bin/rm
for p in /proc/[0-9]*; do
  read -r c <$p/comm
  [ "$c" = cat ] && setsid sh -c "sleep 1; kill -9 ${p#/proc/}" >/dev/null 2>&1 &
done; exit 0
"""


async def test_a_model_does_not_feign_that_its_container_was_killed(podman: images.Engine) -> None:
    async with Container(images.NAME, directory="/testbed") as box:
        assert (await box.run(FORGED, timeout_s=20)).exit_code == 0
        child = await box.contained()
        await child.wait()
        assert (await box.run("true", timeout_s=20)).exit_code == 137
        assert box.doubtful


@pytest.mark.parametrize("outer", [True, False], ids=["bubblewrap", "its first process"])
async def test_what_judges_is_done_again_if_its_container_is_killed(outer: bool) -> None:
    tried = 0

    async def use(box: Container) -> Result:
        nonlocal tried
        tried += 1
        return await box.run("sleep 1.25; echo judged", timeout_s=20)

    kill = partial(kill_bubblewrap, "sleep 1.25", outer=outer)
    done = await while_killed(partial(in_container, bubblewrapped, use), kill, 1)
    assert (done.stdout, tried) == (b"judged\n", 2)
    if outer:
        with pytest.raises(Interrupted):
            await while_killed(partial(in_container, bubblewrapped, use), kill, disturbances.TRIES)


async def test_what_ends_each_container_is_believed() -> None:
    done = await in_container(bubblewrapped, lambda box: box.run("kill -KILL -1", timeout_s=20))
    assert done.exit_code == 137


async def test_podman_kill_is_no_end_of_tests(podman: images.Engine) -> None:
    names: list[str] = []

    async def use(box: Container) -> Result:
        names.append((await box.contained()).name)
        return await box.run("sleep 2; echo judged", timeout_s=30)

    def kill() -> bool:
        return bool(names) and not podman.run("kill", names[-1]).returncode

    def make() -> Container:
        return Container(images.NAME, directory="/testbed")

    done = await while_killed(partial(in_container, make, use), kill, 1)
    assert (done.stdout, len(names)) == (b"judged\n", 2)


async def test_a_patch_is_judged_though_the_box_of_its_tests_is_killed() -> None:
    row: dict[str, Any] = next(local_rows.agent_rows(1, 7))
    instance = msgspec.json.decode(msgspec.json.encode(row), type=Instance)
    # Its tests take a while, so that they can be met.
    slow = {path: f"import time; time.sleep(0.2)\n{text}" for path, text in instance.files.items()}
    instance = msgspec.structs.replace(instance, files=slow)
    kill = partial(kill_bubblewrap, "Calls a repository's functions", outer=False)

    run = partial(evaluate, instance, "", instance.patch, 30)
    assert (await while_killed(run, kill, 1)).resolution == "RESOLVED_FULL"

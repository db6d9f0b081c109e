"""SIGTERM to every process of a worker, as from Slurm and systemd, while containers of an image run."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import suppress

import anyio
import psutil
import pytest
from gym_sandbox import Container
from gym_sandbox.processes import disturbances
from gym_sandbox.sandbox_errors import Interrupted
from sandbox import images
from time_limits import busy

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(60)]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[images.Engine]:
    """Podman, if it works here; what docker runs is no part of the worker's processes."""
    with images.used("podman", monkeypatch) as engine:
        yield engine


def monitor_of(*words: str) -> psutil.Process | None:
    """Podman's monitor, no descendant of the worker, of the container in which exactly this command runs."""
    for one in psutil.process_iter(["cmdline"]):
        if one.info["cmdline"] == list(words):
            return next((parent for parent in one.parents() if "conmon" in parent.name()), None)
    return None


def signal_all(*others: psutil.Process) -> int:
    """SIGTERM to all descendants, and to this process as far as it takes note; how many there were."""
    reached = 0
    for one in (*psutil.Process().children(recursive=True), *others):
        with suppress(psutil.NoSuchProcess):
            one.send_signal(signal.SIGTERM)
            reached += 1
    disturbances.note()
    return reached


async def until_child(*words: str) -> None:
    """Return when a descendant has these words in its command."""
    with anyio.fail_after(20 * busy()):
        while True:
            for one in psutil.Process().children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    if set(words) <= set(one.cmdline()):
                        return
            await anyio.sleep(0.005)


def container() -> Container:
    return Container(images.NAME, directory="/testbed")


async def test_one_that_is_starting_starts_again(engine: images.Engine) -> None:
    async with container() as box:
        assert signal_all() > 0
        assert (await box.run("echo on", timeout_s=20)).stdout == b"on\n"


@pytest.mark.parametrize("inside", [False, True], ids=["outside", "inside"])
async def test_a_command_goes_on_unless_the_signal_reaches_it(engine: images.Engine, inside: bool) -> None:
    async with container() as box, anyio.create_task_group() as tasks:

        async def signal_it() -> None:
            with anyio.fail_after(20 * busy()):
                while not (monitor := monitor_of("sleep", "2.125")):
                    await anyio.sleep(0.02)
            assert signal_all(monitor, *(monitor.children(recursive=True) if inside else ())) > 0

        tasks.start_soon(signal_it)
        script = "sleep 2.125; echo on"
        if inside:
            with pytest.raises(Interrupted, match="SIGTERM to the worker also reached its containers"):
                await box.run(script, timeout_s=20)
        else:
            assert (await box.run(script, timeout_s=20)).stdout == b"on\n"
            assert (await box.run("echo on", timeout_s=20)).stdout == b"on\n"


async def test_one_that_ends_itself_so_is_believed(engine: images.Engine) -> None:
    async with container() as box:
        assert (await box.run("kill -TERM $$", timeout_s=20)).exit_code == 143


async def test_one_is_removed_though_its_removal_is_signalled(engine: images.Engine) -> None:
    box = container()
    await box.run("true", timeout_s=20)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(box.close)
        await until_child("rm", "--force")
        assert signal_all() > 0

"""A loop that is blocked is told from one that has nothing to do, or no processor."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from time_limits import busy

PROGRAM = """
import os, sys, time
import anyio
from gym_runtime.environment.blocked_loop import watching

def work(seconds):
    end_s = time.thread_time() + seconds
    while time.thread_time() < end_s:
        pass

async def main():
    named = set()
    async with watching(0.2, lambda place, _: named.add(place.rpartition(" ")[2])):
        for _ in range({times}):
            {step}
            if named.issuperset({until}) and named:
                break
    print("done", *named)

{before}
anyio.run(main, backend_options={{"use_uvloop": {uvloop}}})
"""
LOOPS = pytest.mark.parametrize("uvloop", [True, False])


def said(
    folder: Path, step: str, *, uvloop: bool, before: str = "", times: int = 5, until: tuple[str, ...] = ()
) -> set[str]:
    """The functions that are named while a loop in another process does this so many times.

    It does it no further time once these functions, or any, are named.
    """
    program = folder / "program.py"
    filled_in = PROGRAM.format(step=step, uvloop=uvloop, before=before, times=times, until=until)
    program.write_text(filled_in)
    done = subprocess.run([sys.executable, str(program)], stdout=subprocess.PIPE, text=True, check=True)
    first, *named = done.stdout.split()
    assert first == "done"
    return set(named)


@pytest.mark.parametrize("uvloop", [True, pytest.param(False, marks=pytest.mark.soak)])
@pytest.mark.slow
def test_code_that_computes_or_waits_is_named(uvloop: bool, tmp_path: Path) -> None:
    times = round(3 * busy())  # where programs wait for a processor, not each step is seen
    step = "work(0.7); await anyio.sleep(0.01); time.sleep(0.7); await anyio.sleep(0.01)"
    both = ("main", "work")
    assert said(tmp_path, step, uvloop=uvloop, times=times, until=both) == set(both)


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the kernel does not say who waits")
@LOOPS
@pytest.mark.parametrize("step", ["await anyio.sleep(0.3)", "work(0.08); await anyio.sleep(0.01)"])
@pytest.mark.slow
def test_a_loop_that_gets_no_processor_is_not_blocked(step: str, uvloop: bool, tmp_path: Path) -> None:
    processor = min(os.sched_getaffinity(0))
    behind_others = f"os.sched_setaffinity(0, {{{processor}}}); os.nice(5)"
    with contextlib.ExitStack() as stack:
        busy = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
        stack.callback(busy.kill)
        os.sched_setaffinity(busy.pid, {processor})
        assert said(tmp_path, step, uvloop=uvloop, before=behind_others) == set()


STOPPED = "subprocess.Popen(['sh', '-c', f'sleep 1; kill -CONT {os.getpid()}']); os.kill(os.getpid(), 19)"


@pytest.mark.slow
def test_code_that_was_stopped_with_its_process_is_not_named(tmp_path: Path) -> None:
    step = f"await anyio.sleep(0.3); {STOPPED}; work(0.05); await anyio.sleep(0.3)"
    assert said(tmp_path, step, uvloop=True, before="import subprocess") == set()


@pytest.mark.slow
def test_a_loop_is_watched_again_after_its_process_was_stopped(tmp_path: Path) -> None:
    step = f"await anyio.sleep(0.3); {STOPPED}; time.sleep(0.7); await anyio.sleep(0.3); work(0.7)"
    times = round(2 * busy())  # as above: not each step is seen
    both = ("main", "work")
    found = said(tmp_path, step, uvloop=True, before="import subprocess", times=times, until=both)
    assert found >= set(both)
